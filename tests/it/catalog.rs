//! The catalog through the command line: `check`, `list`, `show`, `new` and `schema`.

mod commands;
mod mistakes;
mod properties;
mod watch;
