//! `adjutant schema [agent|defaults|sessions]`: prints JSON Schemas for editors.

use clap::{Args, ValueEnum};

use crate::catalog::{agent_schema, defaults_schema};
use crate::cli::{CliCommand, CommandResult, ExitStatus, output};
use crate::config::Settings;
use crate::sessions::store_schema;

/// Print a JSON Schema, so that editors complete and check agent files
///
/// Exit code 0.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  adjutant schema > agent.schema.json\n  \
    adjutant schema defaults > defaults.schema.json")]
pub(crate) struct SchemaArguments {
    /// Of which file
    #[arg(value_enum, default_value_t = SchemaFile::Agent)]
    file: SchemaFile,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SchemaFile {
    /// The front matter of agents/<name>/agent.md
    Agent,
    /// agents/defaults.yaml
    Defaults,
    /// data/sessions.json
    Sessions,
}

impl CliCommand for SchemaArguments {
    fn run(&self, _settings: &Settings) -> CommandResult {
        // Serialized directly: a conversion to `serde_json::Value` would lose the order of the keys.
        match self.file {
            SchemaFile::Agent => output::print_json(&agent_schema()),
            SchemaFile::Defaults => output::print_json(&defaults_schema()),
            SchemaFile::Sessions => output::print_json(&store_schema()),
        }
        Ok(ExitStatus::Success)
    }
}
