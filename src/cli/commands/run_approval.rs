//! Asking the person at the terminal, beside the line that says what is happening.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal};
use std::sync::Arc;
use std::thread;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{Mutex, MutexGuard, watch};

use super::{render, terminal};
use crate::base::without_controls;
use crate::call::{Asker, Asking, Nobody, Question, Reply};

const PROMPT: &str = "allow [o]nce, allow for this [r]un, or [d]eny?";
/// After so many answers that are none, it is a no.
const PATIENCE: usize = 5;

/// The way to the person who typed the command, where a terminal leads there.
pub(super) fn at_terminal(screen: &Arc<Screen>) -> Arc<dyn Asker> {
    match keyboard() {
        Some(keyboard) if terminal::is_watched() => {
            let lines = Mutex::new(Keyboard::Closed(Some(keyboard)));
            Arc::new(TerminalAsker { lines, screen: Arc::clone(screen) })
        }
        Some(_) | None => Arc::new(Nobody::because("`adjutant run` has no terminal")),
    }
}

/// Who may write to the terminal: the live line, or a question.
#[derive(Default)]
pub(super) struct Screen {
    wanted: watch::Sender<bool>,
    writing: Mutex<()>,
}

impl Screen {
    /// Waits until nobody else writes.
    pub(super) async fn take(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().await
    }

    /// Says whether a question wants the screen.
    pub(super) fn wanted(&self) -> watch::Receiver<bool> {
        self.wanted.subscribe()
    }
}

/// Gives the screen back, however the question ended.
struct Turn<'s> {
    screen: &'s Screen,
    _writing: MutexGuard<'s, ()>,
}

impl<'s> Turn<'s> {
    async fn begin(screen: &'s Screen) -> Self {
        screen.wanted.send_replace(true);
        Self { screen, _writing: screen.take().await }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.screen.wanted.send_replace(false);
    }
}

type Input = Box<dyn BufRead + Send>;

/// Stdin where a person types there; where it carried the task, the terminal itself.
fn keyboard() -> Option<Input> {
    if io::stdin().is_terminal() {
        return Some(Box::new(BufReader::new(io::stdin())));
    }
    let terminal = File::open("/dev/tty").ok().filter(IsTerminal::is_terminal)?;
    Some(Box::new(BufReader::new(terminal)))
}

/// Read from the first question on: before it, what is typed is not for us.
enum Keyboard {
    Closed(Option<Input>),
    Open(UnboundedReceiver<String>),
}

impl Keyboard {
    /// Forgets what was typed before the question was seen.
    fn open(&mut self) -> Option<&mut UnboundedReceiver<String>> {
        if let Self::Closed(input) = self {
            *self = Self::Open(lines_of(input.take()?));
        }
        let Self::Open(lines) = self else { return None };
        while lines.try_recv().is_ok() {}
        Some(lines)
    }
}

/// A thread of its own: a read of a terminal cannot be called back.
fn lines_of(input: Input) -> UnboundedReceiver<String> {
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

struct TerminalAsker {
    lines: Mutex<Keyboard>,
    screen: Arc<Screen>,
}

impl TerminalAsker {
    async fn answer(&self, question: &Question) -> Reply {
        let mut keyboard = self.lines.lock().await;
        let _turn = Turn::begin(&self.screen).await;
        let Some(lines) = keyboard.open() else { return gone() };
        render::talk(without_controls(&question.text()));
        for _ in 0..PATIENCE {
            render::prompt(PROMPT);
            match lines.recv().await.as_deref().map(understood) {
                Some(Some(reply)) => return reply,
                Some(None) => {}
                None => return gone(),
            }
        }
        Reply::Deny
    }
}

impl Asker for TerminalAsker {
    fn absence(&self) -> Option<String> {
        None
    }

    fn ask<'a>(&'a self, question: &'a Question) -> Asking<'a> {
        Box::pin(self.answer(question))
    }
}

fn understood(line: &str) -> Option<Reply> {
    match line.trim().to_lowercase().as_str() {
        "o" | "once" | "y" | "yes" => Some(Reply::AllowOnce),
        "r" | "run" => Some(Reply::AllowForRun),
        "d" | "deny" | "n" | "no" => Some(Reply::Deny),
        _ => None,
    }
}

fn gone() -> Reply {
    Reply::Unreachable { why: "the terminal was closed".to_owned() }
}
