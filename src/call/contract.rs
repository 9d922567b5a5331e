//! Everything that decides what a process is and may do, in one digest: a waiting process is used only where it is the same.

use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

use serde_json::json;
use sha2::{Digest, Sha256};

use super::credentials::config_dir;
use super::prepare;
use super::program::Program;
use crate::catalog::{Agent, ServerLaunch};
use crate::gateway::Gateway;
use crate::outcome::Failure;
use crate::plan::LaunchPlan;

/// The digest for one launch: program and version, arguments, environment with its values, system prompt and memory, rights,
/// servers and the rules about shared ones, folder, and which sign-in is in use.
pub(super) fn contract(
    agent: &Agent,
    plan: &LaunchPlan,
    program: &Program,
    folder: &Path,
    gateway: &Gateway,
) -> Result<String, Failure> {
    let environment = prepare::environment(agent, plan)?;
    let parts = json!([
        plan.digest(),
        agent,
        program.features.version,
        stamp(&program.path),
        folder,
        stamp(&config_dir().join(".credentials.json")),
    ]);
    let mut hasher = Sha256::new();
    hasher.update(parts.to_string());
    hasher.update(format!("{environment:?}"));
    if agent.servers.iter().any(|server| matches!(server.launch, ServerLaunch::Shared)) {
        let in_force = gateway.in_force();
        hasher.update(format!("{:?} {:?}", in_force.rules, in_force.servers));
    }
    Ok(format!("{:x}", hasher.finalize()))
}

/// A file as it is now: replaced or written to, it is another one. Its content is nobody's business here.
fn stamp(path: &Path) -> Option<(u128, u64)> {
    let metadata = fs::metadata(path).ok()?;
    let modified = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some((modified.as_nanos(), metadata.len()))
}
