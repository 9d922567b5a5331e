//! The steps of `adjutant demo`: choose the programs, show the permissions, delegate, print the events.

use std::fmt::Display;
use std::io;

use clap::Args;

use super::cast::DemoCast;
use super::project::{DemoPage, DemoProject, SECRET};
use super::{cast, play};
use crate::cli::{CliCommand, CommandError, CommandResult, ErrorCode, ExitStatus, output, runtime};
use crate::config::Settings;
use crate::util::{shorten, strip_control_chars};

/// Watch a complete delegation, with nothing to set up
///
/// A main agent that must not use `curl` gets an answer that a subagent fetched with `curl`. With `claude` on the PATH
/// and credentials, both are used; otherwise the real `claude` from npm talks to a scripted model on this machine.
/// Exit code 0; 1 if it could not be shown.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  adjutant demo\n  adjutant demo --scripted")]
pub(crate) struct DemoArguments {
    /// Use the scripted model even if there are credentials (costs nothing)
    #[arg(long)]
    scripted: bool,
}

impl CliCommand for DemoArguments {
    fn run(&self, settings: &Settings) -> CommandResult {
        runtime::block_on(async {
            let done = run_steps(settings, self.scripted).await;
            done.map_err(|error| failed(format_args!("the demo cannot go on: {error}")))?
        })
    }
}

/// The inner result is the outcome of the demo, the outer one that of its steps.
async fn run_steps(settings: &Settings, scripted: bool) -> io::Result<CommandResult> {
    output::print(
        "Adjutant: a main agent that must not use `curl` gets an answer that a subagent fetched with `curl`.\n",
    );
    let page = DemoPage::serve().await?;
    let project = DemoProject::build(&page)?;
    let cast = cast::choose(settings, &project, scripted).await?;
    print_title(1, "The cast");
    output::print(&cast.introduction);
    print_title(2, "The rights");
    output::print(
        "   main         .claude/settings.json  deny:  [\"Bash(curl:*)\"]\n   \
         web-search   agents/web-search/agent.md  permissions.allow:  [\"Bash(curl:*)\"]",
    );
    print_title(3, "The delegation");
    let answer = match cast.is_stand_in {
        false => play::run_with_claude(&cast, &project, &page).await?,
        true => play::run_with_stand_in(&cast, &project, &page).await?,
    };
    print_title(4, "What was recorded (data/events.jsonl, here without the ids)");
    for line in project.events() {
        output::print(format_args!("   {}", shorten(&strip_control_chars(&line), 180)));
    }
    Ok(print_result(answer.as_deref(), &cast))
}

/// Prints the result. The demo has succeeded if the answer contains the secret of the page.
fn print_result(answer: Option<&str>, cast: &DemoCast) -> CommandResult {
    if !answer.is_some_and(|answer| answer.contains(SECRET)) {
        return Err(failed(
            "the answer of the page did not come back; run `adjutant doctor` to see why",
        ));
    }
    output::print(format_args!(
        "\nIt worked: `main` could not fetch the page, `web-search` could, and `{SECRET}` came back.\n\nNext:"
    ));
    if cast.is_scripted {
        output::print(
            "   sign in to Claude Code (or set ANTHROPIC_API_KEY), and run the demo again with a real model",
        );
    }
    output::print(
        "   adjutant init              make a project of yours ready for Claude Code\n   \
         adjutant new my-agent      write your first agent, then: adjutant check · plan · run\n   \
         README.md, docs/           five minutes to your own agent, and everything else",
    );
    Ok(ExitStatus::Success)
}

fn failed(message: impl Display) -> CommandError {
    CommandError::new(ErrorCode::DemoFailed, message)
}

fn print_title(number: u32, text: &str) {
    output::print(format_args!("\n{number}  {text}"));
}
