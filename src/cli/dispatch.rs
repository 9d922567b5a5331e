//! From the command line to a command.

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;

use super::args::{Arguments, Command};
use super::exit::Exit;
use super::{
    audit, auth, check, completions, costs, demo, doctor, events, explain, extensions, gateway,
    hook, init, list, matrix, new, plan, render, run as run_command, runs, schema, serve, sessions,
    show, stats, token, trust,
};
use crate::config::Settings;
use crate::worker;

/// Runs the program and says how it ended.
pub fn main() -> ExitCode {
    if let Some(code) = worker::hidden_command() {
        return code;
    }
    if let Some(code) = demo::hidden_command() {
        return code;
    }
    if let Some(code) = hook::hidden_command() {
        return code;
    }
    run(&Arguments::parse()).into()
}

fn run(arguments: &Arguments) -> Exit {
    let settings = match Settings::resolve(arguments.root.as_deref()) {
        Ok(settings) => settings,
        Err(error) => return refuse(&error),
    };
    match &arguments.command {
        Command::List(arguments) => list::run(&settings, arguments),
        Command::Show(arguments) => show::run(&settings, arguments),
        Command::New(arguments) => new::run(&settings, arguments),
        Command::Check(arguments) => check::run(&settings, arguments),
        Command::Schema(arguments) => schema::run(arguments),
        Command::Runs(command) => runs::run(&settings, command),
        Command::Sessions(command) => sessions::run(&settings, command),
        Command::Extensions(command) => extensions::run(&settings, command),
        Command::Explain(arguments) => explain::run(&settings, arguments),
        Command::Matrix(arguments) => matrix::run(&settings, arguments),
        Command::Audit(arguments) => audit::run(&settings, arguments),
        Command::Costs(arguments) => costs::run(&settings, arguments),
        Command::Events(arguments) => events::run(&settings, arguments),
        Command::Stats(arguments) => stats::run(&settings, arguments),
        Command::Serve(arguments) => serve::run(arguments, settings),
        Command::Run(arguments) => run_command::run(arguments, settings),
        Command::Plan(arguments) => plan::run(arguments, settings),
        Command::Doctor(arguments) => doctor::run(arguments, settings),
        Command::Demo(arguments) => demo::run(arguments, settings),
        Command::Hook(_) => hook::run(),
        Command::Gateway(arguments) => gateway::run(arguments, &settings),
        Command::Auth(command) => auth::run(&settings, command),
        Command::Token(command) => token::run(&settings, command),
        Command::Trust(arguments) => trust::run(arguments, &settings),
        Command::Completions { shell } => completions::run(*shell),
        Command::Init(wishes) => init::run(&settings, *wishes),
    }
}

/// Says an error with its causes, one line, and that nothing was done.
pub(super) fn refuse(error: &dyn Error) -> Exit {
    render::problem(render::with_causes(error));
    Exit::Usage
}
