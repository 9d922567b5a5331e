//! JSON values with their lines and byte ranges, for error messages and for edits that keep every other byte.
//!
//! Object members keep their order, and duplicate keys are kept: the caller decides what they mean.

use std::ops::Range;

use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, ast, parse_to_ast};

/// A JSON value with the line it starts on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SpannedValue {
    /// Line number, starting at 1.
    pub line: u32,
    /// Bytes of the value in the text.
    pub range: Range<usize>,
    pub kind: SpannedKind,
}

/// The content of a value. Numbers are not converted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SpannedKind {
    Null,
    Bool(bool),
    Number,
    /// A string, unescaped.
    String(String),
    Array(Vec<SpannedValue>),
    /// Members in their original order, duplicates included.
    Object(Vec<SpannedMember>),
}

impl SpannedKind {
    /// Returns the type for use in a message: `a list`, `text`.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "true or false",
            Self::Number => "a number",
            Self::String(_) => "text",
            Self::Array(_) => "a list",
            Self::Object(_) => "an object",
        }
    }
}

/// A member of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SpannedMember {
    /// The key, unescaped.
    pub key: String,
    /// Line of the key, starting at 1.
    pub line: u32,
    /// Byte at which the key begins.
    pub start: usize,
    pub value: SpannedValue,
}

/// A JSON syntax error with its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct JsonSyntaxError {
    /// Starting at 1.
    pub line: u32,
    /// Starting at 1.
    pub column: u32,
    pub message: String,
}

/// Parses one JSON value with the position of each part; a byte order mark is skipped.
pub(crate) fn parse_spanned_json(text: &str) -> Result<SpannedValue, JsonSyntaxError> {
    let body = text.strip_prefix('\u{feff}').unwrap_or(text);
    // serde_json validates the text, limits its nesting and words the error; jsonc-parser reads more than JSON, but
    // only it reports positions.
    serde_json::from_str::<serde_json::Value>(body).map_err(|error| syntax_error(&error))?;
    let tree = parse_to_ast(body, &CollectOptions::default(), &ParseOptions::default());
    let value = tree.ok().and_then(|tree| tree.value);
    let lines = LineNumbers::new(text, text.len() - body.len());
    value.map(|value| lines.value(value)).ok_or_else(|| JsonSyntaxError {
        line: 1,
        column: 1,
        message: "this cannot be read".to_owned(),
    })
}

fn syntax_error(error: &serde_json::Error) -> JsonSyntaxError {
    let text = error.to_string();
    let message = text.split(" at line ").next().unwrap_or(&text).to_owned();
    let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    JsonSyntaxError { line: small(error.line()), column: small(error.column()), message }
}

/// Converts positions of the parser to lines and to ranges of the whole text.
struct LineNumbers {
    /// Bytes in front of the parsed text.
    offset: usize,
    /// Positions of all line feeds.
    line_feeds: Vec<usize>,
}

impl LineNumbers {
    fn new(text: &str, offset: usize) -> Self {
        Self { offset, line_feeds: memchr::memchr_iter(b'\n', text.as_bytes()).collect() }
    }

    fn line(&self, at: usize) -> u32 {
        let before = self.line_feeds.partition_point(|line_feed| *line_feed < at);
        u32::try_from(before + 1).unwrap_or(u32::MAX)
    }

    fn value(&self, value: ast::Value<'_>) -> SpannedValue {
        let range = value.start() + self.offset..value.end() + self.offset;
        let kind = match value {
            ast::Value::NullKeyword(_) => SpannedKind::Null,
            ast::Value::BooleanLit(literal) => SpannedKind::Bool(literal.value),
            ast::Value::NumberLit(_) => SpannedKind::Number,
            ast::Value::StringLit(literal) => SpannedKind::String(literal.value.into_owned()),
            ast::Value::Array(array) => SpannedKind::Array(
                array.elements.into_iter().map(|element| self.value(element)).collect(),
            ),
            ast::Value::Object(object) => SpannedKind::Object(
                object.properties.into_iter().map(|property| self.member(property)).collect(),
            ),
        };
        SpannedValue { line: self.line(range.start), range, kind }
    }

    fn member(&self, property: ast::ObjectProp<'_>) -> SpannedMember {
        let start = property.start() + self.offset;
        SpannedMember {
            line: self.line(start),
            start,
            key: property.name.into_string(),
            value: self.value(property.value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(value: &SpannedValue) -> &[SpannedMember] {
        let SpannedKind::Object(members) = &value.kind else { panic!("no object: {value:?}") };
        members
    }

    #[test]
    fn every_part_has_its_line() {
        let value = parse_spanned_json("{\n \"a\\\"\": [1,\n  \"x\\\\\" ],\n\n\"b\":{}}").unwrap();
        let [a, b] = members(&value) else { panic!("two members: {value:?}") };
        assert_eq!((a.key.as_str(), a.line, b.key.as_str(), b.line), ("a\"", 2, "b", 5));
        let SpannedKind::Array(items) = &a.value.kind else { panic!("a list") };
        let range = 11..12;
        assert_eq!(items[0], SpannedValue { line: 2, range, kind: SpannedKind::Number });
        let (range, kind) = (16..21, SpannedKind::String("x\\".to_owned()));
        assert_eq!(items[1], SpannedValue { line: 3, range, kind });
    }

    #[test]
    fn duplicate_keys_are_kept() {
        let value = parse_spanned_json("\u{feff}{\"a\":1,\n\"\\u0061\":true}").unwrap();
        let keys: Vec<_> = members(&value).iter().map(|m| (m.key.as_str(), m.line)).collect();
        assert_eq!(keys, [("a", 1), ("a", 2)]);
    }

    #[test]
    fn syntax_errors_have_a_position() {
        let problem = parse_spanned_json("{\n\"a\": tru }").unwrap_err();
        assert_eq!((problem.line, problem.message.as_str()), (2, "expected ident"));
        assert!(parse_spanned_json(&"[".repeat(100_000)).is_err());
        assert!(parse_spanned_json("").is_err());
        assert!(parse_spanned_json("{} {}").is_err());
    }
}
