//! The only door to stdout and stderr: data goes to the first, talk to the second.

use std::error::Error;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use serde::Serialize;

/// Writes data for the reader of stdout. A reader that went away is no error of ours.
pub(super) fn data(text: impl Display) {
    let _ = writeln!(io::stdout().lock(), "{text}");
}

/// Writes a value as pretty JSON for a program.
pub(super) fn json(value: &impl Serialize) {
    match serde_json::to_string_pretty(value) {
        Ok(text) => data(text),
        Err(error) => problem(format_args!("cannot write JSON: {error}")),
    }
}

/// Says something to the person at the terminal.
pub(super) fn talk(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Asks a person a question; where nobody is at the terminal the answer is no.
pub(super) fn ask(question: impl Display) -> bool {
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return false;
    }
    let _ = write!(io::stderr().lock(), "{question} [y/N] ");
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer).is_ok();
    read && matches!(answer.trim(), "y" | "Y" | "yes")
}

/// Invites an answer on the same line.
pub(super) fn prompt(text: impl Display) {
    let mut stderr = io::stderr().lock();
    let _ = write!(stderr, "{text} ");
    let _ = stderr.flush();
}

/// Says what went wrong, with `error:` before it.
pub(super) fn problem(text: impl Display) {
    talk(format_args!("error: {text}"));
}

/// An error with its causes, on one line.
pub(super) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text.push_str(": ");
        text.push_str(&source.to_string());
        cause = source.source();
    }
    text
}
