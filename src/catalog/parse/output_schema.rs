//! The one way a schema is compiled, when an agent's file is read and when an answer is held against it.

use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use serde_json::Value;

/// Patterns come from files and run on what a model wrote: they may not run for long.
const MOST_BACKTRACKING: usize = 100_000;

/// Compiles a JSON Schema 2020-12: formats count, and nothing is fetched from anywhere.
pub fn compile_schema(schema: &Value) -> Result<Validator, ValidationError<'static>> {
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .should_validate_formats(true)
        .with_pattern_options(PatternOptions::fancy_regex().backtrack_limit(MOST_BACKTRACKING))
        .offline()
        .build(schema)
}
