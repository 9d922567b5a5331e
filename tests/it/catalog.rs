//! The catalog from outside: what `check`, `list`, `show`, `new` and `schema` say about a project.

mod commands;
#[path = "catalog/watch.rs"]
mod following;
mod mistakes;
mod properties;
