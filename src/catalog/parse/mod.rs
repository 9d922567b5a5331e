//! `agent.md`, `defaults.yaml` and JSON files to checked values, every mistake with its line.

mod agent;
mod agent_keys;
mod agent_values;
mod defaults;
pub(crate) mod front_matter;
mod hooks;
mod json_check;
mod key;
mod node;
mod output;
mod permissions;
mod policy;
mod positions;
mod sandbox;
mod server_entry;
mod servers;
mod shape;
mod tools;
mod unknown_keys;
mod yaml;
mod yaml_mistakes;

pub(crate) use agent::{AgentSource, parse_agent};
pub(crate) use agent_keys::{agent_keys, agent_schema};
pub(crate) use defaults::{defaults_schema, parse_defaults};
pub(crate) use json_check::{JsonCheck, member};
pub(crate) use key::Key;
pub(crate) use node::FileFormat;
pub(crate) use output::compile_schema;
pub(crate) use positions::{SourcePosition, SourcePositions};
pub(crate) use server_entry::{EntryFinding, parse_json_entry};
