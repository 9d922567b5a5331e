//! The MCP servers behind the gateway and those of the agents: can they be started, and do they answer?

use std::sync::Arc;

use tokio::task::JoinSet;

use super::finding::{Finding, good, warned};
use crate::catalog::Snapshot;
use crate::cli::runtime::quiet_gateway;
use crate::config::Settings;
use crate::gateway::{Gateway, Scope, ServerSpec};

/// How closely the servers are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// What their entries need is there.
    FromOutside,
    /// They are started, and asked for their tools.
    Inside,
}

/// A server, whose it is, and what its entry says.
struct Subject {
    name: String,
    scope: Scope,
    spec: Result<Arc<ServerSpec>, String>,
}

/// How a server is: its tools where it was asked for them, or what stands in its way.
type State = Result<Option<usize>, String>;

/// One finding for all that are well, and one for each that is not. One that is away keeps nothing else from working.
pub(super) async fn servers(settings: &Settings, look: Look) -> Vec<Finding> {
    let gateway = quiet_gateway(settings);
    let mut findings: Vec<Finding> = unreadable(&gateway).into_iter().collect();
    let mut well = Vec::new();
    for (name, state) in examine(settings, &gateway, look).await {
        match state {
            Ok(Some(1)) => well.push(format!("{name} (1 tool)")),
            Ok(Some(tools)) => well.push(format!("{name} ({tools} tools)")),
            Ok(None) => well.push(name),
            Err(obstacle) => findings.push(warned(
                "server",
                format!("`{name}`: {obstacle}"),
                "mend its entry, or what it needs; calls to it are SERVER_UNAVAILABLE until then",
            )),
        }
    }
    gateway.shutdown().await;
    if !well.is_empty() {
        let verb = if look == Look::Inside { "answer" } else { "can be started" };
        findings.insert(0, good("servers", format!("{verb}: {}", well.join(", "))));
    }
    findings
}

fn unreadable(gateway: &Gateway) -> Option<Finding> {
    let in_force = gateway.in_force();
    let error = in_force.report.mcp_config.last_error.as_deref()?;
    Some(warned("servers", error.to_owned(), "run `adjutant check`"))
}

async fn examine(settings: &Settings, gateway: &Arc<Gateway>, look: Look) -> Vec<(String, State)> {
    let subjects = subjects(settings, gateway);
    let mut asked = JoinSet::new();
    for (position, Subject { name, scope, spec }) in subjects.into_iter().enumerate() {
        let (gateway, root) = (Arc::clone(gateway), settings.root.clone());
        asked.spawn(async move {
            let state = match spec {
                Err(reason) => Err(reason),
                Ok(spec) => match spec.obstacle(&root) {
                    Some(obstacle) => Err(obstacle),
                    None if look == Look::FromOutside => Ok(None),
                    None => tools(&gateway, scope, &spec).await,
                },
            };
            (position, (name, state))
        });
    }
    let mut states = asked.join_all().await;
    states.sort_by_key(|(position, _)| *position);
    states.into_iter().map(|(_, state)| state).collect()
}

async fn tools(gateway: &Gateway, scope: Scope, spec: &Arc<ServerSpec>) -> State {
    let server = gateway.pool().acquire(scope, spec);
    server.tools().await.map(|list| Some(list.tools.len())).map_err(|error| error.to_string())
}

/// Those of `.mcp.json` and extensions first, then each agent's own.
fn subjects(settings: &Settings, gateway: &Gateway) -> Vec<Subject> {
    let shared = gateway.in_force().servers.entries().to_vec();
    let mut subjects: Vec<Subject> = shared
        .into_iter()
        .map(|entry| Subject { name: entry.name, scope: Scope::Shared, spec: entry.spec })
        .collect();
    let snapshot = Snapshot::load(settings);
    for agent in snapshot.entries().iter().filter_map(|entry| entry.agent()) {
        let own = agent.servers.iter().filter_map(ServerSpec::from_agent);
        subjects.extend(own.map(|spec| Subject {
            name: format!("{} of {}", spec.name, agent.name),
            scope: Scope::Private(agent.name.to_string()),
            spec: Ok(Arc::new(spec)),
        }));
    }
    subjects
}
