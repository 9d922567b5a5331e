//! Is the answer what was asked for: a JSON Schema, held against what the agent really said.

use std::fmt::{self, Write as _};
use std::io;

use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use jsonschema::{JsonType, ValidationError};
use serde::Serialize;
use serde_json::Value;

use super::extract::{NoValue, extract};
use crate::base::{one_line, shorten};
use crate::catalog::compile_schema;

/// Differences that are told; more would not help.
const MOST_MISMATCHES: usize = 10;
const MOST_CHARACTERS: usize = 160;

/// A schema, ready to be held against answers. Without one any JSON value is right.
#[derive(Clone, Debug, Default)]
pub struct Validator {
    compiled: Option<jsonschema::Validator>,
}

/// Why a schema is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`output_schema` is not a JSON Schema at {at}: {why}")]
pub struct BadSchema {
    /// Where in the schema, as a JSON pointer; `the top` for all of it.
    pub at: String,
    /// What is wrong there.
    pub why: String,
}

/// Why an answer is not what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "problem", rename_all = "snake_case")]
pub enum OutputProblem {
    /// There is no JSON in it.
    NotJson,
    /// It begins like JSON and is not.
    Malformed {
        /// What the parser said, with line and column.
        why: String,
    },
    /// There are several values in it.
    Ambiguous {
        /// How many.
        count: usize,
    },
    /// It is JSON and does not fit the schema.
    Mismatch {
        /// The first differences.
        errors: Vec<Mismatch>,
        /// How many more there are.
        more: usize,
    },
}

/// One difference between an answer and its schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// Where in the answer, as a JSON pointer; empty for all of it.
    pub path: String,
    /// What the schema wants there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

impl Validator {
    /// Compiles a JSON Schema 2020-12: formats count, and nothing is fetched from anywhere.
    pub fn compile(schema: &Value) -> Result<Self, BadSchema> {
        let compiled = compile_schema(schema).map_err(|error| BadSchema::new(&error))?;
        Ok(Self { compiled: Some(compiled) })
    }

    /// Any JSON value is right: for `output_format: json` without a schema.
    pub fn any_json() -> Self {
        Self::default()
    }

    /// The value that was asked for, or why there is none. What `claude` itself took for the structured
    /// answer is preferred to the text and believed no more than it.
    pub fn judge(&self, text: &str, structured: Option<&Value>) -> Result<Value, OutputProblem> {
        let value = match structured {
            Some(value) => value.clone(),
            None => extract(text)?,
        };
        self.check(&value)?;
        Ok(value)
    }

    fn check(&self, value: &Value) -> Result<(), OutputProblem> {
        let Some(compiled) = &self.compiled else { return Ok(()) };
        let mut differences = compiled.iter_errors(value);
        let errors: Vec<Mismatch> =
            differences.by_ref().take(MOST_MISMATCHES).map(|error| Mismatch::new(&error)).collect();
        if errors.is_empty() {
            return Ok(());
        }
        Err(OutputProblem::Mismatch { errors, more: differences.count() })
    }
}

impl BadSchema {
    fn new(error: &ValidationError<'_>) -> Self {
        let at = match error.instance_path().as_str() {
            "" => "the top".to_owned(),
            path => format!("`{}`", brief(path)),
        };
        Self { at, why: brief(&error.to_string()) }
    }
}

impl OutputProblem {
    /// What the agent is told, in the same conversation, when it is asked again.
    pub fn feedback(&self) -> String {
        format!(
            "Your answer was not accepted: {self}.\nAnswer again, with the corrected JSON value alone: \
             no sentence before or after it."
        )
    }
}

impl OutputProblem {
    /// The same for programs: every difference with its place. Where there is no value, all of the answer differs.
    pub fn differences(&self) -> Vec<Mismatch> {
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

impl From<NoValue> for OutputProblem {
    fn from(none: NoValue) -> Self {
        match none {
            NoValue::Absent => Self::NotJson,
            NoValue::Malformed { why } => Self::Malformed { why: brief(&why) },
            NoValue::Several { count } => Self::Ambiguous { count },
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
            path: brief(error.instance_path().as_str()),
            expected: shorten(&one_line(&expected(error.kind())), 2 * MOST_CHARACTERS),
            found: found(error),
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "the top" } else { &self.path };
        write!(f, "at {path} expected {}, found {}", self.expected, self.found)
    }
}

fn found(error: &ValidationError<'_>) -> String {
    match error.kind() {
        Kind::Required { .. } => "none".to_owned(),
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            brief(&quoted(unexpected))
        }
        _ => brief(&beginning(error.instance())),
    }
}

/// The beginning of a value as JSON; an answer may have millions of characters.
fn beginning(value: &Value) -> String {
    let mut start = Beginning(Vec::new());
    // It ends early on purpose.
    let _ = serde_json::to_writer(&mut start, value);
    String::from_utf8_lossy(&start.0).into_owned()
}

struct Beginning(Vec<u8>);

impl io::Write for Beginning {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() > 4 * MOST_CHARACTERS {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a keyword wants, in words. A schema is data of the agent's author and is cut like any other.
fn expected(kind: &Kind) -> String {
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
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => alternatives(context),
        Kind::OneOfMultipleValid { .. } => "exactly one alternative, and several fit".to_owned(),
        Kind::Not { schema } => format!("anything but {schema}"),
        Kind::FalseSchema => "nothing here".to_owned(),
        Kind::UniqueItems => "items that are all different".to_owned(),
        Kind::Contains => "an item as `contains` describes it, in the number asked for".to_owned(),
        Kind::PropertyNames { error } => format!("property names of {}", expected(error.kind())),
        other => size(other).unwrap_or_else(|| format!("what `{}` says", other.keyword())),
    }
}

/// The keywords that compare with a number.
fn size(kind: &Kind) -> Option<String> {
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

/// Says what the alternative with the fewest differences lacks.
fn alternatives(context: &[Vec<ValidationError<'static>>]) -> String {
    let mut text = format!("one of {} alternatives", context.len());
    let nearest =
        context.iter().min_by_key(|errors| errors.len()).and_then(|errors| errors.first());
    if let Some(error) = nearest {
        let difference = Mismatch::new(error);
        let path = if difference.path.is_empty() { "the top" } else { &difference.path };
        // Writing to a string does not fail.
        let _ = write!(text, " (the nearest wants, at {path}, {})", difference.expected);
    }
    text
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
}

fn brief(text: &str) -> String {
    shorten(&one_line(text), MOST_CHARACTERS)
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
