//! `output_format`, `output_schema`, `output_retries`: a schema is compiled when it is read.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value as Json;
use serde_yaml::Value;

use super::model::{OutputFormat, OutputSpec};
use super::node::{Fields, Node};
use super::output_schema::compile_schema;
use super::problem::Problems;
use crate::base::read_inside;

const MAX_SCHEMA_BYTES: u64 = 1024 * 1024;

/// Where a schema file may be.
pub(super) struct Beside<'p> {
    /// The project's root, which nothing may leave.
    pub(super) root: &'p Path,
    /// The agent's folder.
    pub(super) folder: &'p Path,
}

/// Reads what an answer must be.
pub(super) fn read(
    fields: &Fields<'_>,
    retries: u32,
    beside: &Beside<'_>,
    problems: &mut Problems,
) -> OutputSpec {
    let words = [("text", OutputFormat::Text), ("json", OutputFormat::Json)];
    let format = fields.get("output_format").and_then(|node| node.one_of(&words, problems));
    let schema = fields.get("output_schema");
    if let (Some(node), Some(OutputFormat::Text)) = (&schema, format) {
        problems
            .error("conflicting-keys", node.at_key(), "a text answer cannot be held to a schema")
            .help("write `output_format: json`, or leave it away");
    }
    let implied = if schema.is_some() { OutputFormat::Json } else { OutputFormat::Text };
    OutputSpec {
        format: format.unwrap_or(implied),
        schema: schema.and_then(|node| read_schema(&node, beside, problems)).map(Arc::new),
        retries,
    }
}

/// The schema file that `output_schema` names, if it names one.
pub(super) fn schema_file(fields: &Fields<'_>) -> Option<String> {
    match fields.get("output_schema")?.value {
        Value::String(path) => Some(path.clone()),
        _ => None,
    }
}

fn read_schema(node: &Node<'_>, beside: &Beside<'_>, problems: &mut Problems) -> Option<Json> {
    let schema = match node.value {
        Value::String(path) => read_file(node, path, beside, problems)?,
        Value::Mapping(_) => match serde_json::to_value(node.value) {
            Ok(schema) => schema,
            Err(error) => return refuse(node, &error.to_string(), problems),
        },
        _ => {
            problems
                .error(
                    "wrong-type",
                    node.at(),
                    "`output_schema` must be a mapping or a file's name",
                )
                .help("write a JSON Schema below it, or `output_schema: schema.json`");
            return None;
        }
    };
    match compile(&schema) {
        Ok(()) => Some(schema),
        Err(reason) => refuse(node, &reason, problems),
    }
}

fn refuse(node: &Node<'_>, reason: &str, problems: &mut Problems) -> Option<Json> {
    problems
        .error(
            "invalid-schema",
            node.at_key(),
            format!("`output_schema` is no JSON Schema: {reason}"),
        )
        .help("see json-schema.org, draft 2020-12");
    None
}

/// Compiles as answers will be judged.
fn compile(schema: &Json) -> Result<(), String> {
    compile_schema(schema).map(drop).map_err(|error| match error.instance_path().as_str() {
        "" => error.to_string(),
        path => format!("{error}, at `{path}`"),
    })
}

fn read_file(
    node: &Node<'_>,
    name: &str,
    beside: &Beside<'_>,
    problems: &mut Problems,
) -> Option<Json> {
    let relative = Path::new(name);
    let plain =
        |part| matches!(part, std::path::Component::Normal(_) | std::path::Component::CurDir);
    if !relative.components().all(plain) {
        problems
            .error("wrong-value", node.at(), format!("`{name}` leads out of the agent's folder"))
            .help("put the schema beside agent.md and write its name");
        return None;
    }
    let path = beside.folder.join(relative);
    let bytes = match read_inside(beside.root, &path, MAX_SCHEMA_BYTES) {
        Ok((bytes, _)) => bytes,
        Err(error) => {
            let message = format!("the schema `{name}` cannot be read: {error}");
            problems.error("invalid-schema", node.at(), message);
            return None;
        }
    };
    match serde_json::from_slice(&bytes) {
        Ok(schema) => Some(schema),
        Err(error) => {
            let message = format!("the schema `{name}` is not JSON: {error}");
            problems.error("invalid-schema", node.at(), message);
            None
        }
    }
}
