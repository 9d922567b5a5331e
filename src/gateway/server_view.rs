//! The servers that one caller may use: policy, lists, lookups and near misses.
//!
//! Clients of the gateway and agents with servers of their own have the same view with different policies. What a view
//! lists can be called, and what its policy denies is not listed.
//!
//! Resource URIs are not rewritten, since servers mention them in results. If two servers list the same URI, the first
//! one in `.mcp.json` gets the request.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::audit_trail::AuditDraft;
use super::authorize::{CallPolicy, GatewayPolicy, authorize};
use super::error::GatewayError;
use super::features::FeatureKind;
use super::gateway::{Gateway, RequestIdentity};
use crate::gateway::downstream::{DownstreamServer, Tool};

/// Limit for one server's part of a combined list; then the server is left out.
const LIST_TIMEOUT: Duration = Duration::from_secs(20);

/// Lists in which a resource is looked up, in this order.
const RESOURCE_LISTS: [FeatureKind; 2] = [FeatureKind::Resources, FeatureKind::ResourceTemplates];

/// The servers that one caller may use. The policy decides which they are and what is allowed.
pub(crate) struct ServerView<'a, P> {
    pub(crate) gateway: &'a Gateway,
    pub(crate) policy: P,
}

impl Gateway {
    /// Resolves the caller of a request and returns its view.
    pub(crate) fn view_for(
        &self,
        who: &RequestIdentity,
        draft: &mut AuditDraft,
    ) -> Result<ServerView<'_, GatewayPolicy>, GatewayError> {
        let in_force = self.in_force();
        let caller = self.resolve_caller(&in_force, who)?;
        draft.caller = Some(caller.clone());
        Ok(ServerView { gateway: self, policy: GatewayPolicy { in_force, caller } })
    }
}

impl<P: CallPolicy> ServerView<'_, P> {
    pub(crate) fn may_use(&self, server: &str, tool: Option<&str>) -> bool {
        self.policy.evaluate(server, tool).is_allowed()
    }

    /// Authorizes a request and returns its server.
    ///
    /// Fails while the audit log cannot be written, because unlogged requests are not executed.
    pub(crate) async fn open(
        &self,
        draft: &mut AuditDraft,
        server: &str,
        tool: Option<&str>,
    ) -> Result<Arc<DownstreamServer>, GatewayError> {
        authorize(&self.policy, draft, server, tool)?;
        self.gateway.audit_trail.ensure_writable().await?;
        self.server(server)
    }

    /// Returns a server by its name. The caller must already be authorized.
    pub(crate) fn server(&self, name: &str) -> Result<Arc<DownstreamServer>, GatewayError> {
        self.policy.server(self.gateway, name)
    }

    /// Sends a request to a server from [`Self::open`] and returns its result unchanged.
    pub(crate) async fn send(
        &self,
        server: &Arc<DownstreamServer>,
        method: &str,
        params: Value,
        cancelled: CancellationToken,
    ) -> Result<Value, GatewayError> {
        if self.policy.is_client() {
            server.note_call();
        }
        let connection = server.ensure_connected().await?;
        connection.request(method, params, server.spec.timeout, Some(cancelled)).await
    }

    /// Passes the tools that the caller may use to `then`, without those that are blocked by a pin.
    pub(crate) async fn tools<T>(
        &self,
        server: &Arc<DownstreamServer>,
        then: impl FnOnce(&[&Tool]) -> T,
    ) -> Result<T, GatewayError> {
        let list = server.tools().await?;
        let blocked = self.gateway.blocked_by_pin(server, &list).await?;
        let visible: Vec<&Tool> = list
            .tools
            .iter()
            .filter(|tool| !blocked.contains(&tool.name))
            .filter(|tool| self.may_use(&server.key.server, Some(&tool.name)))
            .collect();
        Ok(then(&visible))
    }

    /// Checks that the server lists the tool and that it is not blocked by a pin.
    pub(crate) async fn find_tool(
        &self,
        server: &Arc<DownstreamServer>,
        tool: &str,
    ) -> Result<(), GatewayError> {
        let mut list = server.tools().await?;
        if list.get(tool).is_none() {
            // Some servers change their tools without sending `list_changed`.
            list = server.reload_tools().await?;
        }
        let name = &server.key.server;
        if list.get(tool).is_none() {
            let names = list.tools.iter().map(|tool| tool.name.as_str());
            let visible = names.filter(|tool| self.may_use(name, Some(tool)));
            return Err(GatewayError::tool_not_found(name, tool, visible));
        }
        if self.gateway.blocked_by_pin(server, &list).await?.iter().any(|blocked| blocked == tool) {
            let (server, tool) = (name.clone(), tool.to_owned());
            return Err(GatewayError::ToolBlockedByPin { server, tool });
        }
        Ok(())
    }

    /// Returns all servers that the caller may use.
    fn servers(&self) -> Vec<Arc<DownstreamServer>> {
        let names = self.policy.server_names();
        let allowed = names.into_iter().filter(|name| self.may_use(name, None));
        allowed.filter_map(|name| self.server(name).ok()).collect()
    }

    /// Lists one feature of all servers; a server that does not answer is left out.
    pub(crate) async fn list_all(&self, offer: FeatureKind) -> Vec<Value> {
        let servers = self.servers();
        let lists = servers.iter().map(|server| list_items_or_none(server, offer));
        let lists = futures_util::future::join_all(lists).await;
        let mut seen = HashSet::new();
        let mut all = Vec::new();
        for (server, items) in servers.iter().zip(lists) {
            for mut item in items {
                let Some(name) = offer.id(&item).map(str::to_owned) else { continue };
                let shown = match offer {
                    FeatureKind::Prompts => format!("{}/{name}", server.key.server),
                    FeatureKind::Resources | FeatureKind::ResourceTemplates => name,
                };
                if let Some(item) = item.as_object_mut() {
                    item.insert(offer.id_field().to_owned(), json!(shown));
                }
                if seen.insert(shown) {
                    all.push(item);
                }
            }
        }
        all
    }

    /// Returns the first allowed server that lists the URI or has a template for it.
    ///
    /// Servers with cached lists and running servers are searched first, so that no other server is started for a
    /// resource that one of them has.
    pub(crate) async fn find_resource_owner(
        &self,
        uri: &str,
    ) -> Result<Arc<DownstreamServer>, GatewayError> {
        let candidates: Vec<_> = self.servers().into_iter().map(ResourceCandidate::new).collect();
        for lookup in [LookupScope::Cached, LookupScope::Reread] {
            for offer in RESOURCE_LISTS {
                if let Some(server) = first_match(&candidates, offer, uri, lookup).await {
                    return Ok(server);
                }
            }
        }
        for candidate in candidates.iter().filter(|candidate| !candidate.is_running) {
            for offer in RESOURCE_LISTS {
                if offer.matches_any(&read_uris(&candidate.server, offer).await, uri) {
                    return Ok(Arc::clone(&candidate.server));
                }
            }
        }
        Err(GatewayError::FeatureNotFound { what: format!("resource `{uri}`") })
    }
}

/// A server that may have a resource, with its cached lists at the start of the lookup.
struct ResourceCandidate {
    server: Arc<DownstreamServer>,
    is_running: bool,
    uris: Option<Arc<[String]>>,
    templates: Option<Arc<[String]>>,
}

/// Lists that are searched in one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LookupScope {
    /// Cached lists, and those of running servers without a cached list.
    Cached,
    /// Cached lists of running servers, read again: not every server announces changes.
    Reread,
}

impl ResourceCandidate {
    fn new(server: Arc<DownstreamServer>) -> Self {
        let version = server.resources_version();
        let known = &server.known_resources;
        let (uris, templates) = (known.uris.get(version), known.templates.get(version));
        Self { is_running: server.live_connection().is_some(), server, uris, templates }
    }

    async fn item_ids(&self, offer: FeatureKind, lookup: LookupScope) -> Arc<[String]> {
        let known = match offer {
            FeatureKind::Resources => &self.uris,
            FeatureKind::ResourceTemplates => &self.templates,
            FeatureKind::Prompts => &None,
        };
        match (lookup, known) {
            (LookupScope::Cached, Some(known)) => Arc::clone(known),
            (LookupScope::Cached, None) | (LookupScope::Reread, Some(_)) if self.is_running => {
                read_uris(&self.server, offer).await
            }
            (LookupScope::Cached | LookupScope::Reread, _) => Arc::default(),
        }
    }
}

/// Returns the first candidate, in order, whose list contains the URI. Reads all lists concurrently.
async fn first_match(
    candidates: &[ResourceCandidate],
    offer: FeatureKind,
    uri: &str,
    lookup: LookupScope,
) -> Option<Arc<DownstreamServer>> {
    let looking = candidates.iter().map(|candidate| async move {
        let found = offer.matches_any(&candidate.item_ids(offer, lookup).await, uri);
        found.then(|| Arc::clone(&candidate.server))
    });
    let mut looking: FuturesOrdered<_> = looking.collect();
    while let Some(found) = looking.next().await {
        if found.is_some() {
            return found;
        }
    }
    None
}

async fn read_uris(server: &Arc<DownstreamServer>, offer: FeatureKind) -> Arc<[String]> {
    uris(&list_items_or_none(server, offer).await, offer)
}

fn uris(items: &[Value], offer: FeatureKind) -> Arc<[String]> {
    items.iter().filter_map(|item| offer.id(item).map(str::to_owned)).collect()
}

/// Lists one feature of a server and caches the URIs of resources.
pub(crate) async fn list_items(
    server: &Arc<DownstreamServer>,
    offer: FeatureKind,
) -> Result<Vec<Value>, GatewayError> {
    server.ensure_connected().await?;
    // Read before the list: a change during the request makes the list stale immediately.
    let version = server.resources_version();
    let listed = server.list(offer.capability(), offer.list_method(), offer.result_field()).await;
    let items = match &listed {
        Ok(items) => items.as_slice(),
        // Many servers with resources do not implement templates.
        Err(GatewayError::Downstream { .. }) => &[],
        Err(_) => return listed,
    };
    let known = &server.known_resources;
    match offer {
        FeatureKind::Resources => known.uris.set(version, uris(items, offer)),
        FeatureKind::ResourceTemplates => known.templates.set(version, uris(items, offer)),
        FeatureKind::Prompts => {}
    }
    listed
}

async fn list_items_or_none(server: &Arc<DownstreamServer>, offer: FeatureKind) -> Vec<Value> {
    match timeout(LIST_TIMEOUT, list_items(server, offer)).await {
        Ok(Ok(items)) => items,
        Ok(Err(error)) => {
            // The reason is already in the log.
            tracing::debug!(server = %server.key.server, "{} is left out: {error}", offer.result_field());
            Vec::new()
        }
        Err(_) => {
            tracing::warn!(server = %server.key.server, "{} is left out: no answer", offer.result_field());
            Vec::new()
        }
    }
}
