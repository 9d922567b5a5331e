//! `adjutant completions SHELL`.

use clap::CommandFactory;

use super::args::Arguments;
use super::exit::Exit;
use super::render;

pub(super) fn run(shell: clap_complete::Shell) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "adjutant", &mut script);
    render::data(String::from_utf8_lossy(&script));
    Exit::Success
}
