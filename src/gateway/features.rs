//! Requests for resources and prompts of the servers that an agent may use.

use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::audit_trail::AuditDraft;
use super::error::GatewayError;
use super::gateway::{Gateway, RequestIdentity};
use super::server_view::list_items;
use crate::gateway::config::ActiveConfig;
use crate::identity::Caller;
use crate::policy::evaluate;

/// Features of a server besides tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureKind {
    Resources,
    /// URI templates.
    ResourceTemplates,
    Prompts,
}

/// Lists of a server that can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListKind {
    Tools,
    /// Resources and resource templates.
    Resources,
    Prompts,
}

impl ListKind {
    pub const ALL: [Self; 3] = [Self::Tools, Self::Resources, Self::Prompts];

    /// Returns the name of the list, which is also the name of its capability.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::Prompts => "prompts",
        }
    }
}

/// A `list_changed` notification of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListChanged {
    pub server: String,
    pub list: ListKind,
}

impl FeatureKind {
    /// Returns the feature that an MCP method lists.
    pub(crate) fn of_list_method(method: &str) -> Option<Self> {
        let all = [Self::Resources, Self::ResourceTemplates, Self::Prompts];
        all.into_iter().find(|feature| feature.list_method() == method)
    }

    /// Returns the MCP method that lists the feature.
    pub fn list_method(self) -> &'static str {
        match self {
            Self::Resources => "resources/list",
            Self::ResourceTemplates => "resources/templates/list",
            Self::Prompts => "prompts/list",
        }
    }

    pub(crate) fn capability(self) -> &'static str {
        if self == Self::Prompts { "prompts" } else { "resources" }
    }

    /// Returns true if `uri` is in the list, or matches a template in it.
    pub(crate) fn matches_any(self, uris: &[String], uri: &str) -> bool {
        match self {
            Self::Resources => uris.iter().any(|listed| listed == uri),
            Self::ResourceTemplates => uris.iter().any(|template| matches_template(template, uri)),
            Self::Prompts => false,
        }
    }

    pub(crate) fn result_field(self) -> &'static str {
        match self {
            Self::Resources => "resources",
            Self::ResourceTemplates => "resourceTemplates",
            Self::Prompts => "prompts",
        }
    }

    /// Returns the result of the list method.
    pub(crate) fn to_result(self, items: &Value) -> Value {
        json!({ self.result_field(): items })
    }

    /// Returns the identifier of an item.
    pub(crate) fn id(self, item: &Value) -> Option<&str> {
        item.get(self.id_field()).and_then(Value::as_str)
    }

    /// Returns the field that identifies an item.
    pub(crate) fn id_field(self) -> &'static str {
        match self {
            Self::Resources => "uri",
            Self::ResourceTemplates => "uriTemplate",
            Self::Prompts => "name",
        }
    }
}

impl Gateway {
    /// Returns true if the rules allow any agent to use any server.
    pub fn any_server_usable(&self) -> bool {
        let in_force = self.in_force();
        in_force.servers.names().any(|server| in_force.any_agent_may_use(server))
    }

    /// Subscribes to `list_changed` notifications of all shared servers.
    pub fn subscribe_list_changes(&self) -> broadcast::Receiver<ListChanged> {
        self.downstreams().announcements()
    }

    /// Returns true if a connection may learn that `server` changed.
    ///
    /// A verified caller must be allowed to use the server. If each request names its own caller, any agent suffices.
    pub fn may_observe(&self, connection: Option<&Caller>, server: &str) -> bool {
        let in_force = self.in_force();
        match connection.filter(|caller| caller.is_verified()) {
            Some(caller) => evaluate(&in_force.rules, &caller.name, server, None).is_allowed(),
            None => in_force.any_agent_may_use(server),
        }
    }

    /// Lists one feature of all servers that the agent may use; a server that does not answer is left out.
    ///
    /// Empty if the request names no agent and there is no fallback agent.
    pub async fn list_features(
        &self,
        who: &RequestIdentity,
        offer: FeatureKind,
    ) -> Result<Value, GatewayError> {
        let mut draft = AuditDraft::new(offer.list_method(), who.clone());
        let result = match self.view_for(who, &mut draft) {
            Ok(view) => Ok(Value::Array(view.list_all(offer).await)),
            Err(error) => Err(error),
        };
        match self.audit_trail.record_value(draft, result).await {
            Ok(items) => Ok(offer.to_result(&items)),
            // Many clients request every list on connect; without an agent id they get an empty list, not an error.
            Err(GatewayError::AgentNotResolved(_) | GatewayError::NoRules(_))
                if who.agent_id.is_none() =>
            {
                Ok(offer.to_result(&json!([])))
            }
            Err(error) => Err(error),
        }
    }

    /// Reads a resource and returns the result unchanged.
    pub async fn read_resource(
        &self,
        who: &RequestIdentity,
        uri: &str,
        cancelled: CancellationToken,
    ) -> Result<Value, GatewayError> {
        let mut draft = AuditDraft::new("resources/read", who.clone());
        draft.request_bytes = uri.len();
        let reading = async {
            let view = self.view_for(who, &mut draft)?;
            let owner = view.find_resource_owner(uri).await?;
            let owner = &draft.server.insert(owner.key.server.clone()).clone();
            let server = view.open(&mut draft, owner, None).await?;
            view.send(&server, "resources/read", json!({ "uri": uri }), cancelled).await
        };
        let result = reading.await;
        self.audit_trail.record_value(draft, result).await
    }

    /// Gets the prompt `server/prompt` and returns the result unchanged.
    pub async fn get_prompt(
        &self,
        who: &RequestIdentity,
        name: &str,
        arguments: Option<Value>,
        cancelled: CancellationToken,
    ) -> Result<Value, GatewayError> {
        let mut draft = AuditDraft::new("prompts/get", who.clone());
        draft.request_bytes =
            name.len() + arguments.as_ref().map_or(0, |value| value.to_string().len());
        let getting = async {
            let view = self.view_for(who, &mut draft)?;
            let unknown = || GatewayError::FeatureNotFound { what: format!("prompt `{name}`") };
            let (server, prompt) = split_prompt(&view.policy.in_force, name).ok_or_else(unknown)?;
            draft.server = Some(server.to_owned());
            let server = view.open(&mut draft, server, None).await?;
            let known = match list_items(&server, FeatureKind::Prompts).await {
                Err(GatewayError::Downstream { .. }) => Vec::new(),
                listed => listed?,
            };
            if !known.iter().any(|known| FeatureKind::Prompts.id(known) == Some(prompt)) {
                return Err(unknown());
            }
            let mut params = json!({ "name": prompt });
            if let (Some(arguments), Some(params)) = (arguments, params.as_object_mut()) {
                params.insert("arguments".to_owned(), arguments);
            }
            view.send(&server, "prompts/get", params, cancelled).await
        };
        let result = getting.await;
        self.audit_trail.record_value(draft, result).await
    }
}

/// Splits `server/prompt`; server names can contain slashes themselves.
fn split_prompt<'n>(in_force: &ActiveConfig, name: &'n str) -> Option<(&'n str, &'n str)> {
    let places = name.match_indices('/').filter_map(|(at, _)| name.split_at_checked(at));
    let parts = places.filter_map(|(server, rest)| Some((server, rest.strip_prefix('/')?)));
    let mut known = parts.filter(|(server, _)| in_force.servers.get(server).is_some());
    known.next_back().or_else(|| name.split_once('/'))
}

/// Returns true if `uri` matches the template: fixed parts in order, at least 1 character per `{…}`.
///
/// Each fixed part is matched at its first occurrence, without backtracking.
fn matches_template(template: &str, uri: &str) -> bool {
    let mut parts = template.split('{');
    let fixed = parts.next().unwrap_or_default();
    let Some(mut rest) = uri.strip_prefix(fixed) else { return false };
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        let Some((variable, fixed)) = part.split_once('}') else { return false };
        // `{?query}` and similar expressions may be empty.
        if !variable.starts_with(['?', '&', '#', '/', '.', ';']) {
            let mut characters = rest.chars();
            if characters.next().is_none() {
                return false;
            }
            rest = characters.as_str();
        }
        if parts.peek().is_none() {
            return rest.ends_with(fixed);
        }
        let Some(at) = rest.find(fixed) else { return false };
        rest = rest.get(at + fixed.len()..).unwrap_or_default();
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case("demo://text/{id}", "demo://text/1" => true)]
    #[test_case("demo://text/{id}", "demo://text/" => false; "something must stand there")]
    #[test_case("demo://text/{id}", "demo://blob/1" => false)]
    #[test_case("file:///{path}/x.{end}", "file:///a/b/x.md" => true)]
    #[test_case("file:///{path}/x", "file:///a/y" => false)]
    #[test_case("find://x{?q}", "find://x" => true; "a query may be absent")]
    #[test_case("{a}{b}{c}", "ab" => false; "one for each")]
    #[test_case("plain://a", "plain://ab" => false; "to the end")]
    #[test_case("plain://a", "plain://a" => true)]
    #[test_case("broken://{a", "broken://{a" => false)]
    #[test_case("ü://{a}é", "ü://öé" => true; "any script")]
    fn uris_are_matched_against_templates(template: &str, uri: &str) -> bool {
        matches_template(template, uri)
    }
}
