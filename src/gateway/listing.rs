//! `list_servers` and `get_server_tools`: the servers and tools that an agent may use.

use std::sync::Arc;

use serde_json::{Value, json};

use super::audit_trail::AuditDraft;
use super::authorize::{GatewayPolicy, authorize};
use super::error::GatewayError;
use super::gateway::{Gateway, RequestIdentity};
use super::server_view::ServerView;
use crate::audit::AuditEntry;
use crate::catalog::{Pinning, ServerLaunch};
use crate::gateway::downstream::{DownstreamServer, Tool, ToolList};
use crate::util::Pattern;

/// Arguments of `get_server_tools`.
#[derive(Clone, Debug, Default)]
pub struct ToolFilter {
    pub server: String,
    /// Exact names; empty for all tools.
    pub names: Vec<String>,
    /// Glob pattern for names.
    pub pattern: Option<String>,
    /// Token limit; the list ends before the first tool that exceeds it.
    pub max_schema_tokens: Option<u64>,
}

impl Gateway {
    /// Returns the servers that the agent may use, in the format of `list_servers`.
    pub async fn list_servers(
        &self,
        who: &RequestIdentity,
        include_metadata: bool,
    ) -> Result<Value, GatewayError> {
        let mut draft = AuditDraft::new("list_servers", who.clone());
        let result = self
            .view_for(who, &mut draft)
            .map(|view| Value::Array(view.describe_servers(include_metadata)));
        self.audit_trail.record_value(draft, result).await
    }

    /// Returns the tools that the agent may use, in the format of `get_server_tools`.
    pub async fn list_server_tools(
        &self,
        who: &RequestIdentity,
        wanted: &ToolFilter,
    ) -> Result<Value, GatewayError> {
        let mut draft = AuditDraft::new("get_server_tools", who.clone());
        draft.server = Some(wanted.server.clone());
        let reading = async {
            let view = self.view_for(who, &mut draft)?;
            authorize(&view.policy, &mut draft, &wanted.server, None)?;
            view.tools(&view.server(&wanted.server)?, |visible| wanted.to_response(visible)).await
        };
        let result = reading.await;
        self.audit_trail.record_value(draft, result).await
    }

    /// Returns the changed tools of a server with `pin: strict`; compares with the pins on first use.
    ///
    /// If the pins cannot be read or written, a strict server fails and any other is not pinned.
    pub(crate) async fn blocked_by_pin(
        &self,
        server: &DownstreamServer,
        list: &Arc<ToolList>,
    ) -> Result<Vec<String>, GatewayError> {
        if is_unblocked(server, list) {
            return Ok(Vec::new());
        }
        let _turn = self.pins.wait_for_turn().await;
        if is_unblocked(server, list) {
            return Ok(Vec::new());
        }
        let strict = server.spec.pinning == Pinning::Strict;
        let changed = match self.pins.compare(&server.pin_key(), list).await {
            Ok(changed) => changed,
            Err(error) if strict => return Err(error),
            Err(error) => {
                tracing::warn!(server = %server.key.server, "tools are not pinned: {error}");
                Vec::new()
            }
        };
        // The first comparison of a list reports its changes.
        if list.changed.set(changed.clone()).is_ok() && !changed.is_empty() {
            let tools = changed.join("`, `");
            tracing::warn!(server = %server.key.server, "the definition changed of `{tools}`");
            for tool in &changed {
                let entry = AuditEntry::new("tool_changed");
                let mut entry = entry.with_target(&server.key.server, Some(tool));
                entry.reason = Some("its definition differs from what was first seen".to_owned());
                self.audit_trail.try_write(entry);
            }
        }
        Ok(if strict { changed } else { Vec::new() })
    }
}

/// Returns true if the list was compared and none of its tools is blocked. Does not access the file.
///
/// A change that was found may have been trusted since; a list without a change needs no second comparison.
pub(crate) fn is_unblocked(server: &DownstreamServer, list: &ToolList) -> bool {
    let changed = list.changed.get();
    changed.is_some_and(|changed| changed.is_empty() || server.spec.pinning != Pinning::Strict)
}

impl ServerView<'_, GatewayPolicy> {
    fn describe_servers(&self, include_metadata: bool) -> Vec<Value> {
        let entries = self.policy.in_force.servers.entries().iter();
        entries
            .filter(|entry| self.may_use(&entry.name, None))
            .map(|entry| match &entry.spec {
                Ok(spec) => {
                    let mut shown = json!({ "name": spec.name, "description": spec.description });
                    if include_metadata && let Ok(server) = self.server(&spec.name) {
                        add_metadata(&mut shown, &server);
                    }
                    shown
                }
                Err(reason) => {
                    json!({ "name": entry.name, "description": format!("unavailable: {reason}") })
                }
            })
            .collect()
    }
}

/// Adds transport and state of the process that the caller uses. Variables stay unresolved.
fn add_metadata(shown: &mut Value, server: &DownstreamServer) {
    let (transport, command, url) = match &server.spec.launch {
        ServerLaunch::Stdio { command, .. } => ("stdio", Some(command.0.as_str()), None),
        ServerLaunch::Http { url, .. } => ("http", None, Some(public_url(&url.0))),
        ServerLaunch::Shared => ("shared", None, None),
    };
    let state = server.report();
    set_field(shown, "transport", json!(transport));
    set_field(shown, "command", json!(command));
    set_field(shown, "url", json!(url));
    set_field(shown, "state", json!(state.state));
    set_field(shown, "retry_in_ms", json!(state.retry_in_ms));
}

/// Sets a field of a JSON object.
pub(crate) fn set_field(object: &mut Value, name: &str, value: Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(name.to_owned(), value);
    }
}

/// Returns scheme, host and path of a URL. User info, query and fragment can contain a secret.
fn public_url(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

impl ToolFilter {
    fn to_response(&self, visible: &[&Tool]) -> Value {
        let pattern = self.pattern.as_deref().filter(|text| !text.is_empty()).map(Pattern::new);
        let chosen = visible.iter().filter(|tool| {
            let named = self.names.is_empty() || self.names.contains(&tool.name);
            named && pattern.as_ref().is_none_or(|pattern| pattern.matches(&tool.name))
        });
        let mut tools = Vec::new();
        let mut used = 0;
        for tool in chosen {
            let tokens = estimate_tokens(tool);
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

    /// Returns a failure in the format of `get_server_tools`.
    pub fn to_error_response(&self, error: &GatewayError) -> Value {
        json!({
            "tools": [], "server": self.server, "total_available": 0, "returned": 0,
            "tokens_used": null, "error": error.text(),
        })
    }
}

/// Estimates tokens: `max(1, floor((chars(name) + chars(description) + chars(schema as JSON)) / 4))`.
fn estimate_tokens(tool: &Tool) -> u64 {
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
        Tool { name: name.to_owned(), definition, digest, legacy_digest: former_digest }
    }

    #[test_case(&[], None, None => vec!["read", "write", "list"])]
    #[test_case(&["list", "read"], None, None => vec!["read", "list"]; "the server's order")]
    #[test_case(&[], Some("*r*"), None => vec!["read", "write"])]
    #[test_case(&["list"], Some("*r*"), None => Vec::<String>::new(); "both must fit")]
    #[test_case(&[], None, Some(18) => vec!["read", "write"]; "a budget")]
    #[test_case(&[], None, Some(0) => Vec::<String>::new(); "no budget")]
    fn tools_are_filtered(names: &[&str], pattern: Option<&str>, most: Option<u64>) -> Vec<String> {
        let all = [tool("read"), tool("write"), tool("list")];
        let wanted = ToolFilter {
            server: "s".to_owned(),
            names: names.iter().map(|&name| name.to_owned()).collect(),
            pattern: pattern.map(str::to_owned),
            max_schema_tokens: most,
        };
        let answer = wanted.to_response(&all.iter().collect::<Vec<_>>());
        assert_eq!(answer["total_available"], 3);
        assert_eq!(answer["tokens_used"].is_null(), most.is_none());
        let names = answer["tools"].as_array().unwrap().iter();
        names.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    #[test_case("https://u:p@h/x?y=1", "https://h/x")]
    #[test_case("https://h?api_key=k", "https://h")]
    #[test_case("https://h/x#u:p@k", "https://h/x")]
    #[test_case("https://${HOST}/x@y", "https://${HOST}/x@y")]
    fn secrets_in_urls_are_not_shown(url: &str, shown: &str) {
        assert_eq!(public_url(url), shown);
    }
}
