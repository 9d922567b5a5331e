//! Parser of `output_format` and `output_schema`; schemas are compiled to validate them.

use std::path::Path;
use std::sync::Arc;

use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use serde_json::Value as Json;
use serde_yaml::Value;

use super::node::{MappingFields, Node};
use crate::catalog::model::{OutputFormat, OutputSpec};
use crate::store::read_within_root;

const MAX_SCHEMA_BYTES: u64 = 1024 * 1024;
/// Limits the matching time: patterns come from files and run on model output.
const MAX_BACKTRACKING: usize = 100_000;

/// Location of a schema file.
pub(crate) struct SchemaLocation<'p> {
    /// Directory that confines the file.
    pub(crate) root: &'p Path,
    /// Directory of the agent.
    pub(crate) dir: &'p Path,
}

/// Reads `output_format` and `output_schema` into `output`.
pub(crate) fn parse_output(
    fields: &MappingFields<'_>,
    beside: &SchemaLocation<'_>,
    output: &mut OutputSpec,
) {
    let words = [("text", OutputFormat::Text), ("json", OutputFormat::Json)];
    let format = fields.choose("output_format", &words);
    let schema = fields.get("output_schema");
    if let (Some(node), Some(OutputFormat::Text)) = (&schema, format) {
        node.key_error("conflicting-keys", "a text answer cannot be held to a schema")
            .help("write `output_format: json`, or leave it away");
    }
    let implied = if schema.is_some() { OutputFormat::Json } else { OutputFormat::Text };
    output.format = format.unwrap_or(implied);
    output.schema = schema.and_then(|node| read_schema(&node, beside)).map(Arc::new);
}

/// Returns the file name in `output_schema`; `None` for an inline schema.
pub(crate) fn schema_file_name(fields: &MappingFields<'_>) -> Option<String> {
    match fields.get("output_schema")?.value {
        Value::String(path) => Some(path.clone()),
        _ => None,
    }
}

fn read_schema(node: &Node<'_>, beside: &SchemaLocation<'_>) -> Option<Json> {
    let schema = match node.value {
        Value::String(path) => read_file(node, path, beside)?,
        Value::Mapping(_) => match serde_json::to_value(node.value) {
            Ok(schema) => schema,
            Err(error) => return report_invalid_schema(node, &error.to_string()),
        },
        _ => {
            node.error("wrong-type", "`output_schema` must be a mapping or a file's name")
                .help("write a JSON Schema below it, or `output_schema: schema.json`");
            return None;
        }
    };
    match compile(&schema) {
        Ok(()) => Some(schema),
        Err(reason) => report_invalid_schema(node, &reason),
    }
}

fn report_invalid_schema(node: &Node<'_>, reason: &str) -> Option<Json> {
    node.key_error("invalid-schema", format!("`output_schema` is no JSON Schema: {reason}"))
        .help("see json-schema.org, draft 2020-12");
    None
}

/// Compiles the schema with the options used for answers.
fn compile(schema: &Json) -> Result<(), String> {
    compile_schema(schema).map(drop).map_err(|error| match error.instance_path().as_str() {
        "" => error.to_string(),
        path => format!("{error}, at `{path}`"),
    })
}

fn read_file(node: &Node<'_>, name: &str, beside: &SchemaLocation<'_>) -> Option<Json> {
    let relative = Path::new(name);
    let plain =
        |part| matches!(part, std::path::Component::Normal(_) | std::path::Component::CurDir);
    if !relative.components().all(plain) {
        node.error("wrong-value", format!("`{name}` leads out of the agent's folder"))
            .help("put the schema beside agent.md and write its name");
        return None;
    }
    let path = beside.dir.join(relative);
    let bytes = match read_within_root(beside.root, &path, MAX_SCHEMA_BYTES) {
        Ok((bytes, _)) => bytes,
        Err(error) => {
            let message = format!("the schema `{name}` cannot be read: {error}");
            node.error("invalid-schema", message);
            return None;
        }
    };
    match serde_json::from_slice(&bytes) {
        Ok(schema) => Some(schema),
        Err(error) => {
            let message = format!("the schema `{name}` is not JSON: {error}");
            node.error("invalid-schema", message);
            None
        }
    }
}

/// Compiles a JSON Schema 2020-12 with format validation. References are never fetched.
pub(crate) fn compile_schema(schema: &Json) -> Result<Validator, ValidationError<'static>> {
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .should_validate_formats(true)
        .with_pattern_options(PatternOptions::fancy_regex().backtrack_limit(MAX_BACKTRACKING))
        .offline()
        .build(schema)
}
