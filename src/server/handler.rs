//! The MCP server: words in, words out. It decides nothing.

use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ErrorData, JsonObject,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, SubscriptionFilter,
    Tool,
};
use rmcp::service::{NotificationContext, Peer, RequestContext, SubscriptionContext};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{interval, timeout};

use super::asking::{self, Way};
use super::fast_lane::Desk;
use super::guest::Guest;
use super::line::Line;
use super::rounds::{Errand, Matter, Rounds};
use super::who::{ATTEST, Callers, no_such_tool};
use super::{answer, gateway_offers, gateway_tools, log_messages, offer_changes, progress, tools};
use crate::base::{one_line, shorten};
use crate::call::{Orchestrator, Request, StatusBoard};
use crate::gateway::{Gateway, LogRelay};
use crate::identity::{Caller, Doubt};
use crate::outcome::{Code, Failure, Report};

/// How long an answer waits for the last progress before it.
const LAST_NEWS: Duration = Duration::from_millis(500);

/// How often it is looked whether a client that is told about tools is still there.
const LOOK_AGAIN: Duration = Duration::from_secs(20);

/// What one connection of a caller sees.
#[derive(Clone)]
pub(super) struct Handler {
    orchestrator: Arc<Orchestrator>,
    gateway: Arc<Gateway>,
    callers: Callers,
    /// How the client hears what servers log; `None` where there are several.
    logs: Option<Arc<LogRelay>>,
    rounds: Rounds,
}

impl Handler {
    pub(super) fn new(
        orchestrator: Arc<Orchestrator>,
        gateway: Arc<Gateway>,
        callers: Callers,
        logs: Option<Arc<LogRelay>>,
    ) -> Self {
        Self { orchestrator, gateway, callers, logs, rounds: Rounds::default() }
    }

    fn tools(&self, caller: &Caller) -> Vec<Tool> {
        let agents = self.orchestrator.callable_by(caller);
        let mut tools = tools::definitions(agents.iter().map(AsRef::as_ref));
        if self.gateway.has_servers() {
            tools.extend(gateway_tools::definitions(self.gateway.debug()));
        }
        tools
    }

    /// Runs agents, asking the person behind the caller where an agent needs that.
    async fn delegate(
        &self,
        request: CallToolRequestParams,
        caller: Caller,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let matter = self.matter(request, context);
        let handler = self.clone();
        match asking::way(context) {
            Way::Within(asker) => {
                let line = Line::within(caller, asker, context);
                Ok(handler.run_tool(matter, line).await.into())
            }
            Way::Again => {
                let run = |matter, line| handler.run_tool(matter, line);
                Ok(self.rounds.go_on(Errand::begin(matter, caller, context, run), context).await)
            }
        }
    }

    /// The client comes back with what a person said. Who called was settled when the call began.
    async fn go_on(
        &self,
        state: &str,
        mut request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let answers = request.input_responses.take().unwrap_or_default();
        let errand = self.rounds.resume(state, &self.matter(request, context), &answers)?;
        Ok(self.rounds.go_on(errand, context).await)
    }

    fn matter(
        &self,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Matter {
        let guest = Guest::caller(&context.extensions);
        Matter {
            connection: guest.unwrap_or_else(|| self.callers.usual.clone()).name,
            tool: request.name.into_owned(),
            arguments: request.arguments.unwrap_or_default(),
        }
    }

    async fn run_tool(self, matter: Matter, line: Line) -> CallToolResult {
        match matter.tool.as_str() {
            tools::RUN_SUBAGENTS => self.run_many(matter.arguments, &line).await,
            _ => self.run_one(matter.arguments, &line).await,
        }
    }

    async fn run_one(&self, arguments: JsonObject, line: &Line) -> CallToolResult {
        let report = match parse::<Task>(arguments) {
            Ok(task) => self.run(task, line).await,
            Err(failure) => self.orchestrator.refused("", failure),
        };
        answer::one(&report)
    }

    async fn run_many(&self, arguments: JsonObject, line: &Line) -> CallToolResult {
        let tasks = match parse::<Tasks>(arguments) {
            Ok(Tasks { tasks }) if !tasks.is_empty() => tasks,
            Ok(_) => return answer::one(&self.orchestrator.refused("", no_tasks())),
            Err(failure) => return answer::one(&self.orchestrator.refused("", failure)),
        };
        let runs = tasks.into_iter().map(|task| self.run(task, line));
        answer::many(&futures_util::future::join_all(runs).await)
    }

    fn is_gateway_tool(&self, name: &str) -> bool {
        self.gateway.has_servers() && gateway_tools::is_gateway_tool(name, self.gateway.debug())
    }

    /// One run, with progress where the caller asked for it.
    async fn run(&self, task: Task, line: &Line) -> Report {
        let Line { caller, asker, cancel, .. } = line.clone();
        let (request, claimed) = task.split();
        if let Some(claimed) = claimed.filter(|claimed| *claimed != caller.name) {
            let failure = mismatch(&caller, &claimed);
            return self.orchestrator.turn_away(&caller, &request.agent_name, failure);
        }
        let _slot = match Guest::run_slot(&line.extensions) {
            Ok(slot) => slot,
            Err(failure) => {
                return self.orchestrator.turn_away(&caller, &request.agent_name, failure);
            }
        };
        let (board, status) = StatusBoard::new();
        let telling = tokio::spawn(progress::report(line.listener.clone(), status));
        let report = self.orchestrator.run(request, caller, board, cancel, asker).await;
        // Progress after the answer would be about a call that is over.
        let _ = timeout(LAST_NEWS, telling).await;
        report
    }

    /// Tells a caller when its own list of tools has become another one, until `gone` is. Those of servers are told of
    /// by `offer_changes`.
    async fn watch_tools<F, R>(&self, caller: &Caller, gone: impl Future<Output = ()>, tell: F)
    where
        F: Fn() -> R,
        R: Future<Output = bool>,
    {
        let mut changes = self.orchestrator.catalog_changes();
        let mut servers = self.gateway.changes();
        let mut known = self.tools(caller);
        tokio::pin!(gone);
        loop {
            tokio::select! {
                () = &mut gone => return,
                changed = changes.changed() => if changed.is_err() { return },
                changed = servers.changed() => if changed.is_err() { return },
            }
            let now = self.tools(caller);
            if now != known {
                known = now;
                if !tell().await {
                    return;
                }
            }
        }
    }
}

impl Desk for Handler {
    fn gateway(&self) -> Option<&Gateway> {
        self.gateway.has_servers().then_some(&self.gateway)
    }

    fn caller(&self, tool_use_id: Option<String>) -> Result<Caller, Doubt> {
        let usual = || self.callers.usual.clone();
        self.callers.of_use(gateway_tools::EXECUTE_TOOL, tool_use_id, usual)
    }

    fn log_relay(&self) -> Option<&LogRelay> {
        self.logs.as_deref()
    }
}

impl ServerHandler for Handler {
    gateway_offers::offer_methods!();
    log_messages::log_methods!();

    fn get_info(&self) -> ServerConfig {
        let tools = ServerCapabilities::builder().enable_tools().enable_tool_list_changed();
        let mut capabilities = tools.build();
        capabilities.logging = log_messages::capability(self.log_relay());
        gateway_offers::introduction("adjutant", capabilities, &self.gateway)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let caller = self.callers.sender(&context.extensions);
        Ok(ListToolsResult::with_all_items(self.tools(&caller)))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let delegates = matches!(request.name.as_ref(), tools::RUN_SUBAGENT | tools::RUN_SUBAGENTS);
        if let Some(state) = request.request_state.clone().filter(|_| delegates) {
            return self.go_on(&state, request, &context).await;
        }
        let caller = self.callers.of(&request.name, &context);
        match (request.name.as_ref(), caller) {
            (ATTEST, _) => self.callers.hear(request.arguments, &context),
            (tools::RUN_SUBAGENT | tools::RUN_SUBAGENTS, Ok(caller)) => {
                self.delegate(request, caller, &context).await
            }
            (tools::RUN_SUBAGENT | tools::RUN_SUBAGENTS, Err(doubt)) => {
                let (caller, failure) = (&self.callers.usual, doubtful(doubt));
                Ok(answer::one(&self.orchestrator.turn_away(caller, "", failure)).into())
            }
            (name, caller) if self.is_gateway_tool(name) => {
                let arguments = request.arguments.unwrap_or_default();
                gateway_tools::call(&self.gateway, caller, name, arguments, &context).await
            }
            (unknown, _) => Err(no_such_tool(&self.gateway, unknown)),
        }
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let handler = self.clone();
        offer_changes::follow(&self.gateway, &context);
        tokio::spawn(async move {
            let caller = handler.callers.sender(&context.extensions);
            let peer = context.peer;
            handler
                .watch_tools(&caller, until_closed(&peer), || async {
                    peer.notify_tool_list_changed().await.is_ok()
                })
                .await;
        });
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let mut accepted = SubscriptionFilter::new();
        offer_changes::accept(requested, &mut accepted);
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let sink = context.sink();
        let caller = self.callers.sender(&context.request_context().extensions);
        let tools = self.watch_tools(&caller, context.cancelled(), || async {
            sink.notify_tool_list_changed().await.is_ok()
        });
        tokio::join!(tools, offer_changes::listen(&self.gateway, &context));
        Ok(())
    }
}

/// Returns some time after a client has gone; a session over HTTP ends long before the server does.
pub(super) async fn until_closed(peer: &Peer<RoleServer>) {
    let mut looks = interval(LOOK_AGAIN);
    while !peer.is_transport_closed() {
        looks.tick().await;
    }
}

/// One task as it comes over the wire.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Task {
    agent_name: String,
    prompt: String,
    context: Option<String>,
    session_key: Option<String>,
    #[serde(default)]
    fresh: bool,
    /// Only ever compared with who it is; nobody becomes somebody by saying so.
    agent_id: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tasks {
    tasks: Vec<Task>,
}

impl Task {
    /// What is asked for, and who the caller says it is.
    fn split(self) -> (Request, Option<String>) {
        let request = Request {
            agent_name: self.agent_name,
            prompt: self.prompt,
            context: self.context,
            session_key: self.session_key,
            fresh: self.fresh,
        };
        (request, self.agent_id.filter(|claimed| !claimed.is_empty()))
    }
}

fn parse<T: DeserializeOwned>(arguments: JsonObject) -> Result<T, Failure> {
    serde_json::from_value(Value::Object(arguments)).map_err(|error| {
        let help = "call it with the arguments that its schema lists";
        Failure::new(Code::InvalidArgument, format!("the arguments do not fit: {error}"), help)
    })
}

fn mismatch(caller: &Caller, claimed: &str) -> Failure {
    let claimed = shorten(&one_line(claimed), 80);
    let message = format!("this call comes from {}, not from `{claimed}`", caller.described());
    Failure::new(Code::IdentityMismatch, message, "leave agent_id out")
}

fn doubtful(doubt: Doubt) -> Failure {
    Failure::new(Code::IdentityMismatch, doubt.to_string(), "call it again")
}

fn no_tasks() -> Failure {
    Failure::new(Code::InvalidArgument, "`tasks` is empty", "give at least one task")
}
