//! The catalog from outside: what `check`, `list`, `show`, `new` and `schema` say about a project.

mod commands;
mod following;
mod mistakes;
mod properties;
