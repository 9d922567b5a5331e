//! The tools `run_subagent` and `run_subagents`: definitions, arguments, runs, results.
//!
//! Descriptions are short because they are part of the caller's context. Claude Code shows the model the structured
//! content of a success and the text of an error. An error therefore carries its data twice: as text, and as
//! `_meta["adjutant/error"]` for programs.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, JsonObject, MetaObject,
    Tool,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::super::callers::{CallerResolver, McpResult, RequestContext};
use super::super::elicitation::{self, ElicitationMode, PendingRun, PendingRuns, RequestKey};
use super::call_context::{CallContext, report_progress};
use crate::api::{ReportsObject, round_usd};
use crate::catalog::Agent;
use crate::delegation::{Orchestrator, RunRequest, StatusSender};
use crate::identity::{AttestationError, Caller};
use crate::outcome::{Code, Failure, Outcome, Report};
use crate::server::http::HttpCaller;
use crate::util::{one_line, shorten};

/// Time that a result waits for the progress notifications before it.
const LAST_PROGRESS_TIMEOUT: Duration = Duration::from_millis(500);

pub(crate) const RUN_SUBAGENT: &str = "run_subagent";
pub(crate) const RUN_SUBAGENTS: &str = "run_subagents";

/// Tasks of one `run_subagents` call: each becomes a run, and one request must not queue thousands.
pub(crate) const MAX_TASKS: usize = 64;
/// Value of `anthropic/maxResultSizeChars`, above which Claude Code truncates a result.
const MAX_RESULT_CHARS: u32 = 500_000;
/// Characters of an agent's description in the tool description.
const MAX_DESCRIPTION_CHARS: usize = 200;

/// Returns both tools; the description of `run_subagent` lists `agents`.
fn definitions<'a>(agents: impl Iterator<Item = &'a Agent>) -> Vec<Tool> {
    let description = run_subagent_description(agents);
    let one = define_tool(RUN_SUBAGENT, description, task_schema(true), task_output_schema());
    let many = define_tool(
        RUN_SUBAGENTS,
        "Run several run_subagent tasks side by side; results in the same order.".to_owned(),
        json!({
            "type": "object",
            "properties": { "tasks": {
                "type": "array", "minItems": 1, "maxItems": MAX_TASKS, "items": task_schema(false),
            } },
            "required": ["tasks"],
        }),
        json!({
            "type": "object",
            "properties": { "results": { "type": "array", "items": { "type": "object" } } },
            "required": ["results"],
        }),
    );
    vec![one, many]
}

fn run_subagent_description<'a>(agents: impl Iterator<Item = &'a Agent>) -> String {
    let lines = agents.map(|agent| {
        let about = shorten(&one_line(&agent.description), MAX_DESCRIPTION_CHARS);
        format!("\n- {}: {about}", agent.name)
    });
    match lines.collect::<String>().as_str() {
        "" => "Hand a task to a specialist agent. None can be called now.".to_owned(),
        lines => {
            format!("Hand a task to a specialist agent with rights and tools of its own.{lines}")
        }
    }
}

fn task_schema(with_fresh: bool) -> Value {
    let mut properties = json!({
        "agent_name": { "type": "string" },
        "prompt": { "type": "string", "description": "The whole task: it sees nothing else" },
        "context": { "type": "string", "description": "Background, kept apart" },
        "session_key": { "type": "string", "description": "Which conversation" },
    });
    if let (true, Some(properties)) = (with_fresh, properties.as_object_mut()) {
        let fresh = json!({ "type": "boolean", "description": "Start it over" });
        properties.insert("fresh".to_owned(), fresh);
    }
    json!({ "type": "object", "properties": properties, "required": ["agent_name", "prompt"] })
}

fn task_output_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "result": { "type": "string" },
            "agent": { "type": "string" },
            "duration_ms": { "type": "integer" },
            "output": {},
            "session_id": { "type": "string" },
            "cost_usd": { "type": "number" },
            "turns": { "type": "integer" },
            "run_id": { "type": "string" },
            "denials": { "type": "array" },
            "note": { "type": "string" },
        },
        "required": ["result", "agent", "duration_ms"],
    })
}

fn define_tool(name: &'static str, text: String, input: Value, output: Value) -> Tool {
    let mut tool = Tool::new(name, text, json_object(input));
    tool.output_schema = Some(json_object(output));
    let mut meta = MetaObject::default();
    meta.insert("anthropic/maxResultSizeChars".to_owned(), MAX_RESULT_CHARS.into());
    tool.meta = Some(meta);
    tool
}

fn json_object(value: Value) -> Arc<JsonObject> {
    Arc::new(match value {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    })
}

/// Runs agents for the clients of one connection or HTTP server.
#[derive(Clone)]
pub(crate) struct Delegation {
    pub(crate) orchestrator: Arc<Orchestrator>,
    callers: CallerResolver,
    pending_runs: PendingRuns,
}

impl Delegation {
    pub(crate) fn new(orchestrator: Arc<Orchestrator>, callers: CallerResolver) -> Self {
        Self { orchestrator, callers, pending_runs: PendingRuns::default() }
    }

    /// The tools with the agents that `caller` may call.
    pub(crate) fn tools_for(&self, caller: &Caller) -> Vec<Tool> {
        definitions(self.orchestrator.callable_agents(caller).iter().map(AsRef::as_ref))
    }

    /// Answers a call. A call that is repeated with answers of a person resumes its run.
    pub(crate) async fn call_tool(
        &self,
        mut request: CallToolRequestParams,
        context: &RequestContext,
    ) -> McpResult<CallToolResponse> {
        let state = request.request_state.take();
        let answers = request.input_responses.take().unwrap_or_default();
        let request_key = RequestKey {
            connection: self.callers.sender_of(&context.extensions).name,
            tool: request.name.into_owned(),
            arguments: request.arguments.unwrap_or_default(),
        };
        if let Some(state) = state {
            // The caller is the one of the first request.
            let pending_run = self.pending_runs.resume(&state, &request_key, &answers)?;
            return Ok(self.pending_runs.wait(pending_run, context).await);
        }
        match self.callers.resolve(&request_key.tool, context) {
            Ok(caller) => Ok(self.delegate(request_key, caller, context).await),
            Err(error) => Ok(run_subagent_result(&self.reject_attestation(error).await).into()),
        }
    }

    /// Audits a call whose `arguments` are not an object.
    pub(crate) async fn reject_malformed(&self, tool: &str, context: &RequestContext) {
        match self.callers.resolve(tool, context) {
            Ok(caller) => {
                let failure = invalid_arguments("`arguments` is not an object");
                self.orchestrator.reject(&caller, "", failure).await
            }
            Err(error) => self.reject_attestation(error).await,
        };
    }

    async fn reject_attestation(&self, error: AttestationError) -> Report {
        let failure = Failure::new(Code::IdentityMismatch, error.to_string(), "call it again");
        self.orchestrator.reject(&self.callers.default_caller, "", failure).await
    }

    /// Runs agents; approval questions go to the client if it supports elicitation.
    async fn delegate(
        &self,
        request_key: RequestKey,
        caller: Caller,
        context: &RequestContext,
    ) -> CallToolResponse {
        let delegation = self.clone();
        match elicitation::elicitation_mode(context) {
            ElicitationMode::DuringCall(asker) => {
                let call = CallContext::from_request(caller, asker, context);
                delegation.run_tool(request_key, call).await.into()
            }
            ElicitationMode::InputRequired => {
                let run = |request_key, call| delegation.run_tool(request_key, call);
                let pending_run = PendingRun::start(request_key, caller, context, run);
                self.pending_runs.wait(pending_run, context).await
            }
        }
    }

    async fn run_tool(self, request_key: RequestKey, call: CallContext) -> CallToolResult {
        match request_key.tool.as_str() {
            RUN_SUBAGENTS => self.run_subagents(request_key.arguments, &call).await,
            _ => self.run_subagent(request_key.arguments, &call).await,
        }
    }

    async fn run_subagent(&self, arguments: JsonObject, call: &CallContext) -> CallToolResult {
        let agent =
            arguments.get("agent_name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let report = match parse_arguments::<TaskArguments>(arguments) {
            Ok(task) => self.run_task(task, call).await,
            Err(failure) => self.orchestrator.reject(&call.caller, &agent, failure).await,
        };
        run_subagent_result(&report)
    }

    async fn run_subagents(&self, arguments: JsonObject, call: &CallContext) -> CallToolResult {
        match parse_arguments(arguments).and_then(TasksArguments::check_count) {
            Ok(tasks) => {
                let runs = tasks.into_iter().map(|task| self.run_task(task, call));
                run_subagents_result(&join_all(runs).await)
            }
            Err(failure) => {
                let report = self.orchestrator.reject(&call.caller, "", failure).await;
                run_subagent_result(&report)
            }
        }
    }

    /// Runs one task, with progress notifications if the client asked for them.
    ///
    /// A claimed `agent_id` that differs from the resolved caller is rejected with `IDENTITY_MISMATCH`.
    async fn run_task(&self, task: TaskArguments, call: &CallContext) -> Report {
        let CallContext { caller, approval_prompt: asker, cancellation: cancel, .. } = call.clone();
        let (request, claimed) = task.into_request();
        let permit = match claimed.filter(|claimed| *claimed != caller.name) {
            Some(claimed) => Err(identity_mismatch(&caller, &claimed)),
            None => HttpCaller::acquire_run_permit(&call.extensions),
        };
        let _permit = match permit {
            Ok(permit) => permit,
            Err(failure) => {
                return self.orchestrator.reject(&caller, &request.agent_name, failure).await;
            }
        };
        let (status_sender, status) = StatusSender::new();
        let mut progress_task = tokio::spawn(report_progress(call.progress_sink.clone(), status));
        let report = self.orchestrator.run(request, caller, status_sender, cancel, asker).await;
        // No progress may follow the result.
        if timeout(LAST_PROGRESS_TIMEOUT, &mut progress_task).await.is_err() {
            progress_task.abort();
        }
        report
    }
}

/// The arguments of `run_subagent`, and one task of `run_subagents`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskArguments {
    agent_name: String,
    prompt: String,
    context: Option<String>,
    session_key: Option<String>,
    #[serde(default)]
    fresh: bool,
    /// Compared with the resolved caller; never used as an identity.
    agent_id: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TasksArguments {
    tasks: Vec<TaskArguments>,
}

impl TasksArguments {
    /// Returns the tasks if there are 1 to [`MAX_TASKS`].
    fn check_count(self) -> Result<Vec<TaskArguments>, Failure> {
        let most = MAX_TASKS;
        let (message, help) = match self.tasks.len() {
            0 => ("`tasks` is empty".to_owned(), "give at least one task"),
            count if count > most => (
                format!("`tasks` has {count} tasks, and one call takes at most {most}"),
                "split them into several calls",
            ),
            _ => return Ok(self.tasks),
        };
        Err(Failure::new(Code::InvalidArgument, message, help))
    }
}

impl TaskArguments {
    /// Splits the task into the request and the claimed `agent_id`, if not empty.
    fn into_request(self) -> (RunRequest, Option<String>) {
        let request = RunRequest {
            agent_name: self.agent_name,
            prompt: self.prompt,
            context: self.context,
            session_key: self.session_key,
            fresh: self.fresh,
        };
        (request, self.agent_id.filter(|claimed| !claimed.is_empty()))
    }
}

fn parse_arguments<T: DeserializeOwned>(arguments: JsonObject) -> Result<T, Failure> {
    serde_json::from_value(Value::Object(arguments))
        .map_err(|error| invalid_arguments(&format!("the arguments do not fit: {error}")))
}

fn invalid_arguments(message: &str) -> Failure {
    let help = "call it with the arguments that its schema lists";
    Failure::new(Code::InvalidArgument, message, help)
}

fn identity_mismatch(caller: &Caller, claimed: &str) -> Failure {
    let claimed = shorten(&one_line(claimed), 80);
    let message = format!("this call comes from {}, not from `{claimed}`", caller.describe());
    Failure::new(Code::IdentityMismatch, message, "leave agent_id out")
}

/// The result of `run_subagent`: structured content, or an `isError` result if the run failed.
fn run_subagent_result(report: &Report) -> CallToolResult {
    match &report.outcome {
        Outcome::Answered(_) => CallToolResult::structured(json!(report.to_object())),
        Outcome::Failed(failure) => {
            let text = ContentBlock::text(error_text(report, failure));
            let mut result = CallToolResult::error(vec![text]);
            let meta = result.meta.insert(MetaObject::default());
            meta.insert("adjutant/error".to_owned(), json!(report.to_object()));
            result
        }
    }
}

/// The result of `run_subagents`, never `isError`: a failed run is one entry of `results`.
fn run_subagents_result(reports: &[Report]) -> CallToolResult {
    let results = reports.iter().map(Report::to_object).collect();
    CallToolResult::structured(json!(ReportsObject { results }))
}

/// The text of a failed run, for the model.
fn error_text(report: &Report, failure: &Failure) -> String {
    let mut text = failure.full_message();
    for note in &report.notes {
        text.push_str(&format!("\nnote: {note}"));
    }
    for denial in &report.denials {
        text.push_str(&format!("\ndenied: {} ({})", denial.tool, denial.rule));
    }
    if let Some(session) = &report.session_id {
        text.push_str(&format!("\nsession_id: {session}"));
    }
    if let Some(cost) = report.cost_usd {
        text.push_str(&format!("\ncost_usd: {}", round_usd(cost)));
    }
    if let Some(partial) = &failure.partial {
        let head = format!("partial (what `{}` had written, not its answer)", report.agent);
        text.push_str(&format!("\n\n{head}:\n{partial}"));
    }
    text
}
