//! Validation of an answer against the agent's JSON Schema.

use std::fmt::{self, Write as _};
use std::io;

use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use jsonschema::{JsonType, ValidationError};
use serde::Serialize;
use serde_json::Value;

use super::json_answer::extract_json;
use crate::api::MismatchObject;
use crate::catalog::compile_schema;
use crate::util::{one_line, shorten};

/// Limit of reported differences.
const MAX_MISMATCHES: usize = 10;
const MAX_TEXT_CHARS: usize = 160;

/// Compiled JSON Schema. Without a schema any JSON value is valid.
#[derive(Clone, Debug, Default)]
pub(crate) struct Validator {
    compiled: Option<jsonschema::Validator>,
}

/// Error of an invalid `output_schema`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`output_schema` is not a JSON Schema at {at}: {why}")]
pub(crate) struct InvalidSchema {
    /// JSON pointer into the schema; `the top` for the root.
    pub at: String,
    /// Error message.
    pub why: String,
}

/// Reason for rejecting an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "problem", rename_all = "snake_case")]
pub(crate) enum OutputProblem {
    NotJson,
    /// Text that begins like JSON and cannot be parsed.
    Malformed {
        /// Parser error with line and column.
        why: String,
    },
    /// Several JSON values.
    Ambiguous {
        /// Number of values.
        count: usize,
    },
    /// A JSON value that does not fit the schema.
    Mismatch {
        /// At most 10 differences.
        errors: Vec<Mismatch>,
        /// Number of further differences.
        more: usize,
    },
}

/// Difference between an answer and its schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// JSON pointer into the answer; empty for the root.
    pub path: String,
    pub expected: String,
    pub found: String,
}

impl Mismatch {
    pub(crate) fn to_object(&self) -> MismatchObject {
        let Self { path, expected, found } = self.clone();
        MismatchObject { path, expected, found }
    }
}

impl Validator {
    /// Compiles a JSON Schema 2020-12. Formats are asserted; remote references are rejected.
    pub(crate) fn compile(schema: &Value) -> Result<Self, InvalidSchema> {
        let compiled = compile_schema(schema).map_err(|error| InvalidSchema::new(&error))?;
        Ok(Self { compiled: Some(compiled) })
    }

    /// Accepts any JSON value, for `output_format: json` without a schema.
    pub(crate) fn any_json() -> Self {
        Self::default()
    }

    /// Extracts and validates the value of an answer.
    ///
    /// Prefers `structured`, which is validated like the text.
    pub(crate) fn validate(
        &self,
        text: &str,
        structured: Option<&Value>,
    ) -> Result<Value, OutputProblem> {
        let value = match structured {
            Some(value) => value.clone(),
            None => extract_json(text)?,
        };
        self.check_schema(&value).map(|()| value)
    }

    fn check_schema(&self, value: &Value) -> Result<(), OutputProblem> {
        let Some(compiled) = &self.compiled else { return Ok(()) };
        let mut differences = compiled.iter_errors(value);
        let errors: Vec<Mismatch> =
            differences.by_ref().take(MAX_MISMATCHES).map(|error| Mismatch::new(&error)).collect();
        if errors.is_empty() {
            return Ok(());
        }
        Err(OutputProblem::Mismatch { errors, more: differences.count() })
    }
}

impl InvalidSchema {
    fn new(error: &ValidationError<'_>) -> Self {
        let at = match error.instance_path().as_str() {
            "" => "the top".to_owned(),
            path => format!("`{}`", shorten_line(path)),
        };
        Self { at, why: shorten_line(&error.to_string()) }
    }
}

impl OutputProblem {
    /// Formats the problem as the follow-up message to the agent.
    pub(crate) fn feedback(&self) -> String {
        format!(
            "Your answer was not accepted: {self}.\nAnswer again, with the corrected JSON value alone: \
             no sentence before or after it."
        )
    }

    /// Returns the differences for programs. Without a single JSON value, one difference at the root.
    pub(crate) fn differences(&self) -> Vec<Mismatch> {
        let whole = |expected: &str, found: String| {
            vec![Mismatch { path: String::new(), expected: expected.to_owned(), found }]
        };
        match self {
            Self::NotJson => whole("a JSON value", "none".to_owned()),
            Self::Malformed { why } => {
                whole("a JSON value", format!("what cannot be read ({why})"))
            }
            Self::Ambiguous { count } => whole("one JSON value", count.to_string()),
            Self::Mismatch { errors, .. } => errors.clone(),
        }
    }
}

impl fmt::Display for OutputProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson => f.write_str("there is no JSON value in it"),
            Self::Malformed { why } => write!(f, "the JSON in it cannot be read ({why})"),
            Self::Ambiguous { count } => {
                write!(f, "there are {count} JSON values in it, and one was asked for")
            }
            Self::Mismatch { errors, more } => {
                let list: Vec<String> = errors.iter().map(ToString::to_string).collect();
                write!(f, "it does not fit the schema: {}", list.join("; "))?;
                if *more > 0 { write!(f, "; and {more} more") } else { Ok(()) }
            }
        }
    }
}

impl Mismatch {
    fn new(error: &ValidationError<'_>) -> Self {
        Self {
            path: shorten_line(error.instance_path().as_str()),
            expected: shorten(&one_line(&describe_requirement(error.kind())), 2 * MAX_TEXT_CHARS),
            found: describe_found(error),
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "the top" } else { &self.path };
        write!(f, "at {path} expected {}, found {}", self.expected, self.found)
    }
}

fn describe_found(error: &ValidationError<'_>) -> String {
    match error.kind() {
        Kind::Required { .. } => "none".to_owned(),
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            shorten_line(&quoted(unexpected))
        }
        _ => shorten_line(&value_preview(error.instance())),
    }
}

/// Serializes the beginning of a value: an answer may have millions of characters.
fn value_preview(value: &Value) -> String {
    let mut start = ValuePreview(Vec::new());
    // The writer fails at its limit, to end the serialization.
    let _ = serde_json::to_writer(&mut start, value);
    String::from_utf8_lossy(&start.0).into_owned()
}

struct ValuePreview(Vec<u8>);

impl io::Write for ValuePreview {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() > 4 * MAX_TEXT_CHARS {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Describes the requirement of a keyword. Text from the schema is shortened by the caller.
fn describe_requirement(kind: &Kind) -> String {
    match kind {
        Kind::Type { kind: TypeKind::Single(kind) } => format!("type {kind}"),
        Kind::Type { kind: TypeKind::Multiple(kinds) } => {
            let names: Vec<&str> = kinds.iter().map(JsonType::as_str).collect();
            format!("type {}", names.join(" or "))
        }
        Kind::Required { property } => format!("the property {property}"),
        Kind::AdditionalProperties { .. } | Kind::UnevaluatedProperties { .. } => {
            "no properties but those the schema names".to_owned()
        }
        Kind::AdditionalItems { .. } | Kind::UnevaluatedItems { .. } => {
            "no items but those the schema names".to_owned()
        }
        Kind::Enum { options } => format!("one of {options}"),
        Kind::Constant { expected_value } => format!("exactly {expected_value}"),
        Kind::Format { format } => format!("the format {format}"),
        Kind::Pattern { pattern } => format!("text that matches {pattern}"),
        Kind::BacktrackLimitExceeded { .. } | Kind::RegexEngineFailure { .. } => {
            "text that the pattern can be tried on".to_owned()
        }
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => describe_alternatives(context),
        Kind::OneOfMultipleValid { .. } => "exactly one alternative, and several fit".to_owned(),
        Kind::Not { schema } => format!("anything but {schema}"),
        Kind::FalseSchema => "nothing here".to_owned(),
        Kind::UniqueItems => "items that are all different".to_owned(),
        Kind::Contains => "an item as `contains` describes it, in the number asked for".to_owned(),
        Kind::PropertyNames { error } => {
            format!("property names of {}", describe_requirement(error.kind()))
        }
        other => {
            describe_bound(other).unwrap_or_else(|| format!("what `{}` says", other.keyword()))
        }
    }
}

/// Describes keywords that compare with a number.
fn describe_bound(kind: &Kind) -> Option<String> {
    let text = match kind {
        Kind::Minimum { limit } => format!("at least {limit}"),
        Kind::Maximum { limit } => format!("at most {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("more than {limit}"),
        Kind::ExclusiveMaximum { limit } => format!("less than {limit}"),
        Kind::MultipleOf { multiple_of } => format!("a multiple of {multiple_of}"),
        Kind::MinLength { limit } => format!("at least {limit} characters"),
        Kind::MaxLength { limit } => format!("at most {limit} characters"),
        Kind::MinItems { limit } => format!("at least {limit} items"),
        Kind::MaxItems { limit } => format!("at most {limit} items"),
        Kind::MinProperties { limit } => format!("at least {limit} properties"),
        Kind::MaxProperties { limit } => format!("at most {limit} properties"),
        _ => return None,
    };
    Some(text)
}

/// Describes the alternative with the fewest differences.
fn describe_alternatives(context: &[Vec<ValidationError<'static>>]) -> String {
    let mut text = format!("one of {} alternatives", context.len());
    let nearest =
        context.iter().min_by_key(|errors| errors.len()).and_then(|errors| errors.first());
    if let Some(error) = nearest {
        let difference = Mismatch::new(error);
        let path = if difference.path.is_empty() { "the top" } else { &difference.path };
        // Writing to a `String` does not fail.
        let _ = write!(text, " (the nearest wants, at {path}, {})", difference.expected);
    }
    text
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
}

pub(super) fn shorten_line(text: &str) -> String {
    shorten(&one_line(text), MAX_TEXT_CHARS)
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
