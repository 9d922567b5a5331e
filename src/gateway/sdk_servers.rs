//! An agent's own MCP servers, at the far end of its pipe.
//!
//! `claude` sends every JSON-RPC message for such a server to us. Who is calling needs no proof: nobody else holds the pipe.
//! What the agent's file does not allow is not in the list, and is refused when it is called anyway.

use std::collections::{BTreeMap, HashMap};
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::ProgressNotificationParam;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::downstream::{Downstream, ToolCall};
use super::error::GatewayError;
use super::gateway::{Gateway, Who};
use super::lease::Lease;
use super::ledger::Draft;
use super::telling::telling;
use super::tunnel_open::connect;
use crate::base::{RunId, nearest};
use crate::catalog::{Agent, ServerLaunch};
use crate::identity::{Caller, KnownBy};
use crate::policy::{Evaluation, judge_mcp_tool, judge_server};

/// What is spoken to an agent that names no revision of its own.
const PROTOCOL: &str = "2025-06-18";
/// Progress that waits for its turn; more is dropped.
const PROGRESS_WAITING: usize = 64;

/// Takes what a server of this name says unasked, in order: progress, and that a list has changed.
pub type Tell = Arc<dyn Fn(&str, &Value) + Send + Sync>;

/// The servers of one run of one agent, all of them connected.
pub struct Tunnel {
    gateway: Arc<Gateway>,
    agent: Arc<Agent>,
    /// Which run calls through it now.
    run: Mutex<RunId>,
    pub(super) servers: BTreeMap<String, Lease>,
    calls: Mutex<HashMap<(String, String), CancellationToken>>,
    over: CancellationToken,
}

impl Tunnel {
    /// Connects every server that the agent declares, side by side. The second value says which optional ones are missing.
    pub async fn open(
        gateway: &Arc<Gateway>,
        agent: &Arc<Agent>,
        owner: RunId,
    ) -> Result<(Self, Vec<String>), GatewayError> {
        let connecting = agent.servers.iter().map(|entry| connect(gateway, agent, owner, entry));
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
        let (gateway, agent) = (Arc::clone(gateway), Arc::clone(agent));
        let (run, over) = (Mutex::new(owner), CancellationToken::new());
        Ok((Self { gateway, agent, run, servers, calls: Mutex::default(), over }, notes))
    }

    /// Another run goes on in the process at the near end.
    pub fn serve(&self, run: RunId) {
        *self.run.lock().unwrap_or_else(PoisonError::into_inner) = run;
    }

    /// May the agent call this tool? The same answer for lists, calls and `explain`.
    pub fn judge(&self, server: &str, tool: &str) -> Evaluation {
        judge_mcp_tool(&self.agent, server, tool, Some(&self.gateway.in_force().rules))
    }

    /// Tells when a list of one of the servers may have become another one, until the tunnel is gone.
    pub fn tell_changes(&self, tell: &Tell) {
        for (name, lease) in &self.servers {
            let follow = follow_lists(name.clone(), lease.server().changes(), Arc::clone(tell));
            let over = self.over.clone();
            tokio::spawn(async move { over.run_until_cancelled(follow).await });
        }
        let shared = self.agent.servers.iter().filter(|e| e.launch == ServerLaunch::Shared);
        let shared: Vec<String> = shared.map(|entry| entry.name.clone()).collect();
        if !shared.is_empty() {
            let follow = follow_rules(shared, self.gateway.changes(), Arc::clone(tell));
            let over = self.over.clone();
            tokio::spawn(async move { over.run_until_cancelled(follow).await });
        }
    }

    /// Answers a message of `claude` for one of the servers; `None` for a notification. What the server says meanwhile
    /// goes to `tell`, before the answer. Dropping the future takes the call back.
    pub async fn message(
        self: &Arc<Self>,
        server: &str,
        message: &Value,
        tell: &Tell,
    ) -> Option<Value> {
        let method = message.get("method").and_then(Value::as_str)?;
        let params = message.get("params").cloned().unwrap_or_else(|| json!({}));
        let Some(id) = message.get("id") else {
            self.notified(server, method, &params);
            return None;
        };
        let answer = match method {
            "tools/call" => self.call(server, params, id, tell).await,
            _ => self.answer(server, method, params).await,
        };
        Some(match answer {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err(GatewayError::Downstream { code, message, data }) => {
                json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message, "data": data } })
            }
            Err(error) => {
                json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32000, "message": error.text() } })
            }
        })
    }

    async fn answer(
        &self,
        server: &str,
        method: &str,
        params: Value,
    ) -> Result<Value, GatewayError> {
        match method {
            "initialize" => Ok(self.introduce(server, &params).await),
            "ping" => Ok(json!({})),
            "tools/list" => self.list(server).await,
            "resources/list" => self.page(server, "resources", method, "resources").await,
            "resources/templates/list" => {
                self.page(server, "resources", method, "resourceTemplates").await
            }
            "prompts/list" => self.page(server, "prompts", method, "prompts").await,
            "resources/read" => self.fetch(server, "resources/read", params).await,
            "prompts/get" => self.fetch(server, "prompts/get", params).await,
            _ => Err(GatewayError::Downstream {
                code: -32601,
                message: format!("`{method}` is not offered here"),
                data: None,
            }),
        }
    }

    fn notified(&self, server: &str, method: &str, params: &Value) {
        if method == "notifications/cancelled" {
            let request = params.get("requestId").map(Value::to_string).unwrap_or_default();
            if let Some(call) = self.calls().get(&(server.to_owned(), request)) {
                call.cancel();
            }
        }
    }

    /// The server's own words about itself, under the name that the agent's file gives it.
    async fn introduce(&self, server: &str, params: &Value) -> Value {
        let version = params.get("protocolVersion").and_then(Value::as_str).unwrap_or(PROTOCOL);
        let mut capabilities = json!({ "tools": { "listChanged": true } });
        let mut introduction = json!({
            "protocolVersion": version,
            "serverInfo": { "name": server, "version": env!("CARGO_PKG_VERSION") },
        });
        if let Ok(known) = self.server(server)
            && let Ok(said) = known.introduction().await
        {
            let offers = [("resources", said.resources), ("prompts", said.prompts)];
            for (what, _) in offers.iter().filter(|(_, offered)| *offered) {
                set(&mut capabilities, what, json!({ "listChanged": true }));
            }
            if let Some(instructions) = said.instructions {
                set(&mut introduction, "instructions", json!(instructions));
            }
        }
        set(&mut introduction, "capabilities", capabilities);
        introduction
    }

    async fn list(&self, server: &str) -> Result<Value, GatewayError> {
        // An optional server that is missing has no tools.
        let Some(lease) = self.servers.get(server) else { return Ok(json!({ "tools": [] })) };
        let list = lease.server().tools().await?;
        let withheld = self.gateway.withheld(lease.server(), &list)?;
        let allowed = list.tools.iter().filter(|tool| self.judge(server, &tool.name).is_allowed());
        let tools: Vec<&Value> = allowed
            .filter(|tool| !withheld.contains(&tool.name))
            .map(|tool| &tool.definition)
            .collect();
        Ok(json!({ "tools": tools }))
    }

    pub(super) async fn page(
        &self,
        server: &str,
        capability: &str,
        method: &str,
        field: &str,
    ) -> Result<Value, GatewayError> {
        let all = match self.judge_server(server).is_allowed() {
            true => self.server(server)?.list(capability, method, field).await?,
            false => Vec::new(),
        };
        Ok(Value::Object(Map::from_iter([(field.to_owned(), Value::Array(all))])))
    }

    /// A resource or a prompt: judged by the rule for the server, and written down before the answer goes.
    pub(super) async fn fetch(
        &self,
        server: &str,
        method: &'static str,
        params: Value,
    ) -> Result<Value, GatewayError> {
        let mut draft = self.draft(method, server, &raw(&params));
        let verdict = Arc::new(self.judge_server(server));
        draft.evaluation = Some(Arc::clone(&verdict));
        let result = match verdict.is_allowed() {
            true => match self.server(server) {
                Ok(known) => known.request(method, params).await,
                Err(error) => Err(error),
            },
            false => Err(GatewayError::DeniedByPolicy { sentence: verdict.sentence().to_owned() }),
        };
        self.gateway.ledger().record(draft, result, |value: &Value| value.to_string().len())
    }

    /// Calls a tool, in a task of its own: an agent that no longer waits takes the call back, and its line is still written.
    async fn call(
        self: &Arc<Self>,
        server: &str,
        params: Value,
        id: &Value,
        tell: &Tell,
    ) -> Result<Value, GatewayError> {
        let cancelled = CancellationToken::new();
        let _taken_back_when_dropped = cancelled.clone().drop_guard();
        let key = (server.to_owned(), id.to_string());
        self.calls().insert(key.clone(), cancelled.clone());
        let (tunnel, tell) = (Arc::clone(self), Arc::clone(tell));
        let calling = tokio::spawn(async move {
            let result = tunnel.call_judged(&key.0, params, cancelled, &tell).await;
            tunnel.calls().remove(&key);
            result
        });
        calling.await.unwrap_or_else(|_| Err(GatewayError::unavailable(server, "a fault of ours")))
    }

    /// Judged, then called, and written down before the answer goes.
    async fn call_judged(
        &self,
        server: &str,
        params: Value,
        cancelled: CancellationToken,
        tell: &Tell,
    ) -> Result<Value, GatewayError> {
        let tool = params.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let arguments = raw(params.get("arguments").unwrap_or(&json!({})));
        let mut draft = self.draft("tools/call", server, &arguments);
        draft.tool = Some(tool.clone());
        draft.call_id = tool_use_id(&params);
        let verdict = Arc::new(self.judge(server, &tool));
        draft.evaluation = Some(Arc::clone(&verdict));
        let call = ToolCall { tool, arguments, deadline: None, cancelled, progress: None };
        let result = match verdict.is_allowed() {
            true => self.call_allowed(server, call, progress_token(&params), tell).await,
            false => Err(GatewayError::DeniedByPolicy { sentence: verdict.sentence().to_owned() }),
        };
        let raw = self.gateway.ledger().record_soon(draft, result, |raw| raw.get().len()).await?;
        serde_json::from_str(raw.get()).map_err(|error| GatewayError::unreadable(server, &error))
    }

    async fn call_allowed(
        &self,
        server: &str,
        mut call: ToolCall,
        token: Option<Value>,
        tell: &Tell,
    ) -> Result<Box<RawValue>, GatewayError> {
        self.gateway.ledger().ensure_writable()?;
        let downstream = self.server(server)?;
        self.find_tool(downstream, &call.tool).await?;
        let Some(token) = token else { return downstream.call_tool(call).await };
        let (sender, progress) = mpsc::channel(PROGRESS_WAITING);
        call.progress = Some(sender);
        let told = |news: ProgressNotificationParam| {
            tell(server, &progress_message(&token, news));
            ready(())
        };
        telling(downstream.call_tool(call), progress, told).await
    }

    /// Nothing runs that was never listed.
    async fn find_tool(&self, server: &Arc<Downstream>, tool: &str) -> Result<(), GatewayError> {
        let mut list = server.tools().await?;
        if list.get(tool).is_none() {
            // Some servers change their tools and do not say so.
            list = server.fresh_tools().await?;
        }
        let name = &server.key.server;
        if list.get(tool).is_none() {
            let names = list.tools.iter().map(|tool| tool.name.as_str());
            let near = nearest(tool, names.filter(|near| self.judge(name, near).is_allowed()));
            let near = near.into_iter().map(str::to_owned).collect();
            let (server, tool) = (name.clone(), tool.to_owned());
            return Err(GatewayError::ToolNotFound { server, tool, near });
        }
        if self.gateway.withheld(server, &list)?.iter().any(|withheld| withheld == tool) {
            let (server, tool) = (name.clone(), tool.to_owned());
            return Err(GatewayError::ToolWithheld { server, tool });
        }
        Ok(())
    }

    fn judge_server(&self, server: &str) -> Evaluation {
        judge_server(&self.agent, server, Some(&self.gateway.in_force().rules))
    }

    fn server(&self, name: &str) -> Result<&Arc<Downstream>, GatewayError> {
        self.servers
            .get(name)
            .map(Lease::server)
            .ok_or_else(|| GatewayError::unavailable(name, "the agent does not have it"))
    }

    fn draft(&self, operation: &'static str, server: &str, arguments: &RawValue) -> Draft {
        let caller = Caller::new(self.agent.name.to_string(), KnownBy::Pipe);
        let mut draft = Draft::new(operation, &Who { caller: Some(caller), ..Who::default() });
        draft.server = Some(server.to_owned());
        draft.bytes_in = arguments.get().len();
        draft.arguments = self.gateway.ledger().kept_arguments(arguments);
        draft.run = Some(*self.run.lock().unwrap_or_else(PoisonError::into_inner));
        draft
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<(String, String), CancellationToken>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.over.cancel();
    }
}

/// Tells of every list that the server says has changed.
async fn follow_lists(
    server: String,
    mut changes: tokio::sync::watch::Receiver<super::client_side::ListChanges>,
    tell: Tell,
) {
    let mut known = *changes.borrow_and_update();
    while changes.changed().await.is_ok() {
        let now = *changes.borrow_and_update();
        let lists = [
            ("tools", now.tools != known.tools),
            ("resources", now.resources != known.resources),
            ("prompts", now.prompts != known.prompts),
        ];
        for (list, _) in lists.into_iter().filter(|(_, changed)| *changed) {
            tell(&server, &list_changed(list));
        }
        known = now;
    }
}

/// A change of the gateway's rules may show or hide tools of shared servers.
async fn follow_rules(
    servers: Vec<String>,
    mut changes: tokio::sync::watch::Receiver<u64>,
    tell: Tell,
) {
    while changes.changed().await.is_ok() {
        for server in &servers {
            tell(server, &list_changed("tools"));
        }
    }
}

fn list_changed(list: &str) -> Value {
    json!({ "jsonrpc": "2.0", "method": format!("notifications/{list}/list_changed") })
}

fn progress_message(token: &Value, news: ProgressNotificationParam) -> Value {
    let mut params = serde_json::to_value(news).unwrap_or_else(|_| json!({}));
    set(&mut params, "progressToken", token.clone());
    json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })
}

fn progress_token(params: &Value) -> Option<Value> {
    let token = params.get("_meta")?.get("progressToken")?;
    (!token.is_null()).then(|| token.clone())
}

fn raw(value: &Value) -> Box<RawValue> {
    to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// The call's id in the agent's conversation, as `claude` sends it along.
fn tool_use_id(params: &Value) -> Option<String> {
    let id = params.get("_meta")?.get("claudecode/toolUseId")?;
    id.as_str().map(str::to_owned)
}

fn set(object: &mut Value, name: &str, value: Value) {
    if let Some(object) = object.as_object_mut() {
        object.insert(name.to_owned(), value);
    }
}
