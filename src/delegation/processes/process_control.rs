//! Answers of Adjutant to the control requests of an agent's `claude` process: hooks, permissions, MCP
//! messages.

use std::collections::BTreeMap;
use std::future::pending;
use std::mem::take;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::{interval, sleep};
use tokio_util::sync::CancellationToken;

use super::super::launch::PreparedLaunch;
use super::super::phase_timings::TurnClock;
use super::super::recorder::RunRecorder;
use super::super::sandbox::ProcessSandbox;
use super::super::status::StatusSender;
use super::super::usage_meter::UsageMeter;
use super::super::user_hooks::HookResult;
use crate::catalog::{Agent, ServerEntry};
use crate::claude::{
    BoxFuture, ClaudeHandle, ControlHandler, HookDecision, HookEvent, Observation,
    PermissionAnswer, PermissionRequest, ResultFrame, STRUCTURED_OUTPUT_TOOL, ToolUse,
};
use crate::delegation::approval::{ApprovalBroker, ApprovalResult};
use crate::delegation::file_access::{ControlFiles, FileRequest};
use crate::gateway::{GatewayError, NotifyFn, SdkServers};
use crate::jsonrpc::{Frame, LineJson, Message};
use crate::outcome::Denial;
use crate::policy::{Verdict, evaluate_builtin, evaluate_mcp_tool};
use crate::util::{Mutex, RunId, one_line, run_blocking, shorten};

/// Longest interval between two activity signals while a run waits for a person; the idle timeout does
/// not apply then.
const MAX_ACTIVITY_INTERVAL: Duration = Duration::from_secs(1);
const MIN_ACTIVITY_INTERVAL: Duration = Duration::from_millis(1);
/// Delay of a denial after a limit was exceeded: the run is stopped before the model could react to the
/// denial.
const STOP_GRACE_PERIOD: Duration = Duration::from_secs(5);
const NO_RUN_MESSAGE: &str = "Denied by Adjutant: no call is going on.";

/// Answers the control requests of one `claude` process.
///
/// Lives as long as the process. The run it works for is bound with `bind_run` and changes when a pooled process is
/// reused; while none is bound every tool is denied and any activity is a protocol violation.
pub(crate) struct ProcessControl {
    agent: Arc<Agent>,
    control_files: Arc<ControlFiles>,
    /// `None` for an agent without servers, and between runs if a server is per run.
    sdk_servers: Mutex<Option<Arc<SdkServers>>>,
    /// Destination of server notifications, set when the process has answered `initialize`.
    notified: Arc<OnceLock<ClaudeHandle>>,
    /// `None` while no run is bound.
    active_run: Mutex<Option<Arc<ActiveRun>>>,
    last_activity: watch::Sender<Instant>,
    /// Cancelled at the first activity of the process while no run is bound.
    violation: CancellationToken,
    sandbox: Option<Mutex<ProcessSandbox>>,
}

/// Per-run state of a [`ProcessControl`]: live status, event recorder, approvals, usage meter.
///
/// May outlive the run: a control request in progress keeps it until the process exits.
pub(crate) struct ActiveRun {
    status: Weak<StatusSender>,
    recorder: Arc<RunRecorder>,
    approvals: Arc<ApprovalBroker>,
    meter: Arc<UsageMeter>,
    observations: Mutex<RunObservations>,
    /// Calls of file tools in progress, by `tool_use_id`.
    file_calls: Mutex<BTreeMap<String, FileCall>>,
}

/// A call of a file tool in progress.
#[derive(Debug)]
enum FileCall {
    /// The process has sent no `PreToolUse` request for the call.
    Unasked(ToolUse),
    /// The `PreToolUse` request of the call was answered.
    Asked,
}

impl ActiveRun {
    pub(crate) fn new(launch: &PreparedLaunch<'_>) -> Arc<Self> {
        Arc::new(Self {
            status: Arc::downgrade(&launch.run.status),
            recorder: Arc::clone(&launch.registered.recorder),
            approvals: Arc::clone(&launch.registered.approvals),
            meter: Arc::clone(&launch.limits.meter),
            observations: Mutex::default(),
            file_calls: Mutex::default(),
        })
    }

    /// Returns the exceeded limit, if any.
    ///
    /// Waits until all costs so far are checked against the budgets, at most 10 s for a message in progress plus the
    /// time to write the costs.
    async fn limit_exceeded(&self) -> Option<String> {
        self.meter.settled().await;
        self.meter.over().map(|failure| failure.full_message())
    }

    fn file_call_began(&self, id: &str, tool: &str, input: &Value) {
        if FileRequest::is_for(tool) {
            let call = ToolUse {
                tool_name: tool.to_owned(),
                input: input.clone(),
                tool_use_id: id.to_owned(),
                payload: Map::new(),
            };
            // The process may ask before the message with the call is complete.
            self.file_calls.lock().entry(id.to_owned()).or_insert(FileCall::Unasked(call));
        }
    }

    fn file_call_asked(&self, tool_use: &ToolUse) {
        if let Some(cwd) = tool_use.payload.get("cwd").and_then(Value::as_str) {
            self.observations.lock().cwd = Some(cwd.to_owned());
        }
        if FileRequest::is_for(&tool_use.tool_name) {
            self.file_calls.lock().insert(tool_use.tool_use_id.clone(), FileCall::Asked);
        }
    }

    /// Removes a call that ended. Returns the call if the process never asked about it.
    fn file_call_ended(&self, id: &str) -> Option<ToolUse> {
        match self.file_calls.lock().remove(id)? {
            FileCall::Unasked(call) => Some(call),
            FileCall::Asked => None,
        }
    }

    /// Records a denial that no person decided. Approvals write their own audit entries.
    fn record_denial(&self, (tool, id): (&str, &str), input: &Value, reason: &str) {
        self.recorder.permission_denied(id, tool, reason);
        self.approvals.audit_denial((tool, id), input, reason);
    }

    /// Adds a denial to the report of the run, once.
    fn add_denial(&self, tool: &str, rule: &str) {
        let denial = Denial { tool: tool.to_owned(), rule: rule.to_owned() };
        let mut seen = self.observations.lock();
        if !seen.denials.contains(&denial) {
            seen.denials.push(denial);
        }
    }
}

/// Observations of one run, for its report.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunObservations {
    pub(crate) denials: Vec<Denial>,
    /// True once a tool was requested. The tool may have run, so the turn must not be repeated.
    pub(crate) tool_requested: bool,
    /// True if the process reported the start of the current turn.
    turn_began: bool,
    /// True after a result that belongs to no turn, or that arrived before its turn began.
    pub(crate) stale_result: bool,
    /// Last reported working directory of the process.
    cwd: Option<String>,
    pub(crate) clock: TurnClock,
}

impl ProcessControl {
    /// Creates the control of a process that no run uses yet.
    pub(crate) fn new(
        agent: Arc<Agent>,
        sdk_servers: Option<Arc<SdkServers>>,
        control_files: Arc<ControlFiles>,
        sandbox: Option<ProcessSandbox>,
    ) -> Arc<Self> {
        Arc::new(Self {
            agent,
            control_files,
            sdk_servers: Mutex::new(sdk_servers),
            notified: Arc::default(),
            active_run: Mutex::default(),
            last_activity: watch::channel(Instant::now()).0,
            violation: CancellationToken::new(),
            sandbox: sandbox.map(Mutex::new),
        })
    }

    /// Opens the notification channel to the process once it has answered `initialize`.
    pub(crate) fn process_ready(&self, handle: ClaudeHandle) {
        // Set once per process.
        let _ = self.notified.set(handle);
        if let Some(sdk_servers) = self.sdk_servers() {
            sdk_servers.notify_changes(&self.notify_fn());
        }
    }

    fn sdk_servers(&self) -> Option<Arc<SdkServers>> {
        self.sdk_servers.lock().clone()
    }

    /// Returns `true` if the agent has no servers or they are connected.
    pub(crate) fn has_servers_connected(&self) -> bool {
        self.agent.servers.is_empty() || self.sdk_servers().is_some()
    }

    /// Replaces the servers behind the process.
    pub(crate) fn connect_servers(&self, sdk_servers: Arc<SdkServers>) {
        sdk_servers.notify_changes(&self.notify_fn());
        *self.sdk_servers.lock() = Some(sdk_servers);
    }

    /// Returns the callback that forwards notifications of servers to the process.
    ///
    /// Progress also counts as activity and is shown in the status of the run that is bound now. Holds that run weakly:
    /// the connections to the servers keep the callback as long as the process lives.
    fn notify_fn(&self) -> NotifyFn {
        let (notified, last_activity) = (Arc::clone(&self.notified), self.last_activity.clone());
        let active_run = self.active_run.lock().as_ref().map_or_else(Weak::new, Arc::downgrade);
        Arc::new(move |server, message| {
            if let Some(progress) = format_progress(server, message) {
                last_activity.send_replace(Instant::now());
                let status = active_run.upgrade().and_then(|run| run.status.upgrade());
                if let Some(status) = status {
                    status.set_activity(&progress);
                }
            }
            if let Some(handle) = notified.get() {
                handle.send_mcp(server, message);
            }
        })
    }

    /// Returns the text of the server prompt that `task` names, if it names one.
    pub(crate) async fn resolve_prompt_command(
        &self,
        task: &str,
    ) -> Option<Result<String, GatewayError>> {
        self.sdk_servers()?.resolve_prompt_command(task).await
    }

    /// Records a prompt that is about to be sent, unless a `UserPromptSubmit` callback will report it.
    pub(crate) fn prompt_sent(&self, message: &str) {
        if let Some(active_run) = self.active_run.lock().clone()
            && !registers_callback(&self.agent, HookEvent::UserPromptSubmit)
        {
            active_run.recorder.prompt_sent(message);
        }
    }

    /// Records the end of a turn, unless a `Stop` callback reports it.
    pub(crate) fn turn_stopped(&self, result: &ResultFrame) {
        if let Some(active_run) = self.active_run.lock().clone()
            && result.is_success()
            && !registers_callback(&self.agent, HookEvent::Stop)
        {
            active_run.recorder.turn_stopped(result);
        }
    }

    /// Binds a run: from now on requests and observations belong to it.
    pub(crate) fn bind_run(&self, run: RunId, active_run: Arc<ActiveRun>) {
        if let Some(sdk_servers) = self.sdk_servers() {
            sdk_servers.set_run(run);
        }
        self.last_activity.send_replace(Instant::now());
        *self.active_run.lock() = Some(active_run);
        self.reach_model(true);
    }

    fn reach_model(&self, is_bound: bool) {
        if let Some(sandbox) = &self.sandbox {
            sandbox.lock().set_bound(is_bound);
        }
    }

    /// Returns the sandbox of the process, if it has one.
    pub(crate) fn sandbox(&self) -> Option<&Mutex<ProcessSandbox>> {
        self.sandbox.as_ref()
    }

    /// Returns a future that resolves when a protected path was replaced on the host; never without a sandbox.
    pub(crate) fn control_file_replaced(&self) -> impl Future<Output = PathBuf> + Send + use<> {
        let replaced = self.sandbox.as_ref().map(|sandbox| sandbox.lock().replaced());
        async move {
            match replaced {
                Some(replaced) => replaced.await,
                None => pending().await,
            }
        }
    }

    /// Returns the observations of the bound run.
    pub(crate) fn observations(&self) -> RunObservations {
        let active_run = self.active_run.lock().clone();
        active_run.map(|run| run.observations.lock().clone()).unwrap_or_default()
    }

    /// Unbinds the run.
    ///
    /// Further activity is a protocol violation. Drops the servers if one of them is per run.
    pub(crate) fn unbind_run(&self) {
        *self.active_run.lock() = None;
        self.reach_model(false);
        if self.agent.servers.iter().any(ServerEntry::is_per_run) {
            self.sdk_servers.lock().take();
        }
    }

    /// Returns a token that is cancelled at the first activity while no run is bound.
    pub(crate) fn protocol_violation(&self) -> CancellationToken {
        self.violation.clone()
    }

    /// Returns the bound run. If none is bound, reports a protocol violation.
    fn require_active_run(&self) -> Option<Arc<ActiveRun>> {
        let active_run = self.active_run.lock().clone();
        if active_run.is_none() {
            self.violation.cancel();
        }
        active_run
    }

    /// Subscribes to the time of the last activity of the process.
    pub(crate) fn activity(&self) -> watch::Receiver<Instant> {
        self.last_activity.subscribe()
    }

    /// Evaluates the agent's policy for a whole tool, independent of Claude Code's permission rules.
    fn evaluate_tool(&self, tool: &str) -> Verdict {
        match tool.strip_prefix("mcp__").and_then(|rest| rest.split_once("__")) {
            Some((server, name)) => match self.sdk_servers() {
                Some(sdk_servers) => sdk_servers.evaluate_tool(server, name),
                None => evaluate_mcp_tool(&self.agent, server, name, None),
            },
            None => evaluate_builtin(&self.agent, tool),
        }
    }

    async fn decide_tool_use(&self, active_run: &ActiveRun, tool_use: &ToolUse) -> HookDecision {
        let verdict = self.evaluate_tool(&tool_use.tool_name);
        // With `--json-schema` the CLI adds a tool that only takes the structured answer.
        let is_answer =
            tool_use.tool_name == STRUCTURED_OUTPUT_TOOL && self.agent.output.schema.is_some();
        let denial = match is_answer || verdict.is_allowed() {
            true => self.control_file_denial(tool_use).await,
            false => Some(verdict.message().to_owned()),
        };
        let Some(reason) = denial else { return HookDecision::Proceed };
        active_run.add_denial(&tool_use.tool_name, &reason);
        HookDecision::Deny { reason }
    }

    /// Returns the denial if the agent may not use a file tool on this path. Runs on a blocking thread.
    async fn control_file_denial(&self, tool_use: &ToolUse) -> Option<String> {
        let cwd = tool_use.payload.get("cwd").and_then(Value::as_str);
        let request = FileRequest::new(&tool_use.tool_name, &tool_use.input, cwd)?;
        let (files, agent) = (Arc::clone(&self.control_files), Arc::clone(&self.agent));
        let fault = || Some("a fault inside Adjutant: the file cannot be checked".to_owned());
        run_blocking(move || files.denial(&agent, &request)).await.unwrap_or_else(fault)
    }

    /// Records that `claude` rejected a call on a control file before it asked.
    ///
    /// Claude Code checks the arguments of `Read`, `Edit` and `Write` before it runs hooks: that no rule denies the
    /// path, and that a file was read before it is written. [`ControlHandler::pre_tool_use`] is never called for such a
    /// call.
    fn rejected_unasked(&self, active_run: &ActiveRun, call: &ToolUse) {
        let (id, tool) = (&call.tool_use_id, &call.tool_name);
        let cwd = active_run.observations.lock().cwd.clone();
        let request = FileRequest::new(tool, &call.input, cwd.as_deref());
        let denial = request.and_then(|request| self.control_files.denial(&self.agent, &request));
        if let Some(reason) = denial {
            active_run.add_denial(tool, &reason);
            active_run.recorder.pre_tool_use(call);
            active_run.record_denial((tool, id), &call.input, &reason);
        }
    }

    /// Asks a person to approve the call. Other control requests continue: each has its own task.
    async fn ask_person(
        &self,
        request: &PermissionRequest,
        active_run: &ActiveRun,
    ) -> PermissionAnswer {
        match self.with_activity(active_run.approvals.decide(request)).await {
            ApprovalResult::Allowed => {
                PermissionAnswer::Allow { updated_input: request.input.clone() }
            }
            ApprovalResult::Denied { rule, message } => {
                active_run.add_denial(&request.tool_name, &rule);
                PermissionAnswer::Deny { message }
            }
        }
    }

    /// Polls `waiting` and signals activity meanwhile, because a person may take longer than the idle
    /// timeout.
    async fn with_activity<T>(&self, waiting: impl Future<Output = T>) -> T {
        let longest = self.agent.limits.idle_timeout.unwrap_or(MAX_ACTIVITY_INTERVAL);
        let mut signs = interval((longest / 2).clamp(MIN_ACTIVITY_INTERVAL, MAX_ACTIVITY_INTERVAL));
        tokio::pin!(waiting);
        loop {
            tokio::select! {
                done = &mut waiting => return done,
                _ = signs.tick() => drop(self.last_activity.send_replace(Instant::now())),
            }
        }
    }
}

impl ControlHandler for ProcessControl {
    fn pre_tool_use(&self, tool_use: ToolUse) -> BoxFuture<'_, HookDecision> {
        Box::pin(async move {
            let Some(active_run) = self.require_active_run() else {
                return HookDecision::Deny { reason: NO_RUN_MESSAGE.to_owned() };
            };
            active_run.file_call_asked(&tool_use);
            let payload = active_run.recorder.pre_tool_use(&tool_use);
            let used_up = active_run.limit_exceeded().await;
            let is_over = used_up.is_some();
            let mut verdict = match used_up {
                Some(reason) => HookDecision::Stop { reason },
                None => self.decide_tool_use(&active_run, &tool_use).await,
            };
            if verdict == HookDecision::Proceed {
                // Hooks can only deny: run them only for calls that are allowed so far.
                let said = active_run.recorder.run_hooks("PreToolUse", &payload).await;
                verdict = said.map_or(verdict, HookResult::decision);
                if let Some(reason) = verdict.denial_reason() {
                    active_run.add_denial(&tool_use.tool_name, &shorten(&one_line(reason), 200));
                }
            }
            if let Some(reason) = verdict.denial_reason() {
                let (id, tool) = (&tool_use.tool_use_id, &tool_use.tool_name);
                active_run.record_denial((tool, id), &tool_use.input, reason);
            }
            if is_over {
                // After a denial `claude` would send another API request, which costs more: wait until the run is
                // stopped.
                sleep(STOP_GRACE_PERIOD).await;
            }
            verdict
        })
    }

    fn can_use_tool(&self, request: PermissionRequest) -> BoxFuture<'_, PermissionAnswer> {
        Box::pin(async move {
            let Some(active_run) = self.require_active_run() else {
                return PermissionAnswer::Deny { message: NO_RUN_MESSAGE.to_owned() };
            };
            let payload = active_run.recorder.permission_request(&request);
            let said = active_run.recorder.run_hooks("PermissionRequest", &payload).await;
            let (tool, id) = (&request.tool_name, &request.tool_use_id);
            if let Some(message) = said.and_then(HookResult::denial_reason) {
                active_run.add_denial(tool, &shorten(&one_line(&message), 200));
                active_run.record_denial((tool, id), &request.input, &message);
                return PermissionAnswer::Deny { message };
            }
            let answer = self.ask_person(&request, &active_run).await;
            if let PermissionAnswer::Deny { message } = &answer {
                active_run.recorder.permission_denied(id, tool, message);
            }
            answer
        })
    }

    fn mcp_message(&self, server: String, message: LineJson) -> BoxFuture<'_, Option<LineJson>> {
        Box::pin(async move {
            // `claude` may list tools before the first prompt; a tool call needs a run.
            let request = match Message::parse(message.as_str().as_bytes()) {
                Ok(Message::Request { id, method, .. }) => Some((id, method == "tools/call")),
                _ => None,
            };
            let acts = matches!(request, Some((_, true)));
            let is_refused = acts && self.require_active_run().is_none();
            match self.sdk_servers().filter(|_| !is_refused) {
                Some(sdk_servers) => {
                    let tell = self.notify_fn();
                    sdk_servers.handle_message(&server, &message, &tell).await
                }
                None => request.map(|(id, _)| {
                    Frame::error(&id.to_string(), -32_000, NO_RUN_MESSAGE, None).into_json()
                }),
            }
        })
    }

    fn hook_event(&self, event: String, payload: Map<String, Value>) -> BoxFuture<'_, Value> {
        Box::pin(async move {
            // Hook events while no run is bound are dropped and are no protocol violation.
            let Some(active_run) = self.active_run.lock().clone() else { return json!({}) };
            let payload = active_run.recorder.hook_event(&event, payload);
            let said = active_run.recorder.run_hooks(&event, &payload).await;
            said.map_or_else(|| json!({}), |said| said.output(&event))
        })
    }

    fn observe(&self, observation: &Observation<'_>) {
        self.last_activity.send_replace(Instant::now());
        let Some(active_run) = self.require_active_run() else { return };
        active_run.meter.observe(observation);
        let Some(status) = active_run.status.upgrade() else { return };
        match observation {
            Observation::SessionStarted(init) => {
                active_run.recorder.turn_started(init);
                let mut seen = active_run.observations.lock();
                seen.turn_began = true;
                seen.cwd = Some(init.cwd.clone());
                seen.clock.first_frame();
                status.set_activity_after_tool("thinking");
            }
            Observation::Text(_) => status.set_activity_after_tool("writing"),
            Observation::ToolStarted { tool_use_id, name, input, summary } => {
                active_run.file_call_began(tool_use_id, name, input);
                let mut seen = active_run.observations.lock();
                seen.tool_requested = true;
                seen.clock.tool_started();
                status.set_tool(summary);
            }
            Observation::ToolFinished { tool_use_id, is_error, text } => {
                active_run.recorder.tool_result(tool_use_id, *is_error, text);
                if let Some(call) = active_run.file_call_ended(tool_use_id).filter(|_| *is_error) {
                    self.rejected_unasked(&active_run, &call);
                }
                let mut seen = active_run.observations.lock();
                seen.tool_requested = true;
                seen.clock.tool_finished();
                status.set_activity_after_tool("thinking");
            }
            Observation::Turn { turns } => status.set_turns(*turns),
            Observation::ApiRetry { attempt, max_retries, error, .. } => {
                status.set_activity(&format!(
                    "waiting for the API: {error} (attempt {attempt} of {max_retries})"
                ));
            }
            Observation::PermissionDenied { tool_name, message } => {
                active_run.add_denial(tool_name, &shorten(&one_line(message), 200));
            }
            Observation::TurnFinished { cost_usd, turns } => {
                // Checked here because frames arrive in order: after this frame the next turn may begin at any time.
                let mut seen = active_run.observations.lock();
                seen.stale_result |= !take(&mut seen.turn_began);
                status.add_cost(*turns, *cost_usd);
            }
            Observation::MessageStarted
            | Observation::PartialContent
            | Observation::MessageEnded { .. } => {}
            Observation::StaleResult => {
                active_run.observations.lock().stale_result = true;
                // The frame may arrive after the run was judged; the process must not be reused then.
                self.violation.cancel();
            }
        }
    }
}

/// Returns `true` if the hook event is registered with the CLI as a callback.
///
/// Callbacks that would delay a turn are registered only if the agent has a hook for them; otherwise the recorder
/// derives the event from the output stream.
pub(crate) fn registers_callback(agent: &Agent, event: HookEvent) -> bool {
    !event.is_implied_by_output() || agent.has_hook_for(event.name())
}

/// Formats a progress notification, such as `books: 3 of 5 pages read`.
fn format_progress(server: &str, message: &Value) -> Option<String> {
    let params = message.get("params").filter(|_| {
        message.get("method").and_then(Value::as_str) == Some("notifications/progress")
    })?;
    // As a floating-point number, 5.0 is printed as 5.
    let number = |name: &str| params.get(name).and_then(Value::as_f64);
    let step = match (number("progress"), number("total")) {
        (Some(done), Some(total)) => format!("{done} of {total}"),
        (Some(done), None) => done.to_string(),
        (None, _) => String::new(),
    };
    let words = params.get("message").and_then(Value::as_str).unwrap_or_default();
    let said = [step.as_str(), words].join(" ");
    Some(format!("{server}: {}", said.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use test_case::test_case;

    #[test_case(&json!({ "progress": 3, "total": 5, "message": "pages read" }) => "books: 3 of 5 pages read")]
    #[test_case(&json!({ "progress": 0.5 }) => "books: 0.5")]
    #[test_case(&json!({ "message": "still at it" }) => "books: still at it")]
    fn progress_is_formatted(params: &Value) -> String {
        let message = json!({ "method": "notifications/progress", "params": params });
        format_progress("books", &message).unwrap()
    }
}
