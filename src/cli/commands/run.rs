//! `adjutant run`: runs one task with an agent from the terminal, with a status line and a prompt for approvals.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{Mutex, MutexGuard, watch};
use tokio_util::sync::CancellationToken;

use crate::cli::format::{format_usd, plural};
use crate::cli::runtime::{lazy_gateway, main_session_id, start_immediate_shutdown};
use crate::cli::{CliCommand, CommandResult, ExitStatus, logging, output, runtime, usage};
use crate::config::Settings;
use crate::delegation::{
    ApprovalAnswer, ApprovalFuture, ApprovalPrompt, ApprovalQuestion, MAX_TEXT_BYTES, NoApprover,
    Orchestrator, RunRequest, RunStatus, StatusSender,
};
use crate::identity::Caller;
use crate::outcome::{Outcome, Report};
use crate::process::Shutdown;
use crate::util::{one_line, strip_control_chars};

const PROMPT: &str = "allow [o]nce, allow for this [r]un, or [d]eny?";
/// Unrecognized answers after which the request is denied.
const MAX_ATTEMPTS: usize = 5;

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
    /// Print the answer exactly as the agent wrote it, with escape sequences and control characters
    #[arg(long, conflicts_with = "json")]
    raw: bool,

    #[command(flatten)]
    log: logging::LogArguments,
}

impl CliCommand for RunArguments {
    fn run(&self, settings: &Settings) -> CommandResult {
        let settings = settings.clone();
        // Findings about the files of the shared servers are reported by `check` and `serve`.
        logging::init(&self.log, "warn,adjutant::gateway::config::active=error");
        let prompt = read_task(self.prompt.as_deref())
            .map_err(|error| usage(format_args!("the task cannot be read from stdin: {error}")))?;
        let request = RunRequest {
            agent_name: self.agent.clone(),
            prompt,
            context: self.context.clone(),
            session_key: self.session_key.clone(),
            fresh: self.fresh,
        };
        let caller = Caller { session_id: main_session_id(), ..Caller::named(&self.caller) };
        let (json, raw) = (self.json, self.raw);
        runtime::block_on(async move {
            let shutdown = start_immediate_shutdown()?;
            let report = delegate(settings, shutdown, request, caller).await;
            print_report(&report, json, raw);
            Ok(match &report.outcome {
                Outcome::Answered(_) => ExitStatus::Success,
                Outcome::Failed(failure) => ExitStatus::of_run(failure.code),
            })
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
    let line = output::stderr_is_terminal().then(|| {
        tokio::spawn(show_status_line(request.agent_name.clone(), status, Arc::clone(&screen)))
    });
    let asker = terminal_prompt(&screen);
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
        bar.set_message(one_line(&status.borrow_and_update().summary()));
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

fn print_report(report: &Report, json: bool, raw: bool) {
    if json {
        output::print_json(&report.to_object());
        if let Outcome::Failed(failure) = &report.outcome {
            output::print_error(failure.full_message());
        }
        return;
    }
    match &report.outcome {
        Outcome::Answered(answer) if raw => output::print_raw(&answer.text),
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

/// Returns the terminal prompt, or `NoApprover` without a keyboard or if stderr is not a terminal.
fn terminal_prompt(screen: &Arc<TerminalLock>) -> Arc<dyn ApprovalPrompt> {
    match open_keyboard() {
        Some(keyboard) if output::stderr_is_terminal() => {
            let lines = Mutex::new(Keyboard::Closed(Some(keyboard)));
            Arc::new(TerminalPrompt { keyboard: lines, screen: Arc::clone(screen) })
        }
        Some(_) | None => Arc::new(NoApprover::new("`adjutant run` has no terminal")),
    }
}

/// Lock on the terminal, shared by the status line and approval questions.
#[derive(Default)]
struct TerminalLock {
    question_pending: watch::Sender<bool>,
    lock: Mutex<()>,
}

impl TerminalLock {
    async fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().await
    }

    /// Returns a channel that holds `true` while a question waits for the lock or holds it.
    fn wanted(&self) -> watch::Receiver<bool> {
        self.question_pending.subscribe()
    }
}

/// Holds the terminal for one question; the status line may return when dropped.
struct ScreenGuard<'s> {
    screen: &'s TerminalLock,
    _writing: MutexGuard<'s, ()>,
}

impl<'s> ScreenGuard<'s> {
    async fn acquire(screen: &'s TerminalLock) -> Self {
        screen.question_pending.send_replace(true);
        Self { screen, _writing: screen.lock().await }
    }
}

impl Drop for ScreenGuard<'_> {
    fn drop(&mut self) {
        self.screen.question_pending.send_replace(false);
    }
}

type KeyboardInput = Box<dyn BufRead + Send>;

/// Opens stdin if it is a terminal, else `/dev/tty`: stdin may carry the task.
fn open_keyboard() -> Option<KeyboardInput> {
    if io::stdin().is_terminal() {
        return Some(Box::new(BufReader::new(io::stdin())));
    }
    let terminal = File::open("/dev/tty").ok().filter(IsTerminal::is_terminal)?;
    Some(Box::new(BufReader::new(terminal)))
}

/// Keyboard input, not read before the first question.
enum Keyboard {
    Closed(Option<KeyboardInput>),
    Open(UnboundedReceiver<String>),
}

impl Keyboard {
    /// Starts reading on the first call and discards lines typed before the question.
    fn lines(&mut self) -> Option<&mut UnboundedReceiver<String>> {
        if let Self::Closed(input) = self {
            *self = Self::Open(spawn_line_reader(input.take()?));
        }
        let Self::Open(lines) = self else { return None };
        while lines.try_recv().is_ok() {}
        Some(lines)
    }
}

/// Reads lines on a separate thread, because a blocking read of a terminal cannot be cancelled.
fn spawn_line_reader(input: KeyboardInput) -> UnboundedReceiver<String> {
    let (sender, lines) = unbounded_channel();
    thread::spawn(move || {
        for line in input.lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

struct TerminalPrompt {
    keyboard: Mutex<Keyboard>,
    screen: Arc<TerminalLock>,
}

impl TerminalPrompt {
    async fn prompt_user(&self, question: &ApprovalQuestion) -> ApprovalAnswer {
        let mut keyboard = self.keyboard.lock().await;
        let _turn = ScreenGuard::acquire(&self.screen).await;
        let Some(lines) = keyboard.lines() else { return terminal_closed() };
        output::print_message(strip_control_chars(&question.text()));
        for _ in 0..MAX_ATTEMPTS {
            output::print_prompt(PROMPT);
            match lines.recv().await.as_deref().map(parse_answer) {
                Some(Some(reply)) => return reply,
                Some(None) => {}
                None => return terminal_closed(),
            }
        }
        ApprovalAnswer::Deny
    }
}

impl ApprovalPrompt for TerminalPrompt {
    fn unavailable_reason(&self) -> Option<String> {
        None
    }

    fn ask<'a>(&'a self, question: &'a ApprovalQuestion) -> ApprovalFuture<'a> {
        Box::pin(self.prompt_user(question))
    }
}

fn parse_answer(line: &str) -> Option<ApprovalAnswer> {
    match line.trim().to_lowercase().as_str() {
        "o" | "once" | "y" | "yes" => Some(ApprovalAnswer::AllowOnce),
        "r" | "run" => Some(ApprovalAnswer::AllowForRun),
        "d" | "deny" | "n" | "no" => Some(ApprovalAnswer::Deny),
        _ => None,
    }
}

fn terminal_closed() -> ApprovalAnswer {
    ApprovalAnswer::Unreachable { why: "the terminal was closed".to_owned() }
}
