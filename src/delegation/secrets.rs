//! Secrets of an agent's servers.

use super::process_spec::resolve_variables;
use crate::catalog::{Agent, ServerLaunch};
use crate::util::{Redactor, is_secret_name};

/// Returns a redactor for the values of an agent's servers that come from our environment or are named like a
/// secret (`TOKEN`).
pub(crate) fn server_redactor(agent: &Agent) -> Redactor {
    let values = agent.servers.iter().flat_map(|server| match &server.launch {
        ServerLaunch::Stdio { env, .. } => env.iter().collect::<Vec<_>>(),
        ServerLaunch::Http { headers, .. } => headers.iter().collect(),
        ServerLaunch::Shared => Vec::new(),
    });
    let secrets = values
        .filter(|(name, template)| !template.variables().is_empty() || is_secret_name(name))
        .filter_map(|(name, template)| {
            Some((resolve_variables(template).ok()?, format!("[{name}]")))
        });
    Redactor::new(secrets)
}
