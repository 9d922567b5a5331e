//! All output of the commands: data goes to stdout, messages go to stderr.
//!
//! Escape sequences and control characters are removed from all text; only JSON and `print_raw` leave it unchanged.

use std::env;
use std::error::Error;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use super::{CommandError, CommandResult, ExitStatus, JsonArgument};
use crate::api::ErrorReport;
use crate::util::strip_control_chars;

/// Writes text for a person to stdout.
pub(crate) fn print(text: impl Display) {
    print_raw(strip_control_chars(&text.to_string()));
}

/// Writes a line to stdout as it is. Errors are ignored: a closed pipe is not a failure of the command.
pub(crate) fn print_raw(text: impl Display) {
    let _ = writeln!(io::stdout().lock(), "{text}");
}

/// Writes a value to stdout as indented JSON.
pub(crate) fn print_json(value: &impl Serialize) {
    match serde_json::to_string_pretty(value) {
        Ok(text) => print_raw(text),
        Err(error) => print_error(format_args!("cannot write JSON: {error}")),
    }
}

/// Result of a command: a value for programs, its text for people, and the exit status.
#[must_use]
pub(crate) struct CommandReport {
    json: Result<String, serde_json::Error>,
    text: Vec<TextPart>,
    exit: ExitStatus,
}

enum TextPart {
    Data(String),
    Message(String),
    /// A message with colours of our own.
    Styled(String),
}

impl CommandReport {
    pub(crate) fn new(value: &impl Serialize) -> Self {
        let json = serde_json::to_string_pretty(value);
        Self { json, text: Vec::new(), exit: ExitStatus::Success }
    }

    /// Returns the output of a list. `none` replaces the text of an empty list, on stderr.
    pub(crate) fn list<T: Serialize, D: Display>(
        list: &[T],
        none: &str,
        text: impl FnOnce() -> D,
    ) -> Self {
        let output = Self::new(&list);
        if list.is_empty() { output.message(none) } else { output.data(text()) }
    }

    /// Adds text for stdout.
    pub(crate) fn data(mut self, text: impl Display) -> Self {
        self.text.push(TextPart::Data(text.to_string()));
        self
    }

    /// Adds text for stderr, which is not printed with `--json`.
    pub(crate) fn message(mut self, text: impl Display) -> Self {
        self.text.push(TextPart::Message(text.to_string()));
        self
    }

    /// Adds a message with colours of our own.
    pub(crate) fn styled(mut self, text: impl Display) -> Self {
        self.text.push(TextPart::Styled(text.to_string()));
        self
    }

    pub(crate) fn exit(self, exit: ExitStatus) -> Self {
        Self { exit, ..self }
    }

    /// Writes the value as JSON, or its text.
    pub(crate) fn print(self, format: JsonArgument) -> CommandResult {
        if format.json {
            print_raw(self.json.map_err(io::Error::from)?);
        } else {
            for part in self.text {
                match part {
                    TextPart::Data(text) => print(text),
                    TextPart::Message(text) => print_message(text),
                    TextPart::Styled(text) => print_styled(text),
                }
            }
        }
        Ok(self.exit)
    }
}

/// Writes the result of a command to stdout: as JSON, or as text.
pub(crate) fn print_result<D: Display>(
    json: bool,
    result: &impl Serialize,
    text: impl FnOnce() -> D,
) {
    if json { print_json(result) } else { print(text()) }
}

/// Writes a list to stdout: as JSON, or as text. `none` replaces the text of an empty list, on stderr.
pub(crate) fn print_list<T: Serialize, D: Display>(
    json: bool,
    list: &[T],
    none: &str,
    text: impl FnOnce() -> D,
) {
    if list.is_empty() && !json { print_message(none) } else { print_result(json, &list, text) }
}

/// Writes a message to stderr.
pub(crate) fn print_message(text: impl Display) {
    print_styled(strip_control_chars(&text.to_string()));
}

/// Writes a message with colours of our own to stderr.
pub(crate) fn print_styled(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Asks a yes/no question. Returns `false` unless stdin and stderr are terminals.
pub(crate) fn confirm(question: impl Display) -> bool {
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return false;
    }
    let _ = write!(io::stderr().lock(), "{} [y/N] ", strip_control_chars(&question.to_string()));
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

/// Writes the error of a command: a sentence to stderr, and with `json` the object to stdout.
pub(crate) fn print_failure(error: &CommandError, json: bool) {
    if json {
        print_json(&ErrorReport { error: error.to_object() });
    }
    print_error(error);
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

/// Returns true if stderr is a terminal and `NO_COLOR` is unset or empty.
pub(crate) fn use_colours() -> bool {
    stderr_is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

pub(crate) fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

pub(crate) fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Returns the width of the output in columns: `COLUMNS` if it is a number above 0, else the width of the terminal on
/// stdout, else `None`.
pub(crate) fn width() -> Option<u16> {
    let columns = env::var("COLUMNS").ok().and_then(|text| text.trim().parse().ok());
    let width = columns.or_else(|| Some(rustix::termios::tcgetwinsize(io::stdout()).ok()?.ws_col));
    width.filter(|width| *width > 0)
}
