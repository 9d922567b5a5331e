//! `adjutant schema [agent|defaults|sessions]`: JSON Schemas for editors.

use clap::{Args, ValueEnum};

use super::exit::Exit;
use super::render;
use crate::catalog::{agent_schema, defaults_schema};
use crate::sessions::store_schema;

/// What `schema` may be told.
#[derive(Debug, Args)]
pub(super) struct SchemaArguments {
    /// Of which file
    #[arg(value_enum, default_value_t = File::Agent)]
    file: File,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum File {
    /// The front matter of agents/<name>/agent.md
    Agent,
    /// agents/defaults.yaml
    Defaults,
    /// data/sessions.json
    Sessions,
}

pub(super) fn run(arguments: &SchemaArguments) -> Exit {
    // Printed as the types they are: turned into plain values first, their keys would lose their order.
    match arguments.file {
        File::Agent => render::json(&agent_schema()),
        File::Defaults => render::json(&defaults_schema()),
        File::Sessions => render::json(&store_schema()),
    }
    Exit::Success
}
