//! An agent's own MCP servers, at the far end of its pipe.
//!
//! `claude` sends every JSON-RPC message for such a server to us. Who is calling needs no proof: nobody else holds the pipe.
//! What the agent's file does not allow is not in the list, and is refused when it is called anyway.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::downstream::{Downstream, Scope, ToolCall};
use super::error::GatewayError;
use super::gateway::{Gateway, Who};
use super::ledger::Draft;
use super::server_config::ServerSpec;
use super::tool_list::ToolList;
use crate::base::{RunId, nearest};
use crate::catalog::{Agent, ServerEntry, ToolRef};
use crate::identity::{Caller, KnownBy};
use crate::policy::{Evaluation, Pattern, judge_mcp_tool, judge_server};

/// What is spoken to an agent that names no revision of its own.
const PROTOCOL: &str = "2025-06-18";

/// The servers of one run of one agent, all of them connected.
pub struct Tunnel {
    gateway: Arc<Gateway>,
    agent: Arc<Agent>,
    run: RunId,
    servers: BTreeMap<String, Arc<Downstream>>,
    calls: Mutex<HashMap<(String, String), CancellationToken>>,
}

impl Tunnel {
    /// Connects every server that the agent declares, side by side. The second value says which optional ones are missing.
    pub async fn open(
        gateway: &Arc<Gateway>,
        agent: &Arc<Agent>,
        run: RunId,
    ) -> Result<(Self, Vec<String>), GatewayError> {
        let connecting = agent.servers.iter().map(|entry| connect(gateway, agent, run, entry));
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
        Ok((Self { gateway, agent, run, servers, calls: Mutex::default() }, notes))
    }

    /// May the agent call this tool? The same answer for lists, calls and `explain`.
    pub fn judge(&self, server: &str, tool: &str) -> Evaluation {
        judge_mcp_tool(&self.agent, server, tool, Some(&self.gateway.in_force().rules))
    }

    /// Answers a message of `claude` for one of the servers; `None` for a notification.
    pub async fn message(&self, server: &str, message: &Value) -> Option<Value> {
        let method = message.get("method").and_then(Value::as_str)?;
        let params = message.get("params").cloned().unwrap_or_else(|| json!({}));
        let Some(id) = message.get("id") else {
            self.notified(server, method, &params);
            return None;
        };
        let answer = self.answer(server, method, params, id).await;
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
        id: &Value,
    ) -> Result<Value, GatewayError> {
        match method {
            "initialize" => Ok(introduction(server, &params)),
            "ping" => Ok(json!({})),
            "tools/list" => self.list(server).await,
            "tools/call" => self.call(server, params, id).await,
            "resources/list" => self.page(server, "resources", method, "resources").await,
            "resources/templates/list" => {
                self.page(server, "resources", method, "resourceTemplates").await
            }
            "prompts/list" => self.page(server, "prompts", method, "prompts").await,
            "resources/read" | "prompts/get" => self.server(server)?.request(method, params).await,
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

    async fn list(&self, server: &str) -> Result<Value, GatewayError> {
        let Some(downstream) = self.servers.get(server) else { return Ok(json!({ "tools": [] })) };
        let list = downstream.tools().await?;
        let allowed = list.tools.iter().filter(|tool| self.judge(server, &tool.name).is_allowed());
        let tools: Vec<&Value> = allowed.map(|tool| &tool.definition).collect();
        Ok(json!({ "tools": tools }))
    }

    async fn page(
        &self,
        server: &str,
        capability: &str,
        method: &str,
        field: &str,
    ) -> Result<Value, GatewayError> {
        let all = self.server(server)?.list(capability, method, field).await?;
        Ok(Value::Object(Map::from_iter([(field.to_owned(), Value::Array(all))])))
    }

    /// Judged, then called, and written down before the answer goes.
    async fn call(&self, server: &str, params: Value, id: &Value) -> Result<Value, GatewayError> {
        let tool = params.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let arguments = params.get("arguments").cloned().unwrap_or_else(|| json!({}));
        let mut draft = Draft::new("tools/call", &self.who());
        draft.server = Some(server.to_owned());
        draft.tool = Some(tool.clone());
        draft.bytes_in = arguments.to_string().len();
        draft.arguments = self.gateway.ledger().kept_arguments(&arguments);
        draft.run = Some(self.run);
        draft.call_id = tool_use_id(&params);
        let verdict = self.judge(server, &tool);
        draft.evaluation = Some(verdict.clone());
        let result = match verdict.is_allowed() {
            true => self.call_allowed(server, tool, arguments, id).await,
            false => Err(GatewayError::DeniedByPolicy { sentence: verdict.sentence().to_owned() }),
        };
        self.gateway.ledger().record(draft, result, |value: &Value| value.to_string().len())
    }

    async fn call_allowed(
        &self,
        server: &str,
        tool: String,
        arguments: Value,
        id: &Value,
    ) -> Result<Value, GatewayError> {
        self.gateway.ledger().ensure_writable()?;
        let downstream = self.server(server)?;
        let key = (server.to_owned(), id.to_string());
        let cancelled = CancellationToken::new();
        self.calls().insert(key.clone(), cancelled.clone());
        let call = ToolCall { tool, arguments, deadline: None, cancelled, progress: None };
        let result = downstream.call_tool(call).await;
        self.calls().remove(&key);
        result
    }

    /// A server whose resources and prompts the agent may use.
    fn server(&self, name: &str) -> Result<&Arc<Downstream>, GatewayError> {
        self.servers.get(name).ok_or_else(|| GatewayError::ServerUnavailable {
            server: name.to_owned(),
            reason: "the agent does not have it".to_owned(),
            retry_in: None,
        })
    }

    fn who(&self) -> Who {
        let caller = Caller::new(self.agent.name.to_string(), KnownBy::Pipe);
        Who { caller: Some(caller), ..Who::default() }
    }

    fn calls(&self) -> std::sync::MutexGuard<'_, HashMap<(String, String), CancellationToken>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Tunnel {
    /// Ends the servers that were this run's alone.
    fn drop(&mut self) {
        let own = Scope::Run { agent: self.agent.name.to_string(), run: self.run.to_string() };
        self.gateway.pool().retain(|key| key.scope != own);
    }
}

/// A server, allowed, started and with every tool that the agent's file names.
async fn connect(
    gateway: &Gateway,
    agent: &Agent,
    run: RunId,
    entry: &ServerEntry,
) -> Result<Arc<Downstream>, GatewayError> {
    let in_force = gateway.in_force();
    let verdict = judge_server(agent, &entry.name, Some(&in_force.rules));
    if !verdict.is_allowed() {
        return Err(GatewayError::DeniedByPolicy { sentence: verdict.sentence().to_owned() });
    }
    let (spec, scope) = match ServerSpec::from_agent(entry) {
        Some(spec) => (Arc::new(spec), private_scope(agent, run, entry)),
        None => shared_spec(gateway, agent, entry)?,
    };
    let server = gateway.pool().acquire(scope, &spec);
    let tools = server.tools().await?;
    all_named_tools_exist(agent, &entry.name, &tools)?;
    Ok(server)
}

fn private_scope(agent: &Agent, run: RunId, entry: &ServerEntry) -> Scope {
    let agent = agent.name.to_string();
    match entry.per_run {
        true => Scope::Run { agent, run: run.to_string() },
        false => Scope::Private(agent),
    }
}

fn shared_spec(
    gateway: &Gateway,
    agent: &Agent,
    entry: &ServerEntry,
) -> Result<(Arc<ServerSpec>, Scope), GatewayError> {
    let missing = |reason: String| GatewayError::ServerUnavailable {
        server: entry.name.clone(),
        reason,
        retry_in: None,
    };
    let in_force = gateway.in_force();
    let found = in_force
        .servers
        .get(&entry.name)
        .ok_or_else(|| missing("`.mcp.json` has no server of that name".to_owned()))?;
    let spec = found.spec.as_ref().map_err(|reason| missing(reason.clone()))?;
    let scope = super::pool::Pool::scope_for(spec, agent.name.as_str());
    Ok((Arc::clone(spec), scope))
}

/// A tool that the agent's file names and the server does not have is a mistake to be told, not to be dropped.
fn all_named_tools_exist(agent: &Agent, server: &str, list: &ToolList) -> Result<(), GatewayError> {
    for tool in agent.tools.iter().flatten() {
        let ToolRef::Mcp { server: of, tool } = tool else { continue };
        if of == server && Pattern::new(tool).is_literal() && list.get(tool).is_none() {
            let near = nearest(tool, list.tools.iter().map(|tool| tool.name.as_str()));
            let near = near.into_iter().map(str::to_owned).collect();
            return Err(GatewayError::ToolNotFound {
                server: server.to_owned(),
                tool: tool.clone(),
                near,
            });
        }
    }
    Ok(())
}

/// The call's id in the agent's conversation, as `claude` sends it along.
fn tool_use_id(params: &Value) -> Option<String> {
    let id = params.get("_meta")?.get("claudecode/toolUseId")?;
    id.as_str().map(str::to_owned)
}

fn introduction(server: &str, params: &Value) -> Value {
    let version = params.get("protocolVersion").and_then(Value::as_str).unwrap_or(PROTOCOL);
    json!({
        "protocolVersion": version,
        "capabilities": { "tools": {}, "resources": {}, "prompts": {} },
        "serverInfo": { "name": server, "version": env!("CARGO_PKG_VERSION") },
    })
}
