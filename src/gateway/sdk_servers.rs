//! MCP servers of an agent, served over the control protocol of its `claude` process.
//!
//! In Claude Code's terms these are servers of `type: "sdk"`. `claude` forwards every JSON-RPC message for such a
//! server to us. The pipe proves the identity of the caller. Tools that the agent file does not allow are not listed,
//! and calls to them are denied.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::future::ready;
use std::sync::Arc;

use rmcp::model::ProgressNotificationParam;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::audit_trail::AuditDraft;
use super::authorize::CallPolicy;
use super::error::GatewayError;
use super::execute::{OnResult, ToolCall, forward_progress};
use super::features::{FeatureKind, ListKind};
use super::gateway::{Gateway, RequestIdentity};
use super::listing::set_field;
use super::sdk_servers_open::connect_server;
use super::server_view::{ServerView, list_items};
use crate::catalog::{Agent, ServerLaunch};
use crate::gateway::config::ActiveConfig;
use crate::gateway::downstream::{DownstreamServer, ListChanges, ServerLease, Tool};
use crate::identity::{Caller, KnownBy};
use crate::jsonrpc::{Frame, Id, LineJson, Message, notification_value};
use crate::policy::{Verdict, evaluate_mcp_tool, evaluate_server};
use crate::util::{Mutex, RunId};

/// MCP revision used if the agent does not name one.
const DEFAULT_PROTOCOL_VERSION: &str = "2025-06-18";
/// JSON-RPC error code of failures that are not errors of the server.
const SERVER_ERROR: i32 = -32_000;
/// Queued progress notifications per call; more are dropped.
const MAX_QUEUED_PROGRESS: usize = 64;

/// Receives the notifications of a server, by server name, in order: progress and list changes.
pub type NotifyFn = Arc<dyn Fn(&str, &Value) + Send + Sync>;

/// The connected servers of one agent process.
pub struct SdkServers {
    gateway: Arc<Gateway>,
    agent: Arc<Agent>,
    /// Run that the process currently works for; calls are logged under it.
    run: Mutex<RunId>,
    pub(crate) servers: Arc<BTreeMap<String, ServerLease>>,
    calls: Mutex<HashMap<(String, String), CancellationToken>>,
    closed: CancellationToken,
}

impl SdkServers {
    /// Connects all declared servers concurrently. The second value names the optional ones that failed.
    pub async fn connect(
        gateway: &Arc<Gateway>,
        agent: &Arc<Agent>,
        owner: RunId,
    ) -> Result<(Self, Vec<String>), GatewayError> {
        let connecting =
            agent.servers.iter().map(|entry| connect_server(gateway, agent, owner, entry));
        let connected = futures_util::future::join_all(connecting).await;
        let mut servers = BTreeMap::new();
        let mut notes = Vec::new();
        for (entry, result) in agent.servers.iter().zip(connected) {
            match result {
                Ok(server) => {
                    servers.insert(entry.name.clone(), server);
                }
                Err(error) if entry.optional => {
                    notes.push(format!("It ran without an optional server: {error}."));
                }
                Err(error) => return Err(error),
            }
        }
        let sdk_servers = Self {
            gateway: Arc::clone(gateway),
            agent: Arc::clone(agent),
            run: Mutex::new(owner),
            servers: Arc::new(servers),
            calls: Mutex::default(),
            closed: CancellationToken::new(),
        };
        Ok((sdk_servers, notes))
    }

    /// Sets the run that the process works for.
    pub fn set_run(&self, run: RunId) {
        *self.run.lock() = run;
    }

    /// Evaluates a tool; lists, calls and `explain` use the same verdict.
    pub fn evaluate_tool(&self, server: &str, tool: &str) -> Verdict {
        self.policy().evaluate(server, Some(tool)).as_ref().clone()
    }

    fn policy(&self) -> AgentPolicy {
        AgentPolicy {
            agent: Arc::clone(&self.agent),
            servers: Arc::clone(&self.servers),
            in_force: self.gateway.in_force(),
        }
    }

    fn view(&self) -> ServerView<'_, AgentPolicy> {
        ServerView { gateway: &self.gateway, policy: self.policy() }
    }

    /// Sends `list_changed` for servers and for the gateway rules until this value is dropped.
    pub fn notify_changes(&self, tell: &NotifyFn) {
        for (name, lease) in self.servers.iter() {
            let changes = lease.server().changes.subscribe();
            self.spawn_until_closed(notify_list_changes(name.clone(), changes, Arc::clone(tell)));
        }
        let shared = self.agent.servers.iter().filter(|e| e.launch == ServerLaunch::Shared);
        let shared: Vec<String> = shared.map(|entry| entry.name.clone()).collect();
        if !shared.is_empty() {
            let changes = self.gateway.subscribe_visibility_changes();
            self.spawn_until_closed(notify_rule_changes(shared, changes, Arc::clone(tell)));
        }
    }

    fn spawn_until_closed(&self, work: impl Future<Output = ()> + Send + 'static) {
        let closed = self.closed.clone();
        tokio::spawn(async move { closed.run_until_cancelled(work).await });
    }

    /// Answers a JSON-RPC message of `claude`; `None` for a notification.
    ///
    /// Notifications of the server are passed to `tell` before the response. Dropping the future cancels the call.
    pub async fn handle_message(
        self: &Arc<Self>,
        server: &str,
        message: &LineJson,
        tell: &NotifyFn,
    ) -> Option<LineJson> {
        let (id, method, params) = match Message::parse(message.as_str().as_bytes()) {
            Ok(Message::Request { id, method, params }) => (id, method, params),
            Ok(Message::Notification { method, params }) => {
                self.handle_notification(server, &method, params);
                return None;
            }
            Ok(Message::Response { .. }) => return None,
            Err(invalid) => return Some(invalid.response().into_json()),
        };
        let answer = if method == "tools/call" {
            self.call_tool(server, params, &id, tell).await
        } else {
            let result = self.handle_request(server, &method, value_of(params)).await;
            result.map(|result| to_line_json(&result))
        };
        let frame = match answer {
            Ok(result) => Frame::result(&id, &result),
            Err(GatewayError::Downstream { code, message, data }) => {
                Frame::error(&id.to_string(), code, &message, data.as_ref())
            }
            Err(error) => Frame::error(&id.to_string(), SERVER_ERROR, &error.text(), None),
        };
        Some(frame.into_json())
    }

    async fn handle_request(
        &self,
        server: &str,
        method: &str,
        params: Value,
    ) -> Result<Value, GatewayError> {
        match method {
            "initialize" => Ok(self.initialize_result(server, &params).await),
            "ping" => Ok(json!({})),
            "tools/list" => self.list_tools(server).await,
            "resources/read" => self.fetch_feature(server, "resources/read", params).await,
            "prompts/get" => self.fetch_feature(server, "prompts/get", params).await,
            _ => match FeatureKind::of_list_method(method) {
                Some(offer) => {
                    let items = self.list_features(server, offer).await?;
                    Ok(offer.to_result(&Value::Array(items)))
                }
                None => Err(GatewayError::Downstream {
                    code: -32601,
                    message: format!("`{method}` is not offered here"),
                    data: None,
                }),
            },
        }
    }

    fn handle_notification(&self, server: &str, method: &str, params: Option<&RawValue>) {
        if method == "notifications/cancelled" {
            let request = value_of(params).get("requestId").map(Value::to_string);
            let request = request.unwrap_or_default();
            if let Some(call) = self.calls.lock().get(&(server.to_owned(), request)) {
                call.cancel();
            }
        }
    }

    /// Builds the `initialize` result from the capabilities and instructions of the server.
    ///
    /// The server name is the one in the agent file.
    async fn initialize_result(&self, server: &str, params: &Value) -> Value {
        let version = params.get("protocolVersion").and_then(Value::as_str);
        let mut capabilities = json!({ "tools": { "listChanged": true } });
        let mut introduction = json!({
            "protocolVersion": version.unwrap_or(DEFAULT_PROTOCOL_VERSION),
            "serverInfo": { "name": server, "version": env!("CARGO_PKG_VERSION") },
        });
        if let Ok(known) = self.view().server(server)
            && let Ok(connection) = known.ensure_connected().await
        {
            for list in ["resources", "prompts"] {
                if connection.has_capability(list) {
                    set_field(&mut capabilities, list, json!({ "listChanged": true }));
                }
            }
            if let Some(instructions) = connection.instructions() {
                set_field(&mut introduction, "instructions", json!(instructions));
            }
        }
        set_field(&mut introduction, "capabilities", capabilities);
        introduction
    }

    async fn list_tools(&self, server: &str) -> Result<Value, GatewayError> {
        // An optional server that failed to connect has no tools.
        let Some(lease) = self.servers.get(server) else { return Ok(json!({ "tools": [] })) };
        let definitions = |tools: &[&Tool]| tools.iter().map(|t| t.definition.clone()).collect();
        let tools: Vec<Value> = self.view().tools(lease.server(), definitions).await?;
        Ok(json!({ "tools": tools }))
    }

    /// Lists one feature of a server; empty if the agent may not use the server.
    pub(crate) async fn list_features(
        &self,
        server: &str,
        offer: FeatureKind,
    ) -> Result<Vec<Value>, GatewayError> {
        let view = self.view();
        match view.may_use(server, None) {
            true => list_items(&view.server(server)?, offer).await,
            false => Ok(Vec::new()),
        }
    }

    /// Reads a resource or gets a prompt: authorized per server, logged before the result is returned.
    pub(crate) async fn fetch_feature(
        &self,
        server: &str,
        method: &'static str,
        params: Value,
    ) -> Result<Value, GatewayError> {
        let mut draft = self.audit_draft(method, server, &to_line_json(&params));
        let reading = async {
            let view = self.view();
            let server = view.open(&mut draft, server, None).await?;
            view.send(&server, method, params, CancellationToken::new()).await
        };
        let result = reading.await;
        self.gateway.audit_trail.record_value(draft, result).await
    }

    /// Calls a tool. The call is cancelled if the future is dropped; its audit entry is written even then.
    async fn call_tool(
        self: &Arc<Self>,
        server: &str,
        params: Option<&RawValue>,
        id: &Id,
        tell: &NotifyFn,
    ) -> Result<LineJson, GatewayError> {
        // Malformed parameters name no tool, and no tool is denied or not found.
        let parsed = params.and_then(|raw| serde_json::from_str(raw.get()).ok());
        let SdkCallParams { name, arguments, meta } = parsed.unwrap_or_default();
        let cancelled = CancellationToken::new();
        let _taken_back_when_dropped = cancelled.clone().drop_guard();
        let key = (server.to_owned(), id.to_string());
        self.calls.lock().insert(key.clone(), cancelled.clone());
        let arguments = match arguments {
            Some(raw) => LineJson::new(raw.to_owned()),
            None => LineJson::object(&[]),
        };
        let mut draft = self.audit_draft("tools/call", server, &arguments);
        draft.call_id = meta.get("claudecode/toolUseId").and_then(Value::as_str).map(str::to_owned);
        let token = meta.get("progressToken").filter(|token| !token.is_null()).cloned();
        let (sender, progress) = mpsc::channel(MAX_QUEUED_PROGRESS);
        let call = ToolCall {
            server: server.to_owned(),
            tool: name.into_owned(),
            arguments,
            timeout: None,
            cancelled,
            progress: token.is_some().then_some(sender),
        };
        let (sender, result) = oneshot::channel();
        let sdk_servers = Arc::clone(self);
        let on_result: OnResult = Box::new(move |result| {
            sdk_servers.calls.lock().remove(&key);
            // An error means that the agent has taken the call back.
            let _ = sender.send(result);
        });
        self.gateway.execute_under(self.policy(), draft, call, on_result);
        let told = |news: ProgressNotificationParam| {
            tell(server, &progress_message(token.as_ref(), news));
            ready(())
        };
        let result = forward_progress(result, progress, told).await;
        // The sender is dropped without a result only when the process exits.
        result.unwrap_or(Err(GatewayError::Cancelled))
    }

    fn audit_draft(
        &self,
        operation: &'static str,
        server: &str,
        arguments: &LineJson,
    ) -> AuditDraft {
        let mut draft = AuditDraft::new(operation, RequestIdentity::default());
        draft.caller = Some(Caller::new(self.agent.name.to_string(), KnownBy::Pipe));
        draft.server = Some(server.to_owned());
        draft.request_bytes = arguments.as_str().len();
        draft.arguments = self.gateway.audit_trail.arguments_to_log(arguments);
        draft.run = Some(*self.run.lock());
        draft
    }
}

/// The file of an agent, with the gateway rules for shared servers.
pub(crate) struct AgentPolicy {
    agent: Arc<Agent>,
    servers: Arc<BTreeMap<String, ServerLease>>,
    in_force: Arc<ActiveConfig>,
}

impl CallPolicy for AgentPolicy {
    fn evaluate(&self, server: &str, tool: Option<&str>) -> Arc<Verdict> {
        let rules = Some(self.in_force.rules.as_ref());
        Arc::new(match tool {
            Some(tool) => evaluate_mcp_tool(&self.agent, server, tool, rules),
            None => evaluate_server(&self.agent, server, rules),
        })
    }

    fn has_server(&self, name: &str) -> bool {
        self.servers.contains_key(name)
    }

    fn is_client(&self) -> bool {
        false
    }

    fn server_names(&self) -> Vec<&str> {
        self.servers.keys().map(String::as_str).collect()
    }

    fn server(&self, _: &Gateway, name: &str) -> Result<Arc<DownstreamServer>, GatewayError> {
        let missing = || GatewayError::unavailable(name, "the agent does not have it");
        self.servers.get(name).map(|lease| Arc::clone(lease.server())).ok_or_else(missing)
    }
}

impl Drop for SdkServers {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

/// Sends `list_changed` for every list that the server reports as changed.
async fn notify_list_changes(
    server: String,
    mut changes: watch::Receiver<ListChanges>,
    tell: NotifyFn,
) {
    let mut known = *changes.borrow_and_update();
    while changes.changed().await.is_ok() {
        let now = *changes.borrow_and_update();
        for list in now.since(known) {
            tell(&server, &list_changed(list));
        }
        known = now;
    }
}

/// Sends `tools/list_changed` after a reload: new rules can show or hide tools of shared servers.
async fn notify_rule_changes(
    servers: Vec<String>,
    mut changes: watch::Receiver<u64>,
    tell: NotifyFn,
) {
    while changes.changed().await.is_ok() {
        for server in &servers {
            tell(server, &list_changed(ListKind::Tools));
        }
    }
}

fn list_changed(list: ListKind) -> Value {
    notification_value(&format!("notifications/{}/list_changed", list.name()), None)
}

fn progress_message(token: Option<&Value>, news: ProgressNotificationParam) -> Value {
    let mut params = serde_json::to_value(news).unwrap_or_else(|_| json!({}));
    set_field(&mut params, "progressToken", json!(token));
    notification_value("notifications/progress", Some(params))
}

/// Parameters of `tools/call`.
#[derive(Default, Deserialize)]
struct SdkCallParams<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
    #[serde(rename = "_meta", default)]
    meta: Value,
}

fn value_of(params: Option<&RawValue>) -> Value {
    params.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_else(|| json!({}))
}

fn to_line_json(value: &Value) -> LineJson {
    LineJson::encode(value).unwrap_or_else(|_| LineJson::object(&[]))
}
