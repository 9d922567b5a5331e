//! Whether this very process was started by an agent of ours, however far down.

use std::env;
use std::fs;
use std::iter::successors;

use super::tree::Stat;
use crate::config::env_vars::ADJUTANT_AGENT;

/// The agent below which this process runs.
///
/// Its own environment can be cleared by whoever starts it; that of the `claude` above it cannot.
pub fn agent_above() -> Option<String> {
    let own = env::var(ADJUTANT_AGENT).ok().filter(|name| !name.is_empty());
    own.or_else(|| ancestors().find_map(agent_of))
}

fn ancestors() -> impl Iterator<Item = i32> {
    let parent_of =
        |pid: &i32| Stat::read(*pid).map(|stat| stat.parent).filter(|parent| *parent > 1);
    let own = i32::try_from(std::process::id()).ok();
    successors(own, parent_of).skip(1).take(256)
}

fn agent_of(pid: i32) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    environment.split(|byte| *byte == 0).find_map(|entry| {
        let (name, value) = std::str::from_utf8(entry).ok()?.split_once('=')?;
        (name == ADJUTANT_AGENT && !value.is_empty()).then(|| value.to_owned())
    })
}
