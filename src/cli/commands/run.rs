//! `adjutant run`: runs one task with an agent from the terminal.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::super::dispatch::usage_error;
use super::super::runtime::{lazy_gateway, main_session_id, start_immediate_shutdown};
use super::run_approval;
use super::run_approval::TerminalLock;
use crate::cli::command::{CliCommand, CommandAccess};
use crate::cli::exit_status::ExitStatus;
use crate::cli::format::{format_usd, plural};
use crate::cli::{logging, output, runtime, terminal};
use crate::config::Settings;
use crate::delegation::{MAX_TEXT_BYTES, Orchestrator, RunRequest, RunStatus, StatusSender};
use crate::identity::Caller;
use crate::outcome::{Outcome, Report};
use crate::process::Shutdown;
use crate::util::strip_control_chars;

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
pub(crate) struct RunArguments {
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

impl CliCommand for RunArguments {
    fn access(&self) -> CommandAccess {
        CommandAccess::ActsOrChanges
    }

    fn run(&self, settings: &Settings) -> ExitStatus {
        let settings = settings.clone();
        // Findings about the files of the shared servers are reported by `check` and `serve`.
        logging::init(&self.log, "warn,adjutant::gateway::config::active=error");
        let prompt = match read_task(self.prompt.as_deref()) {
            Ok(prompt) => prompt,
            Err(error) => {
                output::print_error(format_args!("the task cannot be read from stdin: {error}"));
                return ExitStatus::Usage;
            }
        };
        let request = RunRequest {
            agent_name: self.agent.clone(),
            prompt,
            context: self.context.clone(),
            session_key: self.session_key.clone(),
            fresh: self.fresh,
        };
        let caller = Caller { session_id: main_session_id(), ..Caller::named(&self.caller) };
        let json = self.json;
        runtime::block_on(async move {
            let shutdown = match start_immediate_shutdown() {
                Ok(shutdown) => shutdown,
                Err(error) => return usage_error(&error),
            };
            let report = delegate(settings, shutdown, request, caller).await;
            print_report(&report, json);
            exit_status(&report)
        })
    }
}

async fn delegate(
    settings: Settings,
    shutdown: Shutdown,
    request: RunRequest,
    caller: Caller,
) -> Report {
    let gateway = lazy_gateway(&settings);
    let orchestrator = Orchestrator::start(settings, shutdown, gateway);
    let (status_sender, status) = StatusSender::new();
    let screen = Arc::new(TerminalLock::default());
    let line = terminal::stderr_is_terminal().then(|| {
        tokio::spawn(show_status_line(request.agent_name.clone(), status, Arc::clone(&screen)))
    });
    let asker = run_approval::terminal_prompt(&screen);
    let report =
        orchestrator.run(request, caller, status_sender, CancellationToken::new(), asker).await;
    orchestrator.stop_all().await;
    if let Some(line) = line {
        let _ = line.await;
    }
    report
}

fn read_task(given: Option<&str>) -> io::Result<String> {
    match given {
        Some(text) if text != "-" => Ok(text.to_owned()),
        _ => {
            // One byte over the limit, so that the error is the same as over MCP.
            let mut text = String::new();
            io::stdin().take(MAX_TEXT_BYTES as u64 + 1).read_to_string(&mut text)?;
            Ok(text)
        }
    }
}

/// Shows the status line until the run ends; hidden while an approval question is shown.
async fn show_status_line(
    agent: String,
    mut status: watch::Receiver<RunStatus>,
    screen: Arc<TerminalLock>,
) {
    let mut wanted = screen.wanted();
    let since = Instant::now();
    loop {
        let writing = screen.lock().await;
        let bar = spinner(&agent).with_elapsed(since.elapsed());
        let is_over = tokio::select! {
            () = update_status(&mut status, &bar) => true,
            _ = wanted.wait_for(|wanted| *wanted) => false,
        };
        bar.finish_and_clear();
        drop(writing);
        if is_over || wanted.wait_for(|wanted| !wanted).await.is_err() {
            return;
        }
    }
}

async fn update_status(status: &mut watch::Receiver<RunStatus>, bar: &ProgressBar) {
    loop {
        bar.set_message(status.borrow_and_update().summary());
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
    bar.set_prefix(strip_control_chars(agent));
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

fn print_report(report: &Report, json: bool) {
    if json {
        output::print_json(&to_json(report));
        return;
    }
    match &report.outcome {
        Outcome::Answered(answer) if terminal::stdout_is_terminal() => {
            output::print(strip_control_chars(&answer.text));
        }
        Outcome::Answered(answer) => output::print(&answer.text),
        Outcome::Failed(failure) => {
            output::print_message(strip_control_chars(&failure.full_message()));
            if let Some(partial) = &failure.partial {
                output::print_message("what it had written so far (not its answer):");
                output::print_message(strip_control_chars(partial));
            }
        }
    }
    for denial in &report.denials {
        output::print_message(strip_control_chars(&format!(
            "denied: {} ({})",
            denial.tool, denial.rule
        )));
    }
    for note in &report.notes {
        output::print_message(strip_control_chars(&format!("note: {note}")));
    }
    output::print_message(format_summary(report));
}

/// Formats the summary: `web-search · 12.4 s · 6 turns · $0.031`.
fn format_summary(report: &Report) -> String {
    let seconds = std::time::Duration::from_millis(report.duration_ms).as_secs_f64();
    let mut line = format!("{} · {seconds:.1} s", strip_control_chars(&report.agent));
    if let Some(turns) = report.turns {
        line.push_str(&format!(" · {}", plural(turns, "turn")));
    }
    if let Some(cost) = report.cost_usd {
        line.push_str(&format!(" · {}", format_usd(cost)));
    }
    line
}

fn to_json(report: &Report) -> serde_json::Value {
    let mut value = json!({
        "agent": report.agent, "run_id": report.run_id.to_string(), "duration_ms": report.duration_ms,
        "session_id": report.session_id, "cost_usd": report.cost_usd, "turns": report.turns,
        "denials": report.denials, "note": (!report.notes.is_empty()).then(|| report.notes.join(" ")),
    });
    let part = match &report.outcome {
        Outcome::Answered(answer) => json!({ "result": answer.text, "output": answer.output }),
        Outcome::Failed(failure) => json!({
            "error": failure.full_message(), "code": failure.code, "partial": failure.partial,
            "errors": (!failure.errors.is_empty()).then_some(&failure.errors),
        }),
    };
    if let (Some(object), serde_json::Value::Object(part)) = (value.as_object_mut(), part) {
        object.extend(part);
        object.retain(|_, value| !value.is_null());
    }
    value
}

fn exit_status(report: &Report) -> ExitStatus {
    match &report.outcome {
        Outcome::Answered(_) => ExitStatus::Success,
        Outcome::Failed(failure) => ExitStatus::Code(failure.code.exit_code()),
    }
}
