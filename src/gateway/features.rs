//! Resources and prompts of the servers that an agent may use.
//!
//! Addresses of resources stay as they are, since servers mention them in
//! their results; where two servers have the same one, the first in the file has it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::connection::RequestOptions;
use super::downstream::Downstream;
use super::error::GatewayError;
use super::files::InForce;
use super::gateway::{Gateway, Who};
use super::ledger::Draft;
use crate::identity::Caller;
use crate::policy::evaluate;

/// How long one server may hold up a list of all of them.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a server has besides tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Resources with an address.
    Resources,
    /// Patterns of addresses.
    ResourceTemplates,
    /// Prompts.
    Prompts,
}

/// A list of a server that may become another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum List {
    /// Its tools.
    Tools,
    /// Its resources and their templates.
    Resources,
    /// Its prompts.
    Prompts,
}

impl List {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Tools, Self::Resources, Self::Prompts];
}

/// A server said that one of its lists has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The server.
    pub server: String,
    /// What has changed.
    pub list: List,
}

impl Offer {
    /// The request for it.
    pub fn method(self) -> &'static str {
        match self {
            Self::Resources => "resources/list",
            Self::ResourceTemplates => "resources/templates/list",
            Self::Prompts => "prompts/list",
        }
    }

    fn capability(self) -> &'static str {
        if self == Self::Prompts { "prompts" } else { "resources" }
    }

    fn field(self) -> &'static str {
        match self {
            Self::Resources => "resources",
            Self::ResourceTemplates => "resourceTemplates",
            Self::Prompts => "prompts",
        }
    }

    /// What tells one entry of the list from another.
    fn key(self) -> &'static str {
        match self {
            Self::Resources => "uri",
            Self::ResourceTemplates => "uriTemplate",
            Self::Prompts => "name",
        }
    }
}

impl Gateway {
    /// Whether any agent may use any server: only then is there anything to offer.
    pub fn has_offers(&self) -> bool {
        let in_force = self.in_force();
        in_force.servers.names().any(|server| in_force.anybody_may_use(server))
    }

    /// Hears when a server behind the gateway says that one of its lists changed.
    pub fn announcements(&self) -> broadcast::Receiver<Announcement> {
        self.pool().announcements()
    }

    /// Whether a connection may hear of a server: the one that it is known to be for may use it, or, where each request
    /// says for itself who makes it, any agent may.
    pub fn may_hear_of(&self, connection: Option<&Caller>, server: &str) -> bool {
        let in_force = self.in_force();
        match connection.filter(|caller| caller.is_sure()) {
            Some(caller) => evaluate(&in_force.rules, &caller.name, server, None).is_allowed(),
            None => in_force.anybody_may_use(server),
        }
    }

    /// Everything of one kind that can be had from the servers of this agent; empty where nobody is
    /// named and nobody meant. A server that does not answer is left out.
    pub async fn offers(&self, who: &Who, offer: Offer) -> Result<Value, GatewayError> {
        let mut draft = Draft::new(offer.method(), who);
        let in_force = self.in_force();
        let result = match self.resolve(&in_force, who) {
            Ok(caller) => {
                draft.caller = Some(caller.clone());
                Ok(self.all_offers(&in_force, &caller, offer).await)
            }
            Err(error) => Err(error),
        };
        match self.ledger().record(draft, result, |items| json!(items).to_string().len()) {
            Ok(items) => Ok(json!({ offer.field(): items })),
            // Many clients ask for every list at once; who names nobody is not told off for that.
            Err(GatewayError::Agent(_) | GatewayError::NoRules(_)) if who.agent_id.is_none() => {
                Ok(json!({ offer.field(): [] }))
            }
            Err(error) => Err(error),
        }
    }

    /// Reads a resource, unchanged.
    pub async fn read_resource(
        &self,
        who: &Who,
        uri: &str,
        cancelled: CancellationToken,
    ) -> Result<Value, GatewayError> {
        let mut draft = Draft::new("resources/read", who);
        draft.bytes_in = uri.len();
        let in_force = self.in_force();
        let reading = async {
            let caller = self.resolve(&in_force, who)?;
            draft.caller = Some(caller.clone());
            let server = self.owner(&in_force, &caller, uri).await?;
            draft.server = Some(server.key.server.clone());
            draft.judge(&in_force, &caller, &server.key.server, None)?;
            self.ledger().ensure_writable()?;
            ask(&server, "resources/read", json!({ "uri": uri }), cancelled).await
        };
        let result = reading.await;
        self.ledger().record(draft, result, |value| value.to_string().len())
    }

    /// Gets the prompt `server/prompt`, unchanged.
    pub async fn get_prompt(
        &self,
        who: &Who,
        name: &str,
        arguments: Option<Value>,
        cancelled: CancellationToken,
    ) -> Result<Value, GatewayError> {
        let mut draft = Draft::new("prompts/get", who);
        draft.bytes_in = name.len() + arguments.as_ref().map_or(0, |value| value.to_string().len());
        let in_force = self.in_force();
        let getting = async {
            let caller = self.resolve(&in_force, who)?;
            draft.caller = Some(caller.clone());
            let unknown = || GatewayError::NotOffered { what: format!("prompt `{name}`") };
            let (server, prompt) = split_prompt(&in_force, name).ok_or_else(unknown)?;
            draft.server = Some(server.to_owned());
            draft.judge(&in_force, &caller, server, None)?;
            self.ledger().ensure_writable()?;
            let server = self.server_for(&in_force, &caller, server)?;
            let known = list(&server, Offer::Prompts).await?;
            if !known.iter().any(|known| key(known, Offer::Prompts) == Some(prompt)) {
                return Err(unknown());
            }
            let mut params = json!({ "name": prompt });
            if let (Some(arguments), Some(params)) = (arguments, params.as_object_mut()) {
                params.insert("arguments".to_owned(), arguments);
            }
            ask(&server, "prompts/get", params, cancelled).await
        };
        let result = getting.await;
        self.ledger().record(draft, result, |value| value.to_string().len())
    }

    async fn all_offers(&self, in_force: &InForce, caller: &Caller, offer: Offer) -> Vec<Value> {
        let servers = self.allowed_servers(in_force, caller);
        let lists = servers.iter().map(|server| list_or_nothing(server, offer));
        let lists = futures_util::future::join_all(lists).await;
        let mut seen = HashSet::new();
        let mut all = Vec::new();
        for (server, items) in servers.iter().zip(lists) {
            for mut item in items {
                let Some(name) = key(&item, offer).map(str::to_owned) else { continue };
                let shown = match offer {
                    Offer::Prompts => format!("{}/{name}", server.key.server),
                    Offer::Resources | Offer::ResourceTemplates => name,
                };
                if let Some(item) = item.as_object_mut() {
                    item.insert(offer.key().to_owned(), json!(shown));
                }
                if seen.insert(shown) {
                    all.push(item);
                }
            }
        }
        all
    }

    /// The first server of this agent that lists the address, or else has a template for it.
    async fn owner(
        &self,
        in_force: &InForce,
        caller: &Caller,
        uri: &str,
    ) -> Result<Arc<Downstream>, GatewayError> {
        for (offer, fits) in [
            (Offer::Resources, is_same as fn(&str, &str) -> bool),
            (Offer::ResourceTemplates, fits_template),
        ] {
            let servers = self.allowed_servers(in_force, caller).into_iter();
            let mut looking: FuturesOrdered<_> = servers
                .map(|server| async move {
                    let items = list_or_nothing(&server, offer).await;
                    let found =
                        items.iter().any(|item| key(item, offer).is_some_and(|k| fits(k, uri)));
                    found.then_some(server)
                })
                .collect();
            while let Some(found) = looking.next().await {
                if let Some(server) = found {
                    return Ok(server);
                }
            }
        }
        Err(GatewayError::NotOffered { what: format!("resource `{uri}`") })
    }

    fn allowed_servers(&self, in_force: &InForce, caller: &Caller) -> Vec<Arc<Downstream>> {
        let names = in_force.servers.names();
        names
            .filter(|name| evaluate(&in_force.rules, &caller.name, name, None).is_allowed())
            .filter_map(|name| self.server_for(in_force, caller, name).ok())
            .collect()
    }
}

async fn list(server: &Arc<Downstream>, offer: Offer) -> Result<Vec<Value>, GatewayError> {
    match server.list(offer.capability(), offer.method(), offer.field()).await {
        // Many servers with resources know nothing of templates.
        Err(GatewayError::Downstream { .. }) => Ok(Vec::new()),
        other => other,
    }
}

async fn list_or_nothing(server: &Arc<Downstream>, offer: Offer) -> Vec<Value> {
    match timeout(PATIENCE, list(server, offer)).await {
        Ok(Ok(items)) => items,
        Ok(Err(error)) => {
            // Why it is unavailable is in the log once already.
            tracing::debug!(server = %server.key.server, "{} is left out: {error}", offer.field());
            Vec::new()
        }
        Err(_) => {
            tracing::warn!(server = %server.key.server, "{} is left out: no answer", offer.field());
            Vec::new()
        }
    }
}

async fn ask(
    server: &Arc<Downstream>,
    method: &str,
    params: Value,
    cancelled: CancellationToken,
) -> Result<Value, GatewayError> {
    server.note_call();
    let deadline = server.spec.timeout;
    let options = RequestOptions { deadline, cancelled, progress: None };
    server.ready().await?.request(method, params, options).await
}

fn key(item: &Value, offer: Offer) -> Option<&str> {
    item.get(offer.key()).and_then(Value::as_str)
}

/// `server/prompt`; the names of servers may have slashes themselves.
fn split_prompt<'n>(in_force: &InForce, name: &'n str) -> Option<(&'n str, &'n str)> {
    let places = name.match_indices('/').filter_map(|(at, _)| name.split_at_checked(at));
    let parts = places.filter_map(|(server, rest)| Some((server, rest.strip_prefix('/')?)));
    let mut known = parts.filter(|(server, _)| in_force.servers.get(server).is_some());
    known.next_back().or_else(|| name.split_once('/'))
}

fn is_same(listed: &str, uri: &str) -> bool {
    listed == uri
}

/// Whether `uri` may be made from a template: its fixed parts in order, something for each `{…}`.
/// Each part is taken where it comes first, so that no template takes long.
fn fits_template(template: &str, uri: &str) -> bool {
    let mut parts = template.split('{');
    let fixed = parts.next().unwrap_or_default();
    let Some(mut rest) = uri.strip_prefix(fixed) else { return false };
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        let Some((variable, fixed)) = part.split_once('}') else { return false };
        // `{?query}` and the like may stand for nothing.
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
    fn templates_fit(template: &str, uri: &str) -> bool {
        fits_template(template, uri)
    }
}
