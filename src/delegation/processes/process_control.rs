//! What Adjutant answers when an agent's process asks: may this tool run, and what do its servers say?

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::{interval, sleep};
use tokio_util::sync::CancellationToken;

use super::approvals::{Approvals, Verdict};
use super::ground::comes_by_pipe;
use super::hook_answer::Together;
use super::meter::Meter;
use super::outlet::Outlet;
use super::recorder::Recorder;
use super::status::StatusBoard;
use super::timing::Clock;
use crate::base::{RunId, one_line, shorten};
use crate::catalog::Agent;
use crate::claude::{
    ANSWER_TOOL, Approval, ApprovalRequest, BoxFuture, Handle, HookEvent, HookVerdict, Observation,
    Parent, ResultFrame, ToolUse,
};
use crate::gateway::{GatewayError, Tell, Tunnel};
use crate::outcome::Denial;
use crate::policy::{Evaluation, judge_builtin, judge_mcp_tool};

/// How often a run that waits for a person shows that it lives.
const MOST_SILENCE: Duration = Duration::from_secs(1);
const LEAST_SILENCE: Duration = Duration::from_millis(1);
/// How long a process that has used too much may take to end before it is told why.
const END_PATIENCE: Duration = Duration::from_secs(5);
const NOBODY: &str = "Denied by Adjutant: no call is going on.";

/// Our side of a process's pipe. It lives as long as the process; what it sees and answers is for the run that uses it now.
pub(super) struct Bridge {
    agent: Arc<Agent>,
    /// `None` for an agent without servers, and between two runs that share no server.
    tunnel: Mutex<Option<Arc<Tunnel>>>,
    outlet: Arc<Outlet>,
    /// `None` while no run uses the process.
    errand: Mutex<Option<Arc<Errand>>>,
    last_sign: watch::Sender<Instant>,
    /// Cancelled when the process did something while no run used it.
    odd: CancellationToken,
}

/// What a process does for one run: where it is shown, and what was seen of it.
pub(super) struct Errand {
    board: StatusBoard,
    /// A process that waits for its first run has neither yet.
    recorder: Option<Arc<Recorder>>,
    approvals: Option<Arc<Approvals>>,
    /// Counts what it uses, from the run's first word on.
    meter: OnceLock<Arc<Meter>>,
    seen: Mutex<Seen>,
}

impl Errand {
    pub(super) fn new(
        board: StatusBoard,
        recorder: Option<Arc<Recorder>>,
        approvals: Option<Arc<Approvals>>,
    ) -> Arc<Self> {
        let (meter, seen) = (OnceLock::new(), Mutex::default());
        Arc::new(Self { board, recorder, approvals, meter, seen })
    }

    /// What the run uses is counted by this meter.
    pub(super) fn metered_by(&self, meter: Arc<Meter>) {
        let _ = self.meter.set(meter);
    }

    /// Why nothing more may be done, once the run has used too much: the process may ask before it is ended.
    async fn used_up(&self) -> Option<String> {
        let meter = self.meter.get()?;
        meter.settled().await;
        meter.over().map(|failure| failure.sentence())
    }

    /// A tool of a server says how far it is.
    pub(super) fn tool_says(&self, words: &str) {
        self.board.doing(words);
    }

    /// What was seen so far.
    pub(super) fn seen(&self) -> Seen {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn record<R>(&self, what: impl FnOnce(&Recorder) -> R) -> Option<R> {
        self.recorder.as_deref().map(what)
    }

    /// What hooks of the user say; `None` where none is meant.
    async fn ask_hooks(
        &self,
        event: &str,
        payload: Option<&Map<String, Value>>,
    ) -> Option<Together> {
        self.recorder.as_deref()?.ask_hooks(event, payload?).await
    }

    fn note(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// What was seen of a run, for its report.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Calls that were refused.
    pub(super) denials: Vec<Denial>,
    /// Whether any tool was asked for, which may have run: from then on nothing is tried twice.
    pub(super) tool_ran: bool,
    /// Whether the process said that the turn began which is going on.
    began: bool,
    /// Whether a result came that no turn was waiting for, or that was there before its turn began.
    pub(super) stale: bool,
    /// Where the time of its turns goes.
    pub(super) clock: Clock,
}

impl Bridge {
    /// The bridge of a process that no run uses yet.
    pub(super) fn new(agent: Arc<Agent>, tunnel: Option<Arc<Tunnel>>) -> Arc<Self> {
        let (last_sign, _) = watch::channel(Instant::now());
        let (outlet, odd) = (Arc::default(), CancellationToken::new());
        let tunnel = Mutex::new(tunnel);
        Arc::new(Self { agent, tunnel, outlet, errand: Mutex::default(), last_sign, odd })
    }

    /// The process is ready: what its servers say on their own finds the way to it from now on.
    pub(super) fn opened(&self, handle: Handle) {
        self.outlet.open(handle);
        if let Some(tunnel) = self.tunnel() {
            tunnel.tell_changes(&self.tell());
        }
    }

    fn tunnel(&self) -> Option<Arc<Tunnel>> {
        self.tunnel.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether its agent's servers can be reached, if it has any.
    pub(super) fn is_connected(&self) -> bool {
        self.agent.servers.is_empty() || self.tunnel().is_some()
    }

    /// From now on these are the servers at the other end.
    pub(super) fn connect(&self, tunnel: Arc<Tunnel>) {
        tunnel.tell_changes(&self.tell());
        *self.tunnel.lock().unwrap_or_else(PoisonError::into_inner) = Some(tunnel);
    }

    /// The way into the process for its servers; progress is shown in the run that uses it now.
    fn tell(&self) -> Tell {
        self.outlet.tell(self.current().clone(), self.last_sign.clone())
    }

    /// The text behind a task that begins with a prompt of one of the agent's servers.
    pub(super) async fn prompt_behind(&self, task: &str) -> Option<Result<String, GatewayError>> {
        self.tunnel()?.prompt_behind(task).await
    }

    /// The agent is about to be told this.
    pub(super) fn prompts(&self, message: &str) {
        if let Some(errand) = self.current().clone()
            && !comes_by_pipe(&self.agent, HookEvent::UserPromptSubmit)
        {
            errand.record(|recorder| recorder.prompted(message));
        }
    }

    /// The agent has come to the end of a turn.
    pub(super) fn has_stopped(&self, result: &ResultFrame) {
        if let Some(errand) = self.current().clone()
            && result.is_success()
            && !comes_by_pipe(&self.agent, HookEvent::Stop)
        {
            errand.record(|recorder| recorder.stopped(result));
        }
    }

    /// From now on it is this run that uses the process.
    pub(super) fn attend(&self, run: RunId, errand: &Arc<Errand>) {
        if let Some(tunnel) = self.tunnel() {
            tunnel.serve(run);
        }
        self.last_sign.send_replace(Instant::now());
        *self.current() = Some(Arc::clone(errand));
    }

    /// No run uses the process any more; whatever it does now is odd. Servers of the run alone end with it.
    pub(super) fn rest(&self) {
        *self.current() = None;
        if self.agent.servers.iter().any(|server| server.per_run) {
            self.tunnel.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }

    /// Cancelled when the process did something while no run used it.
    pub(super) fn oddity(&self) -> CancellationToken {
        self.odd.clone()
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<Errand>>> {
        self.errand.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The run that uses the process; without one, what it does is odd.
    fn errand(&self) -> Option<Arc<Errand>> {
        let errand = self.current().clone();
        if errand.is_none() {
            self.odd.cancel();
        }
        errand
    }

    /// When the process last gave a sign of life.
    pub(super) fn signs(&self) -> watch::Receiver<Instant> {
        self.last_sign.subscribe()
    }

    fn refuse(&self, tool: &str, rule: &str) {
        let denial = Denial { tool: tool.to_owned(), rule: rule.to_owned() };
        let Some(errand) = self.errand() else { return };
        errand.note(|seen| {
            if !seen.denials.contains(&denial) {
                seen.denials.push(denial);
            }
        });
    }

    /// A refusal that no person had a part in, for the audit log; those that were asked about have their line by then.
    fn write_down(&self, errand: &Errand, call: (&str, &str), input: &Value, reason: &str) {
        if let Some(approvals) = &errand.approvals {
            approvals.refused(&self.agent, call, input, reason);
        }
    }

    /// Whole tools by the agent's own policy, whatever Claude Code's rules would say.
    fn judge(&self, tool: &str) -> Evaluation {
        match tool.strip_prefix("mcp__").and_then(|rest| rest.split_once("__")) {
            Some((server, name)) => match self.tunnel() {
                Some(tunnel) => tunnel.judge(server, name),
                None => judge_mcp_tool(&self.agent, server, name, None),
            },
            None => judge_builtin(&self.agent, tool),
        }
    }

    fn judge_use(&self, tool_use: &ToolUse) -> HookVerdict {
        let verdict = self.judge(&tool_use.tool_name);
        // With `--json-schema` the CLI has a tool of its own that does nothing but take the answer.
        let is_answer = tool_use.tool_name == ANSWER_TOOL && self.agent.output.schema.is_some();
        if is_answer || verdict.is_allowed() {
            return HookVerdict::Proceed;
        }
        self.refuse(&tool_use.tool_name, verdict.sentence());
        HookVerdict::Deny { reason: verdict.sentence().to_owned() }
    }

    /// Asks a person, where one can be asked. Others go on meanwhile: each question has a task of its own.
    async fn answer(&self, request: &ApprovalRequest, errand: &Errand) -> Approval {
        let Some(approvals) = &errand.approvals else {
            let message = "Denied by Adjutant: no run is going on".to_owned();
            return Approval::Deny { message };
        };
        let deciding = approvals.decide(&self.agent, request, &errand.board);
        match self.awake(deciding).await {
            Verdict::Allowed => Approval::Allow { updated_input: request.input.clone() },
            Verdict::Denied { rule, message } => {
                self.refuse(&request.tool_name, &rule);
                Approval::Deny { message }
            }
        }
    }

    /// Waits for a person, who may take longer than a process may be silent.
    async fn awake<T>(&self, waiting: impl Future<Output = T>) -> T {
        let longest = self.agent.limits.idle_timeout.unwrap_or(MOST_SILENCE);
        let mut signs = interval((longest / 2).clamp(LEAST_SILENCE, MOST_SILENCE));
        tokio::pin!(waiting);
        loop {
            tokio::select! {
                done = &mut waiting => return done,
                _ = signs.tick() => drop(self.last_sign.send_replace(Instant::now())),
            }
        }
    }
}

impl Parent for Bridge {
    fn pre_tool_use(&self, tool_use: ToolUse) -> BoxFuture<'_, HookVerdict> {
        Box::pin(async move {
            let Some(errand) = self.errand() else {
                return HookVerdict::Deny { reason: NOBODY.to_owned() };
            };
            let payload = errand.record(|recorder| recorder.tool_wanted(&tool_use));
            let used_up = errand.used_up().await;
            let is_over = used_up.is_some();
            let mut verdict = match used_up {
                Some(reason) => HookVerdict::Stop { reason },
                None => self.judge_use(&tool_use),
            };
            if verdict == HookVerdict::Proceed {
                // Hooks of the user can only take away: they are asked about what may be.
                let said = errand.ask_hooks("PreToolUse", payload.as_ref()).await;
                verdict = said.map_or(verdict, Together::verdict);
                if let Some(reason) = verdict.refusal() {
                    self.refuse(&tool_use.tool_name, &shorten(&one_line(reason), 200));
                }
            }
            if let Some(reason) = verdict.refusal() {
                let (id, tool) = (&tool_use.tool_use_id, &tool_use.tool_name);
                errand.record(|recorder| recorder.denied(id, tool, reason));
                self.write_down(&errand, (tool, id), &tool_use.input, reason);
            }
            if is_over {
                // Told no, it would ask the model what to do instead, which costs more: it is ended first.
                sleep(END_PATIENCE).await;
            }
            verdict
        })
    }

    fn can_use_tool(&self, request: ApprovalRequest) -> BoxFuture<'_, Approval> {
        Box::pin(async move {
            let Some(errand) = self.errand() else {
                return Approval::Deny { message: NOBODY.to_owned() };
            };
            let payload = errand.record(|recorder| recorder.permission_asked(&request));
            let said = errand.ask_hooks("PermissionRequest", payload.as_ref()).await;
            let approval = match said.and_then(Together::refusal) {
                Some(message) => {
                    let (tool, id) = (&request.tool_name, &request.tool_use_id);
                    self.refuse(tool, &shorten(&one_line(&message), 200));
                    self.write_down(&errand, (tool, id), &request.input, &message);
                    Approval::Deny { message }
                }
                None => self.answer(&request, &errand).await,
            };
            if let Approval::Deny { message } = &approval {
                let (id, tool) = (&request.tool_use_id, &request.tool_name);
                errand.record(|recorder| recorder.denied(id, tool, message));
            }
            approval
        })
    }

    fn mcp_message(&self, server: String, message: Value) -> BoxFuture<'_, Option<Value>> {
        Box::pin(async move {
            // Its lists may be asked for before the first prompt; what acts needs a run.
            let acts = message.get("method").and_then(Value::as_str) == Some("tools/call");
            if acts && self.errand().is_none() {
                let error = json!({ "code": -32000, "message": NOBODY });
                return Some(json!({ "jsonrpc": "2.0", "id": message.get("id"), "error": error }));
            }
            if let Some(tunnel) = self.tunnel() {
                let tell = self.tell();
                tunnel.message(&server, &message, &tell).await
            } else {
                let error = json!({ "code": -32000, "message": NOBODY });
                message.get("id").map(|id| json!({ "jsonrpc": "2.0", "id": id, "error": error }))
            }
        })
    }

    fn hook_event(&self, event: String, payload: Map<String, Value>) -> BoxFuture<'_, Value> {
        Box::pin(async move {
            // While nobody uses the process its hooks tell nobody's story, and are no reason to distrust it.
            let Some(errand) = self.current().clone() else { return json!({}) };
            let payload = errand.record(|recorder| recorder.hook(&event, payload));
            let said = errand.ask_hooks(&event, payload.as_ref()).await;
            said.map_or_else(|| json!({}), |said| said.output(&event))
        })
    }

    fn observe(&self, observation: &Observation<'_>) {
        self.last_sign.send_replace(Instant::now());
        let Some(errand) = self.errand() else { return };
        if let Some(meter) = errand.meter.get() {
            meter.observe(observation);
        }
        let board = &errand.board;
        match observation {
            Observation::SessionStarted(init) => {
                errand.record(|recorder| recorder.session_seen(init));
                errand.note(|seen| {
                    seen.began = true;
                    seen.clock.first_frame();
                });
                board.now("thinking");
            }
            Observation::Text(_) => board.now("writing"),
            Observation::ToolStarted { summary, .. } => {
                errand.note(|seen| {
                    seen.tool_ran = true;
                    seen.clock.tool_started();
                });
                board.tool(summary);
            }
            Observation::ToolFinished { tool_use_id, is_error, text } => {
                errand.record(|recorder| recorder.tool_seen(tool_use_id, *is_error, text));
                errand.note(|seen| {
                    seen.tool_ran = true;
                    seen.clock.tool_finished();
                });
                board.now("thinking");
            }
            Observation::Turn { turns } => board.turns(*turns),
            Observation::ApiRetry { attempt, max_retries, error, .. } => {
                board.doing(&format!(
                    "waiting for the API: {error} (attempt {attempt} of {max_retries})"
                ));
            }
            Observation::PermissionDenied { tool_name, message } => {
                self.refuse(tool_name, &shorten(&one_line(message), 200));
            }
            Observation::TurnFinished { cost_usd, turns } => {
                // Looked at here, where frames come one after the other: a moment later the turn may have begun.
                errand.note(|seen| seen.stale |= !std::mem::take(&mut seen.began));
                board.spent(*turns, *cost_usd);
            }
            Observation::MessageStarted | Observation::Writing | Observation::Spent { .. } => {}
            Observation::StaleResult => {
                errand.note(|seen| seen.stale = true);
                // It may come after this run was judged: then it speaks against the next one's process.
                self.odd.cancel();
            }
        }
    }
}
