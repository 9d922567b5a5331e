//! All output of the commands: data goes to stdout, messages go to stderr.

use std::error::Error;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use serde::Serialize;

/// Writes a line to stdout. Errors are ignored: a closed pipe is not a failure of the command.
pub(crate) fn print(text: impl Display) {
    let _ = writeln!(io::stdout().lock(), "{text}");
}

/// Writes a value to stdout as indented JSON.
pub(crate) fn print_json(value: &impl Serialize) {
    match serde_json::to_string_pretty(value) {
        Ok(text) => print(text),
        Err(error) => print_error(format_args!("cannot write JSON: {error}")),
    }
}

/// Writes a message to stderr.
pub(crate) fn print_message(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Asks a yes/no question. Returns `false` unless stdin and stderr are terminals.
pub(crate) fn confirm(question: impl Display) -> bool {
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return false;
    }
    let _ = write!(io::stderr().lock(), "{question} [y/N] ");
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer).is_ok();
    read && matches!(answer.trim(), "y" | "Y" | "yes")
}

/// Writes a prompt to stderr without a line break.
pub(crate) fn print_prompt(text: impl Display) {
    let mut stderr = io::stderr().lock();
    let _ = write!(stderr, "{text} ");
    let _ = stderr.flush();
}

/// Writes a message to stderr with the prefix `error:`.
pub(crate) fn print_error(text: impl Display) {
    print_message(format_args!("error: {text}"));
}

/// Formats an error with its causes on one line.
pub(crate) fn error_with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text.push_str(": ");
        text.push_str(&source.to_string());
        cause = source.source();
    }
    text
}
