//! The only door to stdout and stderr: data goes to the first, talk to the second.

use std::fmt::Display;
use std::io::{self, Write};

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

/// Says what went wrong, with `error:` before it.
pub(super) fn problem(text: impl Display) {
    talk(format_args!("error: {text}"));
}
