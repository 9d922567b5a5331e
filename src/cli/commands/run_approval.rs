//! Approval prompt on the terminal of `adjutant run`, coordinated with the status line.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal};
use std::sync::Arc;
use std::thread;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{Mutex, MutexGuard, watch};

use crate::cli::{output, terminal};
use crate::delegation::{
    ApprovalAnswer, ApprovalFuture, ApprovalPrompt, ApprovalQuestion, NoApprover,
};
use crate::util::strip_control_chars;

const PROMPT: &str = "allow [o]nce, allow for this [r]un, or [d]eny?";
/// Unrecognized answers after which the request is denied.
const MAX_ATTEMPTS: usize = 5;

/// Returns the terminal prompt, or `NoApprover` without a keyboard or if stderr is not a terminal.
pub(crate) fn terminal_prompt(screen: &Arc<TerminalLock>) -> Arc<dyn ApprovalPrompt> {
    match open_keyboard() {
        Some(keyboard) if terminal::stderr_is_terminal() => {
            let lines = Mutex::new(Keyboard::Closed(Some(keyboard)));
            Arc::new(TerminalPrompt { keyboard: lines, screen: Arc::clone(screen) })
        }
        Some(_) | None => Arc::new(NoApprover::new("`adjutant run` has no terminal")),
    }
}

/// Lock on the terminal, shared by the status line and approval questions.
#[derive(Default)]
pub(crate) struct TerminalLock {
    question_pending: watch::Sender<bool>,
    lock: Mutex<()>,
}

impl TerminalLock {
    pub(crate) async fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().await
    }

    /// Returns a channel that holds `true` while a question waits for the lock or holds it.
    pub(crate) fn wanted(&self) -> watch::Receiver<bool> {
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
