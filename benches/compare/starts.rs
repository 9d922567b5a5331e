//! Start-up times in a project with the agents of this repository.

use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::common::startup::{adjutant, copy_agents, time_to_exit, time_to_tool_list};
use crate::common::statistics::median_ms;
use crate::pair::{Programs, alternate};
use crate::row::Row;

/// Starts of each build in one round; the round counts with their median.
const STARTS: usize = 10;

/// From the start of `serve` to the answer to `tools/list`.
pub fn serve(programs: &Programs, rounds: usize) -> Option<Vec<Row>> {
    let start =
        |program: &Path, project: &Path| time_to_tool_list(adjutant(program, project).arg("serve"));
    Some(vec![measure("start of serve to tools/list", programs, rounds, start)])
}

/// From the start of `gateway` to the answer to `tools/list`.
pub fn gateway(programs: &Programs, rounds: usize) -> Option<Vec<Row>> {
    let start = |program: &Path, project: &Path| {
        time_to_tool_list(adjutant(program, project).arg("gateway"))
    };
    Some(vec![measure("start of gateway to tools/list", programs, rounds, start)])
}

/// From the start of `matrix` to its exit.
pub fn matrix(programs: &Programs, rounds: usize) -> Option<Vec<Row>> {
    let run =
        |program: &Path, project: &Path| time_to_exit(adjutant(program, project).arg("matrix"));
    Some(vec![measure("matrix, start to exit", programs, rounds, run)])
}

fn measure(
    name: &'static str,
    programs: &Programs,
    rounds: usize,
    start: impl Fn(&Path, &Path) -> Duration,
) -> Row {
    let mut sides = programs.each(|program| (program.to_owned(), project()));
    let measured = alternate(rounds, || {
        let times = sides.repeat(STARTS, |(program, project)| start(program, project.path()));
        times.map(|times| median_ms(times))
    });
    Row::time(name, measured)
}

fn project() -> TempDir {
    let project = tempfile::tempdir().expect("a temporary folder");
    copy_agents(project.path());
    project
}
