//! What the terminal can show.

use std::env;
use std::io::{self, IsTerminal};

/// Whether stderr shows colours: a terminal, and nobody asked for none.
pub(super) fn colours() -> bool {
    let unwanted = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stderr().is_terminal() && !unwanted
}

/// Whether a person sees what goes to stderr.
pub(super) fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// Whether a person sees what goes to stdout.
pub(super) fn shows_data() -> bool {
    io::stdout().is_terminal()
}
