//! Checks of the MCP servers behind the gateway and of those that agents declare.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::finding::{DoctorFinding, good, warned};
use crate::catalog::Snapshot;
use crate::cli::runtime::lazy_gateway;
use crate::config::Settings;
use crate::gateway::{Gateway, ServerScope, ServerSpec};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckDepth {
    /// Checks only the requirements of the entry; starts nothing.
    EntryOnly,
    /// Starts the server and asks for its tools.
    Live,
}

/// A server to check, with its scope and its parsed entry.
struct CheckedServer {
    name: String,
    scope: ServerScope,
    spec: Result<Arc<ServerSpec>, String>,
}

/// Number of tools if the server was asked for them, or the reason why the server cannot be used.
type ServerCheck = Result<Option<usize>, String>;

/// Checks all servers: one finding for the usable ones, one warning for each unusable one.
///
/// Only a warning, because an unusable server does not affect anything else.
pub(crate) async fn check_servers(settings: &Settings, look: CheckDepth) -> Vec<DoctorFinding> {
    let gateway = lazy_gateway(settings);
    let mut findings: Vec<DoctorFinding> = config_finding(&gateway).into_iter().collect();
    let mut well = Vec::new();
    for (name, state) in check_all(settings, &gateway, look).await {
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
        let verb = if look == CheckDepth::Live { "answer" } else { "can be started" };
        findings.insert(0, good("servers", format!("{verb}: {}", well.join(", "))));
    }
    findings
}

fn config_finding(gateway: &Gateway) -> Option<DoctorFinding> {
    let in_force = gateway.in_force();
    let error = in_force.report.mcp_config.last_error.as_deref()?;
    Some(warned("servers", error.to_owned(), "run `adjutant check`"))
}

async fn check_all(
    settings: &Settings,
    gateway: &Arc<Gateway>,
    look: CheckDepth,
) -> Vec<(String, ServerCheck)> {
    let subjects = list_servers(settings, gateway);
    let mut asked = JoinSet::new();
    for (position, CheckedServer { name, scope, spec }) in subjects.into_iter().enumerate() {
        let (gateway, root) = (Arc::clone(gateway), settings.root.clone());
        asked.spawn(async move {
            let state = match spec {
                Err(reason) => Err(reason),
                Ok(spec) => match spec.start_obstacle(&root) {
                    Some(obstacle) => Err(obstacle),
                    None if look == CheckDepth::EntryOnly => Ok(None),
                    None => count_tools(&gateway, scope, &spec).await,
                },
            };
            (position, (name, state))
        });
    }
    let mut states = asked.join_all().await;
    states.sort_by_key(|(position, _)| *position);
    states.into_iter().map(|(_, state)| state).collect()
}

async fn count_tools(gateway: &Gateway, scope: ServerScope, spec: &Arc<ServerSpec>) -> ServerCheck {
    let server = gateway.downstreams().get_or_create(scope, spec);
    server.tools().await.map(|list| Some(list.tools.len())).map_err(|error| error.to_string())
}

/// Returns the servers of `.mcp.json` and extensions, then those that agents declare.
fn list_servers(settings: &Settings, gateway: &Gateway) -> Vec<CheckedServer> {
    let shared = gateway.in_force().servers.entries().to_vec();
    let mut subjects: Vec<CheckedServer> = shared
        .into_iter()
        .map(|entry| CheckedServer {
            name: entry.name,
            scope: ServerScope::Shared,
            spec: entry.spec,
        })
        .collect();
    let snapshot = Snapshot::load(settings);
    for agent in snapshot.entries().iter().filter_map(|entry| entry.agent()) {
        let own = agent.servers.iter().filter_map(ServerSpec::from_entry);
        subjects.extend(own.map(|spec| CheckedServer {
            name: format!("{} of {}", spec.name, agent.name),
            scope: ServerScope::Private(agent.name.to_string()),
            spec: Ok(Arc::new(spec)),
        }));
    }
    subjects
}
