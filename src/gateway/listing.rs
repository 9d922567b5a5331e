//! What an agent may see: its servers, and the tools of one of them.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::downstream::Downstream;
use super::error::GatewayError;
use super::files::InForce;
use super::gateway::{Gateway, Who};
use super::ledger::Draft;
use super::server_config::{Pinning, ServerSpec};
use super::tool_list::{Tool, ToolList};
use crate::catalog::ServerLaunch;
use crate::identity::Caller;
use crate::policy::{Pattern, evaluate};

/// Which tools of a server are asked for.
#[derive(Clone, Debug, Default)]
pub struct ToolsWanted {
    /// The server.
    pub server: String,
    /// Only these names; empty for all.
    pub names: Vec<String>,
    /// Only names that fit.
    pub pattern: Option<String>,
    /// As many, in order, as fit into this many tokens.
    pub max_schema_tokens: Option<u64>,
}

impl Gateway {
    /// The servers this agent may use, as `list_servers` shows them.
    pub fn list_servers(&self, who: &Who, include_metadata: bool) -> Result<Value, GatewayError> {
        let mut draft = Draft::new("list_servers", who);
        let in_force = self.in_force();
        let result = self.resolve(&in_force, who).map(|caller| {
            let servers = visible_servers(&in_force, &caller, include_metadata);
            draft.caller = Some(caller);
            Value::Array(servers)
        });
        self.ledger.record(draft, result, |value| value.to_string().len())
    }

    /// The tools of one server that this agent may use, as `get_server_tools` shows them.
    pub async fn server_tools(
        &self,
        who: &Who,
        wanted: &ToolsWanted,
    ) -> Result<Value, GatewayError> {
        let mut draft = Draft::new("get_server_tools", who);
        draft.server = Some(wanted.server.clone());
        let result = self.read_server_tools(&mut draft, who, wanted).await;
        self.ledger.record(draft, result, |value| value.to_string().len())
    }

    async fn read_server_tools(
        &self,
        draft: &mut Draft,
        who: &Who,
        wanted: &ToolsWanted,
    ) -> Result<Value, GatewayError> {
        let in_force = self.in_force();
        let caller = self.resolve(&in_force, who)?;
        draft.caller = Some(caller.clone());
        draft.judge(&in_force, &caller, &wanted.server, None)?;
        let server = self.server_for(&in_force, &caller, &wanted.server)?;
        let list = server.tools().await?;
        let withheld = self.withheld(&server, &list)?;
        let visible: Vec<&Tool> = list
            .tools
            .iter()
            .filter(|tool| !withheld.contains(&tool.name))
            .filter(|tool| may_use(&in_force, &caller, &wanted.server, &tool.name))
            .collect();
        Ok(wanted.answer(&visible))
    }

    /// The tools of a list that nobody gets, because they changed and the server is pinned strictly.
    pub(super) fn withheld(
        &self,
        server: &Downstream,
        list: &Arc<ToolList>,
    ) -> Result<Vec<String>, GatewayError> {
        let strict = server.spec.pinning == Pinning::Strict;
        let known = list.changed.get();
        // A change that was found may have been trusted since; one that was not found stays so.
        if let Some(changed) = known
            && (changed.is_empty() || !strict)
        {
            return Ok(Vec::new());
        }
        let compared = self.pins.compare(&server.pin_name(), list);
        match compared {
            Ok(changed) => {
                if known.is_none() && !changed.is_empty() {
                    let tools = changed.join("`, `");
                    tracing::warn!(server = %server.key.server, "the definition changed of `{tools}`");
                    for tool in &changed {
                        let said = "its definition differs from what was first seen";
                        self.ledger.note("tool_changed", &server.key.server, Some(tool), said);
                    }
                }
                let _ = list.changed.set(changed.clone());
                Ok(if strict { changed } else { Vec::new() })
            }
            Err(error) if strict => Err(error),
            Err(error) => {
                tracing::warn!(server = %server.key.server, "tools are not pinned: {error}");
                let _ = list.changed.set(Vec::new());
                Ok(Vec::new())
            }
        }
    }
}

pub(super) fn may_use(in_force: &InForce, caller: &Caller, server: &str, tool: &str) -> bool {
    evaluate(&in_force.rules, &caller.name, server, Some(tool)).is_allowed()
}

fn visible_servers(in_force: &InForce, caller: &Caller, include_metadata: bool) -> Vec<Value> {
    let entries = in_force.servers.entries().iter();
    entries
        .filter(|entry| evaluate(&in_force.rules, &caller.name, &entry.name, None).is_allowed())
        .map(|entry| match &entry.spec {
            Ok(spec) => describe(spec, include_metadata),
            Err(reason) => {
                json!({ "name": entry.name, "description": format!("unavailable: {reason}") })
            }
        })
        .collect()
}

/// A server as written: variables are never resolved here.
fn describe(spec: &ServerSpec, include_metadata: bool) -> Value {
    let mut shown = Map::new();
    shown.insert("name".to_owned(), json!(spec.name));
    shown.insert("description".to_owned(), json!(spec.description));
    if include_metadata {
        let (transport, command, url) = match &spec.launch {
            ServerLaunch::Stdio { command, .. } => ("stdio", Some(command.0.as_str()), None),
            ServerLaunch::Http { url, .. } => ("http", None, Some(without_password(&url.0))),
            ServerLaunch::Shared => ("shared", None, None),
        };
        shown.insert("transport".to_owned(), json!(transport));
        shown.insert("command".to_owned(), json!(command));
        shown.insert("url".to_owned(), json!(url));
    }
    Value::Object(shown)
}

/// `http://user:pass@host/x` without what stands before the host.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let host_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(host_end);
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

impl ToolsWanted {
    fn answer(&self, visible: &[&Tool]) -> Value {
        let pattern = self.pattern.as_deref().filter(|text| !text.is_empty()).map(Pattern::new);
        let chosen = visible.iter().filter(|tool| {
            let named = self.names.is_empty() || self.names.contains(&tool.name);
            named && pattern.as_ref().is_none_or(|pattern| pattern.matches(&tool.name))
        });
        let mut tools = Vec::new();
        let mut used = 0;
        for tool in chosen {
            let tokens = estimate(tool);
            if self.max_schema_tokens.is_some_and(|most| used + tokens > most) {
                break;
            }
            used += tokens;
            tools.push(tool.definition.clone());
        }
        json!({
            "returned": tools.len(),
            "tools": tools,
            "server": self.server,
            "total_available": visible.len(),
            "tokens_used": self.max_schema_tokens.map(|_| used),
            "error": null,
        })
    }

    /// The same shape for a failure, for programs that look at it.
    pub fn failed(&self, error: &GatewayError) -> Value {
        json!({
            "tools": [], "server": self.server, "total_available": 0, "returned": 0,
            "tokens_used": null, "error": error.text(),
        })
    }
}

/// `max(1, floor((chars(name) + chars(description) + chars(schema as JSON)) / 4))`.
fn estimate(tool: &Tool) -> u64 {
    let field = |name: &str| tool.definition.get(name);
    let description = field("description").and_then(Value::as_str).unwrap_or_default();
    let schema = field("inputSchema").map(Value::to_string).unwrap_or_default();
    let characters =
        tool.name.chars().count() + description.chars().count() + schema.chars().count();
    (characters as u64 / 4).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    fn tool(name: &str) -> Tool {
        let definition = json!({"name": name, "description": "d".repeat(32), "inputSchema": {}});
        let [digest, former_digest] = [String::new(), String::new()];
        Tool { name: name.to_owned(), definition, digest, former_digest }
    }

    #[test_case(&[], None, None => vec!["read", "write", "list"])]
    #[test_case(&["list", "read"], None, None => vec!["read", "list"]; "the server's order")]
    #[test_case(&[], Some("*r*"), None => vec!["read", "write"])]
    #[test_case(&["list"], Some("*r*"), None => Vec::<String>::new(); "both must fit")]
    #[test_case(&[], None, Some(18) => vec!["read", "write"]; "a budget")]
    #[test_case(&[], None, Some(0) => Vec::<String>::new(); "no budget")]
    fn tools_are_chosen(names: &[&str], pattern: Option<&str>, most: Option<u64>) -> Vec<String> {
        let all = [tool("read"), tool("write"), tool("list")];
        let wanted = ToolsWanted {
            server: "s".to_owned(),
            names: names.iter().map(|&name| name.to_owned()).collect(),
            pattern: pattern.map(str::to_owned),
            max_schema_tokens: most,
        };
        let answer = wanted.answer(&all.iter().collect::<Vec<_>>());
        assert_eq!(answer["total_available"], 3);
        assert_eq!(answer["tokens_used"].is_null(), most.is_none());
        let names = answer["tools"].as_array().unwrap().iter();
        names.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    #[test_case("https://u:p@h/x?y=1", "https://h/x?y=1")]
    #[test_case("https://${HOST}/x@y", "https://${HOST}/x@y")]
    fn passwords_in_addresses_are_not_shown(url: &str, shown: &str) {
        assert_eq!(without_password(url), shown);
    }
}
