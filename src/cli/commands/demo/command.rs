//! The acts of the demo in order: who plays, where, what happens, what was recorded, what next.

use clap::Args;

use super::cast::{Cast, Main};
use super::page::Page;
use super::scene::Scene;
use super::{cast, play};
use crate::base::{shorten, without_controls};
use crate::cli::exit::Exit;
use crate::cli::{nesting, render, runtime};
use crate::config::Settings;

/// Watch a complete delegation, with nothing to set up
///
/// A main agent that must not use `curl` gets an answer that a subagent fetched with `curl`. With `claude` on the PATH
/// and credentials, both are used; otherwise the real `claude` from npm talks to a scripted model on this machine.
/// Exit code 0; 1 if it could not be shown.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  adjutant demo\n  adjutant demo --scripted")]
pub(in crate::cli) struct DemoArguments {
    /// Use the scripted model even if there are credentials (costs nothing)
    #[arg(long)]
    scripted: bool,
}

pub(in crate::cli) fn run(arguments: &DemoArguments, settings: Settings) -> Exit {
    if let Some(refused) = nesting::refuse_inside_a_run("demo") {
        return refused;
    }
    let scripted = arguments.scripted;
    runtime::block_on(async move {
        match acts(&settings, scripted).await {
            Ok(exit) => exit,
            Err(error) => {
                render::problem(format_args!("the demo cannot go on: {error}"));
                Exit::Failure
            }
        }
    })
}

async fn acts(settings: &Settings, scripted: bool) -> std::io::Result<Exit> {
    render::data(
        "Adjutant: a main agent that must not use `curl` gets an answer that a subagent fetched with `curl`.\n",
    );
    let page = Page::serve().await?;
    let scene = Scene::build(&page)?;
    let cast = cast::choose(settings, &scene, scripted).await?;
    title(1, "The cast");
    for line in &cast.introduction {
        render::data(format_args!("   {line}"));
    }
    title(2, "The rights");
    render::data("   main         .claude/settings.json  deny:  [\"Bash(curl:*)\"]");
    render::data(
        "   web-search   agents/web-search/agent.md  permissions.allow:  [\"Bash(curl:*)\"]",
    );
    title(3, "The delegation");
    let answer = match &cast.main {
        Main::Claude => play::with_a_main_claude(&cast, &scene, &page).await?,
        Main::StandIn => play::with_a_stand_in(&cast, &scene, &page).await?,
    };
    title(4, "What was recorded (data/events.jsonl, here without the ids)");
    for line in scene.events() {
        render::data(format_args!("   {}", shorten(&without_controls(&line), 180)));
    }
    Ok(finish(answer.as_deref(), &cast))
}

/// Says whether it worked: the page's own words must have come back.
fn finish(answer: Option<&str>, cast: &Cast) -> Exit {
    let worked = answer.is_some_and(|answer| answer.contains(super::page::SECRET));
    if !worked {
        render::problem(
            "the answer of the page did not come back; run `adjutant doctor` to see why",
        );
        return Exit::Failure;
    }
    render::data(format_args!(
        "\nIt worked: `main` could not fetch the page, `web-search` could, and `{}` came back.",
        super::page::SECRET
    ));
    render::data("\nNext:");
    if cast.is_scripted {
        render::data(
            "   sign in to Claude Code (or set ANTHROPIC_API_KEY), and run the demo again with a real model",
        );
    }
    render::data("   adjutant init              make a project of yours ready for Claude Code");
    render::data(
        "   adjutant new my-agent      write your first agent, then: adjutant check · plan · run",
    );
    render::data(
        "   README.md, docs/           five minutes to your own agent, and everything else",
    );
    Exit::Success
}

fn title(number: u32, text: &str) {
    render::data(format_args!("\n{number}  {text}"));
}
