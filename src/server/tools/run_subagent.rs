//! The tools `run_subagent` and `run_subagents`: definitions, arguments, runs.
//!
//! Descriptions are short because they are part of the caller's context.

use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ErrorData, JsonObject, MetaObject,
    Tool,
};
use rmcp::service::RequestContext;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::super::callers::CallerResolver;
use super::super::elicitation::{self, ElicitationMode, PendingRun, PendingRuns, RequestKey};
use super::answer;
use super::call_context::{CallContext, report_progress};
use crate::catalog::Agent;
use crate::delegation::{Orchestrator, RunRequest, StatusSender};
use crate::identity::{AttestationError, Caller};
use crate::outcome::{Code, Failure, Report};
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
    let one = define_tool(
        RUN_SUBAGENT,
        run_subagent_description(agents),
        task_schema(true),
        run_subagent_output_schema(),
    );
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
    let lines: Vec<String> = agents
        .map(|agent| {
            let about = shorten(&one_line(&agent.description), MAX_DESCRIPTION_CHARS);
            format!("\n- {}: {about}", agent.name)
        })
        .collect();
    if lines.is_empty() {
        return "Hand a task to a specialist agent. None can be called now.".to_owned();
    }
    format!("Hand a task to a specialist agent with rights and tools of its own.{}", lines.concat())
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

fn run_subagent_output_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "result": { "type": "string" },
            "agent": { "type": "string" },
            "duration_ms": { "type": "integer" },
            "output": {},
            "session_id": { "type": "string" },
            "cost_usd": { "type": "number" },
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
    pending_runs: PendingRuns,
}

impl Delegation {
    pub(crate) fn new(orchestrator: Arc<Orchestrator>) -> Self {
        Self { orchestrator, pending_runs: PendingRuns::default() }
    }

    /// The tools with the agents that `caller` may call.
    pub(crate) fn tools_for(&self, caller: &Caller) -> Vec<Tool> {
        definitions(self.orchestrator.callable_agents(caller).iter().map(AsRef::as_ref))
    }

    /// Answers a call. A call that is repeated with answers of a person resumes its run.
    pub(crate) async fn call_tool(
        &self,
        mut request: CallToolRequestParams,
        callers: &CallerResolver,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let state = request.request_state.take();
        let answers = request.input_responses.take().unwrap_or_default();
        let request_key = RequestKey {
            connection: callers.sender_of(&context.extensions).name,
            tool: request.name.into_owned(),
            arguments: request.arguments.unwrap_or_default(),
        };
        if let Some(state) = state {
            // The caller is the one of the first request.
            let pending_run = self.pending_runs.resume(&state, &request_key, &answers)?;
            return Ok(self.pending_runs.wait(pending_run, context).await);
        }
        match callers.resolve(&request_key.tool, context) {
            Ok(caller) => Ok(self.delegate(request_key, caller, context).await),
            Err(error) => {
                let report = self.reject_attestation(callers, error).await;
                Ok(answer::run_subagent_result(&report).into())
            }
        }
    }

    /// Audits a call whose `arguments` are not an object.
    pub(crate) async fn reject_malformed(
        &self,
        callers: &CallerResolver,
        caller: Result<Caller, AttestationError>,
    ) {
        match caller {
            Ok(caller) => self.orchestrator.reject(&caller, "", arguments_not_an_object()).await,
            Err(error) => self.reject_attestation(callers, error).await,
        };
    }

    async fn reject_attestation(
        &self,
        callers: &CallerResolver,
        error: AttestationError,
    ) -> Report {
        self.orchestrator.reject(&callers.default_caller, "", attestation_failure(error)).await
    }

    /// Runs agents; approval questions go to the client if it supports elicitation.
    async fn delegate(
        &self,
        request_key: RequestKey,
        caller: Caller,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResponse {
        let delegation = self.clone();
        match elicitation::elicitation_mode(context) {
            ElicitationMode::DuringCall(asker) => {
                let line = CallContext::from_request(caller, asker, context);
                delegation.run_tool(request_key, line).await.into()
            }
            ElicitationMode::InputRequired => {
                let run = |request_key, line| delegation.run_tool(request_key, line);
                let pending_run = PendingRun::start(request_key, caller, context, run);
                self.pending_runs.wait(pending_run, context).await
            }
        }
    }

    async fn run_tool(self, request_key: RequestKey, line: CallContext) -> CallToolResult {
        match request_key.tool.as_str() {
            RUN_SUBAGENTS => self.run_subagents(request_key.arguments, &line).await,
            _ => self.run_subagent(request_key.arguments, &line).await,
        }
    }

    async fn run_subagent(&self, arguments: JsonObject, line: &CallContext) -> CallToolResult {
        let agent = arguments.get("agent_name").and_then(Value::as_str).unwrap_or_default();
        let agent = agent.to_owned();
        let report = match parse_arguments::<TaskArguments>(arguments) {
            Ok(task) => self.run_task(task, line).await,
            Err(failure) => self.orchestrator.reject(&line.caller, &agent, failure).await,
        };
        answer::run_subagent_result(&report)
    }

    async fn run_subagents(&self, arguments: JsonObject, line: &CallContext) -> CallToolResult {
        let tasks = match parse_arguments::<TasksArguments>(arguments)
            .and_then(TasksArguments::check_count)
        {
            Ok(tasks) => tasks,
            Err(failure) => {
                return answer::run_subagent_result(
                    &self.orchestrator.reject(&line.caller, "", failure).await,
                );
            }
        };
        let runs = tasks.into_iter().map(|task| self.run_task(task, line));
        answer::run_subagents_result(&futures_util::future::join_all(runs).await)
    }

    /// Runs one task, with progress notifications if the client asked for them.
    ///
    /// A claimed `agent_id` that differs from the resolved caller is rejected with `IDENTITY_MISMATCH`.
    async fn run_task(&self, task: TaskArguments, line: &CallContext) -> Report {
        let CallContext { caller, approval_prompt: asker, cancellation: cancel, .. } = line.clone();
        let (request, claimed) = task.into_request();
        if let Some(claimed) = claimed.filter(|claimed| *claimed != caller.name) {
            let failure = identity_mismatch(&caller, &claimed);
            return self.orchestrator.reject(&caller, &request.agent_name, failure).await;
        }
        let _slot = match HttpCaller::acquire_run_permit(&line.extensions) {
            Ok(slot) => slot,
            Err(failure) => {
                return self.orchestrator.reject(&caller, &request.agent_name, failure).await;
            }
        };
        let (status_sender, status) = StatusSender::new();
        let mut progress_task = tokio::spawn(report_progress(line.progress_sink.clone(), status));
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
    serde_json::from_value(Value::Object(arguments)).map_err(|error| {
        let help = "call it with the arguments that its schema lists";
        Failure::new(Code::InvalidArgument, format!("the arguments do not fit: {error}"), help)
    })
}

fn arguments_not_an_object() -> Failure {
    let help = "call it with the arguments that its schema lists";
    Failure::new(Code::InvalidArgument, "`arguments` is not an object".to_owned(), help)
}

fn identity_mismatch(caller: &Caller, claimed: &str) -> Failure {
    let claimed = shorten(&one_line(claimed), 80);
    let message = format!("this call comes from {}, not from `{claimed}`", caller.describe());
    Failure::new(Code::IdentityMismatch, message, "leave agent_id out")
}

fn attestation_failure(error: AttestationError) -> Failure {
    Failure::new(Code::IdentityMismatch, error.to_string(), "call it again")
}
