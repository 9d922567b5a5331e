//! Terminal detection and colour support.

use std::env;
use std::io::{self, IsTerminal};

/// Returns true if stderr is a terminal and `NO_COLOR` is unset or empty.
pub(crate) fn use_colours() -> bool {
    let unwanted = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stderr().is_terminal() && !unwanted
}

pub(crate) fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

pub(crate) fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Returns the width of the output in columns: `COLUMNS` if it is a number above 0, else the width of the terminal on
/// stdout, else `None`.
pub(crate) fn output_width() -> Option<u16> {
    let columns = env::var("COLUMNS").ok().and_then(|text| text.trim().parse().ok());
    let width = columns.or_else(|| Some(rustix::termios::tcgetwinsize(io::stdout()).ok()?.ws_col));
    width.filter(|width| *width > 0)
}
