//! Connects the servers of an agent before its first turn and checks the tools that its file names.

use std::sync::Arc;

use super::error::GatewayError;
use super::gateway::Gateway;
use crate::catalog::{Agent, ServerEntry, ServerLaunch, ToolRef};
use crate::gateway::config::{ActiveConfig, ServerConfigEntry, ServerSpec};
use crate::gateway::downstream::{DownstreamRegistry, ServerLease, ServerScope, ToolList};
use crate::policy::{evaluate, evaluate_server};
use crate::util::{Pattern, RunId, nearest_names};

/// Authorizes and connects one server, and checks that all tools named in the agent file exist.
pub(crate) async fn connect_server(
    gateway: &Arc<Gateway>,
    agent: &Agent,
    run: RunId,
    entry: &ServerEntry,
) -> Result<ServerLease, GatewayError> {
    let in_force = gateway.in_force();
    let spec = match ServerSpec::from_entry(entry) {
        Some(spec) => Ok(Arc::new(spec)),
        // Before the policy check: a denial would hide a misspelt name.
        None => find_shared_server(&in_force, agent, &entry.name)?.spec.clone(),
    };
    let verdict = evaluate_server(agent, &entry.name, Some(&in_force.rules));
    if !verdict.is_allowed() {
        return Err(GatewayError::DeniedByPolicy { sentence: verdict.message().to_owned() });
    }
    let spec = spec.map_err(|reason| GatewayError::invalid_entry(&entry.name, &reason))?;
    let scope = match entry.launch {
        ServerLaunch::Shared => DownstreamRegistry::scope_for(&spec, agent.name.as_str()),
        ServerLaunch::Stdio { .. } | ServerLaunch::Http { .. } => private_scope(agent, run, entry),
    };
    let lease = gateway.acquire_lease(scope, &spec);
    let tools = lease.server().tools().await?;
    check_named_tools(agent, &entry.name, &tools)?;
    Ok(lease)
}

fn private_scope(agent: &Agent, run: RunId, entry: &ServerEntry) -> ServerScope {
    let agent = agent.name.to_string();
    match entry.is_per_run() {
        true => ServerScope::Run { agent, run: run.to_string() },
        false => ServerScope::Private(agent),
    }
}

fn find_shared_server<'f>(
    in_force: &'f ActiveConfig,
    agent: &Agent,
    server: &str,
) -> Result<&'f ServerConfigEntry, GatewayError> {
    in_force.servers.get(server).ok_or_else(|| {
        if let Some(why) = in_force.servers.exclusion_reason(server) {
            return GatewayError::excluded_entry(server, why);
        }
        // Suggest only names that the rules let this agent see.
        let seen =
            |name: &&str| evaluate(&in_force.rules, agent.name.as_str(), name, None).is_allowed();
        let near = nearest_names(server, in_force.servers.names().filter(seen));
        let way_out = match near.as_slice() {
            [] => String::new(),
            near => format!("; did you mean `{}`?", near.join("` or `")),
        };
        GatewayError::unavailable(server, format!("no shared server has that name{way_out}"))
    })
}

/// Rejects a tool that the agent file names but the server does not have, instead of ignoring it.
fn check_named_tools(agent: &Agent, server: &str, list: &ToolList) -> Result<(), GatewayError> {
    for tool in agent.tools.iter().flatten() {
        let ToolRef::Mcp { server: of, tool } = tool else { continue };
        if of == server && Pattern::new(tool).is_literal() && list.get(tool).is_none() {
            let names = list.tools.iter().map(|tool| tool.name.as_str());
            return Err(GatewayError::tool_not_found(server, tool, names));
        }
    }
    Ok(())
}
