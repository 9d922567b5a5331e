//! Detection of the agent of which this process is a descendant.

use std::{env, fs, io};

use super::proc_stat::ProcessStat;
use super::spawn::AGENT_OPTION;

use crate::config::ADJUTANT_AGENT;

/// Limit of the search, in case the process tree keeps changing; far above the number of ancestors of any process.
const MAX_STEPS: usize = 1 << 16;

/// Returns the agent that started this process, directly or through other processes.
///
/// A process can clear its own environment, but not that of its ancestors. One that detached itself (`setsid`, double
/// fork) has lost the agent's `claude` as an ancestor; its parent is then the supervisor of that `claude`, which names
/// the agent in its arguments. Arguments can be read from any user namespace, an environment only from its own.
///
/// # Errors
///
/// If the ancestors cannot be determined. Callers must refuse then. Other systems than Linux have no `/proc`; there
/// only the environment of this process counts.
pub(crate) fn ancestor_agent() -> io::Result<Option<String>> {
    let own = env::var(ADJUTANT_AGENT).ok().filter(|name| !name.is_empty());
    if own.is_some() || !cfg!(target_os = "linux") {
        return Ok(own);
    }
    nearest_ancestor_agent(own_process()?)
}

/// Returns this process as numbered by `/proc`, which may belong to an outer pid namespace.
fn own_process() -> io::Result<ProcessStat> {
    let pid = fs::read_link("/proc/self")?;
    let pid = pid.to_str().and_then(|pid| pid.parse().ok());
    pid.and_then(ProcessStat::read)
        .ok_or_else(|| io::Error::other("/proc does not show this process"))
}

fn nearest_ancestor_agent(own: ProcessStat) -> io::Result<Option<String>> {
    let mut child = own;
    for _ in 0..MAX_STEPS {
        if child.parent == 0 {
            return Ok(None);
        }
        let agent = agent_of(child.parent);
        let parent = ProcessStat::read(child.parent);
        // If the parent exits meanwhile, the child is adopted by its supervisor. If the parent is unchanged, it existed
        // all the time, so the values read belong to it and not to a later process with its pid.
        match ProcessStat::read(child.pid).filter(|now| now.is_same_process(&child)) {
            Some(now) if now.parent == child.parent => match (agent, parent) {
                (Some(agent), _) => return Ok(Some(agent)),
                (None, Some(parent)) => child = parent,
                // A process of another user that `/proc` hides (`hidepid`). Agents run as the same user.
                (None, None) => return Ok(None),
            },
            Some(adopted) => child = adopted,
            None => child = own_process()?,
        }
    }
    Err(io::Error::other("the processes above this one kept changing"))
}

/// Returns the agent named by a process: by a supervisor in its arguments, by others in the environment.
fn agent_of(pid: i32) -> Option<String> {
    supervised_agent(pid).or_else(|| {
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        entry_after(&environment, &format!("{ADJUTANT_AGENT}="))
    })
}

/// Returns the agent of a supervisor or of the relay of a sandbox; `None` without the option, because hooks and MCP servers have supervisors, too.
fn supervised_agent(pid: i32) -> Option<String> {
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let command = arguments.split(|byte| *byte == 0).nth(1).unwrap_or_default();
    // In a sandbox, the relay adopts what has detached itself.
    let is_parent = command == b"__keep" || command == b"__relay";
    is_parent.then(|| entry_after(&arguments, AGENT_OPTION))?
}

/// Returns the rest of the first NUL-separated entry that starts with `start` and is longer than it.
fn entry_after(entries: &[u8], start: &str) -> Option<String> {
    let mut rests = entries
        .split(|byte| *byte == 0)
        .filter_map(|entry| entry.strip_prefix(start.as_bytes()))
        .filter(|rest| !rest.is_empty());
    rests.next().map(|rest| String::from_utf8_lossy(rest).into_owned())
}
