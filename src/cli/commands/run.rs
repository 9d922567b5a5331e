//! `adjutant run`: one delegation from the terminal.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::approval::{self, Screen};
use super::dispatch::refuse;
use super::exit::Exit;
use super::runtime::{main_session, quiet_gateway, start_prompt_shutdown};
use super::{logging, nesting, render, runtime, terminal};
use crate::base::without_controls;
use crate::call::{MAX_TEXT_BYTES, Orchestrator, Request, Status, StatusBoard};
use crate::config::Settings;
use crate::identity::Caller;
use crate::outcome::{Outcome, Report};
use crate::worker::Shutdown;

/// Hand one task to an agent and print its answer.
///
/// The answer goes to stdout, everything else to stderr. Ctrl-C ends the run cleanly.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  adjutant run web-search \"What is new in Rust?\"
  git diff | adjutant run reviewer -
  adjutant run web-search \"…\" --json | jq .cost_usd

Exit codes: 0 answered; 1 claude failed; 2 wrong arguments; 3 no such agent, broken or not allowed;
4 could not start; 5 budget or turns used up; 6 the answer does not fit its schema; 75 busy, try again;
124 timeout; 130 cancelled.")]
pub(super) struct RunArguments {
    /// The agent
    agent: String,
    /// The task; `-`, or nothing, reads it from stdin
    prompt: Option<String>,
    /// Background for the agent, kept apart from the task
    #[arg(long, value_name = "TEXT")]
    context: Option<String>,
    /// Which of the agent's conversations
    #[arg(long, value_name = "KEY")]
    session_key: Option<String>,
    /// Start that conversation over
    #[arg(long)]
    fresh: bool,
    /// Who calls
    #[arg(long, value_name = "NAME", default_value = "main")]
    caller: String,
    /// Print the whole report as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    log: logging::LogArguments,
}

pub(super) fn run(arguments: &RunArguments, settings: Settings) -> Exit {
    if let Some(refused) = nesting::refuse_inside_a_run("run") {
        return refused;
    }
    // What the shared servers' files are like is for `check` and `serve` to say.
    logging::start(&arguments.log, "warn,adjutant::gateway::files=error");
    let prompt = match prompt(arguments.prompt.as_deref()) {
        Ok(prompt) => prompt,
        Err(error) => {
            render::problem(format_args!("the task cannot be read from stdin: {error}"));
            return Exit::Usage;
        }
    };
    let request = Request {
        agent_name: arguments.agent.clone(),
        prompt,
        context: arguments.context.clone(),
        session_key: arguments.session_key.clone(),
        fresh: arguments.fresh,
    };
    let caller = Caller { session_id: main_session(), ..Caller::named(&arguments.caller) };
    let json = arguments.json;
    runtime::block_on(async move {
        let shutdown = match start_prompt_shutdown() {
            Ok(shutdown) => shutdown,
            Err(error) => return refuse(&error),
        };
        let report = delegate(settings, shutdown, request, caller).await;
        show(&report, json);
        exit(&report)
    })
}

async fn delegate(
    settings: Settings,
    shutdown: Shutdown,
    request: Request,
    caller: Caller,
) -> Report {
    let gateway = quiet_gateway(&settings);
    let orchestrator = Orchestrator::start(settings, shutdown, gateway);
    let (board, status) = StatusBoard::new();
    let screen = Arc::new(Screen::default());
    let line = terminal::is_watched()
        .then(|| tokio::spawn(live_line(request.agent_name.clone(), status, Arc::clone(&screen))));
    let asker = approval::at_terminal(&screen);
    let report = orchestrator.run(request, caller, board, CancellationToken::new(), asker).await;
    orchestrator.end_all().await;
    if let Some(line) = line {
        let _ = line.await;
    }
    report
}

fn prompt(given: Option<&str>) -> io::Result<String> {
    match given {
        Some(text) if text != "-" => Ok(text.to_owned()),
        _ => {
            // One byte over the limit, so that the refusal is the same as over MCP.
            let mut text = String::new();
            io::stdin().take(MAX_TEXT_BYTES as u64 + 1).read_to_string(&mut text)?;
            Ok(text)
        }
    }
}

/// One line that says what is happening, gone while a person is asked and when the run is over.
async fn live_line(agent: String, mut status: watch::Receiver<Status>, screen: Arc<Screen>) {
    let mut wanted = screen.wanted();
    let since = Instant::now();
    loop {
        let writing = screen.take().await;
        let bar = spinner(&agent).with_elapsed(since.elapsed());
        let is_over = tokio::select! {
            () = follow(&mut status, &bar) => true,
            _ = wanted.wait_for(|wanted| *wanted) => false,
        };
        bar.finish_and_clear();
        drop(writing);
        if is_over || wanted.wait_for(|wanted| !wanted).await.is_err() {
            return;
        }
    }
}

async fn follow(status: &mut watch::Receiver<Status>, bar: &ProgressBar) {
    loop {
        bar.set_message(status.borrow_and_update().line());
        if status.changed().await.is_err() {
            return;
        }
    }
}

fn spinner(agent: &str) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} {wide_msg} {elapsed}") {
        bar.set_style(style);
    }
    bar.set_prefix(without_controls(agent));
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

fn show(report: &Report, json: bool) {
    if json {
        render::json(&as_json(report));
        return;
    }
    match &report.outcome {
        Outcome::Answered(answer) if terminal::shows_data() => {
            render::data(without_controls(&answer.text));
        }
        Outcome::Answered(answer) => render::data(&answer.text),
        Outcome::Failed(failure) => {
            render::talk(without_controls(&failure.sentence()));
            if let Some(partial) = &failure.partial {
                render::talk("what it had written so far (not its answer):");
                render::talk(without_controls(partial));
            }
        }
    }
    for denial in &report.denials {
        render::talk(without_controls(&format!("denied: {} ({})", denial.tool, denial.rule)));
    }
    for note in &report.notes {
        render::talk(without_controls(&format!("note: {note}")));
    }
    render::talk(summary(report));
}

/// `web-search · 12.4 s · 6 turns · $0.031`.
fn summary(report: &Report) -> String {
    let seconds = std::time::Duration::from_millis(report.duration_ms).as_secs_f64();
    let mut line = format!("{} · {seconds:.1} s", without_controls(&report.agent));
    if let Some(turns) = report.turns {
        line.push_str(&format!(" · {turns} {}", if turns == 1 { "turn" } else { "turns" }));
    }
    if let Some(cost) = report.cost_usd {
        line.push_str(&format!(" · ${cost:.3}"));
    }
    line
}

fn as_json(report: &Report) -> serde_json::Value {
    let mut value = json!({
        "agent": report.agent, "run_id": report.run_id.to_string(), "duration_ms": report.duration_ms,
        "session_id": report.session_id, "cost_usd": report.cost_usd, "turns": report.turns,
        "denials": report.denials, "note": (!report.notes.is_empty()).then(|| report.notes.join(" ")),
    });
    let part = match &report.outcome {
        Outcome::Answered(answer) => json!({ "result": answer.text, "output": answer.output }),
        Outcome::Failed(failure) => json!({
            "error": failure.sentence(), "code": failure.code, "partial": failure.partial,
            "errors": (!failure.errors.is_empty()).then_some(&failure.errors),
        }),
    };
    if let (Some(object), serde_json::Value::Object(part)) = (value.as_object_mut(), part) {
        object.extend(part);
        object.retain(|_, value| !value.is_null());
    }
    value
}

fn exit(report: &Report) -> Exit {
    match &report.outcome {
        Outcome::Answered(_) => Exit::Success,
        Outcome::Failed(failure) => Exit::Code(failure.code.exit_code()),
    }
}
