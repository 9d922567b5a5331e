//! Before an agent's first turn: every server it declares is connected and has the tools its file names.

use std::sync::Arc;

use super::downstream::Scope;
use super::error::GatewayError;
use super::files::InForce;
use super::gateway::Gateway;
use super::lease::Lease;
use super::pool::Pool;
use super::server_config::{Entry, ServerSpec};
use super::tool_list::ToolList;
use crate::base::{RunId, nearest};
use crate::catalog::{Agent, ServerEntry, ServerLaunch, ToolRef};
use crate::policy::{Pattern, evaluate, judge_server};

/// A server, allowed, started and with every tool that the agent's file names.
pub(super) async fn connect(
    gateway: &Arc<Gateway>,
    agent: &Agent,
    run: RunId,
    entry: &ServerEntry,
) -> Result<Lease, GatewayError> {
    let in_force = gateway.in_force();
    if entry.launch == ServerLaunch::Shared {
        is_there(&in_force, agent, &entry.name)?;
    }
    let verdict = judge_server(agent, &entry.name, Some(&in_force.rules));
    if !verdict.is_allowed() {
        return Err(GatewayError::DeniedByPolicy { sentence: verdict.sentence().to_owned() });
    }
    let (spec, scope) = match ServerSpec::from_agent(entry) {
        Some(spec) => (Arc::new(spec), private_scope(agent, run, entry)),
        None => shared_spec(gateway, agent, entry)?,
    };
    let lease = gateway.lease(scope, &spec);
    let tools = lease.server().tools().await?;
    all_named_tools_exist(agent, &entry.name, &tools)?;
    Ok(lease)
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
    let in_force = gateway.in_force();
    let found = is_there(&in_force, agent, &entry.name)?;
    let unusable = |reason: &String| GatewayError::unusable(&entry.name, reason);
    let spec = found.spec.as_ref().map_err(unusable)?;
    let scope = Pool::scope_for(spec, agent.name.as_str());
    Ok((Arc::clone(spec), scope))
}

/// A misspelt name is said before any rule is asked: "denied" would send its author to the wrong file.
fn is_there<'f>(
    in_force: &'f InForce,
    agent: &Agent,
    server: &str,
) -> Result<&'f Entry, GatewayError> {
    in_force.servers.get(server).ok_or_else(|| {
        if let Some(why) = in_force.servers.left_out(server) {
            return GatewayError::left_out(server, why);
        }
        // Only names that the rules let this agent see.
        let seen =
            |name: &&str| evaluate(&in_force.rules, agent.name.as_str(), name, None).is_allowed();
        let near = nearest(server, in_force.servers.names().filter(seen));
        let way_out = match near.as_slice() {
            [] => String::new(),
            near => format!("; did you mean `{}`?", near.join("` or `")),
        };
        let reason = format!("no shared server has that name{way_out}");
        GatewayError::unavailable(server, reason)
    })
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
