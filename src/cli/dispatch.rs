//! Entry point: parses the command line, rejects what a subagent may not do, and runs the command.

use std::env;
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches};

use super::args::{CliArguments, Command, CommandAccess};
use super::commands::{demo, hook};
use super::{CommandError, CommandResult, ErrorCode, ExitStatus, output, usage};
use crate::config::Settings;
use crate::process::{ancestor_agent, run_hidden_command};
use crate::util::one_line;

/// Runs the command of the command line, prints its error and returns its exit status.
pub fn main() -> ExitCode {
    if let Some(code) = run_hidden_command().or_else(demo::hidden_command) {
        return code;
    }
    if let Some(command) = hook::command_from_args() {
        return finish(&command, refuse_below_agent(&command).map(|()| hook::handle()), false);
    }
    match parse() {
        Ok((arguments, json)) => finish(&arguments.command, run(&arguments), json),
        Err(error) => print_usage_error(&error),
    }
}

/// Parses the command line; also returns whether it has `--json`.
fn parse() -> Result<(CliArguments, bool), clap::Error> {
    let matches = CliArguments::command().try_get_matches()?;
    Ok((CliArguments::from_arg_matches(&matches)?, has_json(&matches)))
}

fn has_json(matches: &ArgMatches) -> bool {
    let is_set = |matches: &ArgMatches| matches.try_get_one("json").ok().flatten() == Some(&true);
    is_set(matches) || matches.subcommand().is_some_and(|(_, matches)| has_json(matches))
}

fn run(arguments: &CliArguments) -> CommandResult {
    refuse_below_agent(&arguments.command)?;
    let root = arguments.root.as_deref();
    let settings = match arguments.command.needs_project() {
        true => Settings::resolve(root)?,
        false => Settings::resolve_or_current(root)?,
    };
    arguments.command.command().run(&settings)
}

fn finish(command: &Command, done: CommandResult, json: bool) -> ExitCode {
    let exit = done.unwrap_or_else(|error| {
        output::print_failure(&error, json);
        error.code.exit_status()
    });
    // Claude Code takes exit code 2 from a hook as "block this call".
    let is_hook = matches!(command, Command::Hook(_));
    if is_hook { ExitStatus::Success.into() } else { exit.into() }
}

/// Prints the help or the version if they were asked for, else an error in the arguments.
fn print_usage_error(error: &clap::Error) -> ExitCode {
    let mut arguments = env::args_os().skip(1).take_while(|argument| argument != "--");
    if !error.use_stderr() {
        let _ = error.print();
        return ExitStatus::Success.into();
    }
    if arguments.any(|argument| argument == "--json") {
        output::print_failure(&usage_error(error), true);
    } else {
        let _ = error.print();
    }
    ExitStatus::Usage.into()
}

/// Converts clap's text: the first paragraph is the message, a tip or the usage the remedy.
fn usage_error(error: &clap::Error) -> CommandError {
    let text = error.to_string();
    let mut paragraphs = text.split("\n\n").map(one_line);
    let message = paragraphs.next().unwrap_or_default();
    let error = usage(message.trim_start_matches("error: "));
    match paragraphs.next() {
        Some(help) => error.with_help(help.trim_start_matches("tip: ").trim_end_matches('.')),
        None => error,
    }
}

/// Rejects a command that acts for a caller or changes something if an agent started this process.
///
/// An agent has only the permissions that its file grants. Such a command would let it gain others: act as another
/// caller, use servers as another agent, or change the grants. The command is also rejected if its ancestors cannot be
/// determined.
///
/// The hidden commands `__keep`, `__exec` and `__stand-in-claude` are not checked. They start the programs that
/// their caller names, with the permissions of the caller, so they add nothing to the agent's shell.
fn refuse_below_agent(command: &Command) -> Result<(), CommandError> {
    if command.access() == CommandAccess::ReadsOnly {
        return Ok(());
    }
    let message = match ancestor_agent() {
        Ok(None) => return Ok(()),
        Ok(Some(agent)) => format!(
            "this command was started by the subagent `{agent}`: subagents cannot delegate, act for other callers or \
             change the project; let the main agent or a person run it"
        ),
        Err(error) => format!(
            "it cannot be determined whether a subagent started this command ({error}): it needs a mounted /proc"
        ),
    };
    Err(CommandError::new(ErrorCode::RefusedBelowAgent, message))
}
