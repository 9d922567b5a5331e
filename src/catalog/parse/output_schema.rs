//! Compiler of output schemas, used both to validate agent files and to validate answers.

use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use serde_json::Value;

/// Limits the matching time: patterns come from files and run on model output.
const MAX_BACKTRACKING: usize = 100_000;

/// Compiles a JSON Schema 2020-12 with format validation. References are never fetched.
pub(crate) fn compile_schema(schema: &Value) -> Result<Validator, ValidationError<'static>> {
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .should_validate_formats(true)
        .with_pattern_options(PatternOptions::fancy_regex().backtrack_limit(MAX_BACKTRACKING))
        .offline()
        .build(schema)
}
