//! No nesting: an agent that Adjutant runs cannot start Adjutant.

use super::exit::Exit;
use super::render;
use crate::worker::agent_above;

/// Refuses `command` where this process was started by one of our agents.
pub(super) fn refuse_inside_a_run(command: &str) -> Option<Exit> {
    let agent = agent_above()?;
    render::problem(format_args!(
        "`adjutant {command}` was started by an agent of Adjutant (`{agent}`): subagents cannot delegate; let the main agent do it"
    ));
    Some(Exit::Usage)
}
