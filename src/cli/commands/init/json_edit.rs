//! JSON editor that only inserts: existing bytes never change.
//!
//! The position of an insertion comes from [`parse_spanned_json`]; errors have line and column.

use std::ops::Range;

use serde_json::Value;

use crate::util::{JsonSyntaxError, SpannedKind, SpannedValue, parse_spanned_json};

/// A JSON object as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JsonText {
    text: String,
    /// The text, parsed.
    root: SpannedValue,
}

/// Error of parsing or editing a document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JsonEditError {
    #[error("line {line}, column {column}: {what}")]
    Malformed {
        /// Starts at 1.
        line: usize,
        /// Starts at 1.
        column: usize,
        /// Message of the parser, or a more specific one.
        what: String,
    },
    /// A value on the path has another type than required.
    #[error("line {line}, column {column}: `{name}` must be {expected}")]
    WrongType {
        /// Starts at 1.
        line: usize,
        /// Starts at 1.
        column: usize,
        /// Key or path of the value, or `the file`.
        name: String,
        /// `an object` or `an array`.
        expected: &'static str,
    },
}

impl JsonText {
    /// Parses a text, which must be one JSON object. A byte order mark is kept.
    pub(crate) fn parse(text: impl Into<String>) -> Result<Self, JsonEditError> {
        let text = text.into();
        let root = parse_spanned_json(&text).map_err(|error| syntax_error(&text, &error))?;
        let is_object = matches!(root.kind, SpannedKind::Object(_));
        let parsed = Self { text, root };
        if is_object {
            Ok(parsed)
        } else {
            Err(parsed.wrong_type(&parsed.root, "the file", "an object"))
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the document as a `serde_json::Value`.
    pub(crate) fn to_value(&self) -> Value {
        self.text
            .get(self.root.range.clone())
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default()
    }

    /// Adds a member at a path of keys, with missing objects on the way.
    ///
    /// An existing member stays unchanged.
    pub(crate) fn add_member(&mut self, path: &[&str], value: &Value) -> Result<(), JsonEditError> {
        let (object, missing) = self.descend(path)?;
        let Some((key, deeper)) = missing.split_first() else { return Ok(()) };
        let wrapped = deeper.iter().rev().fold(value.clone(), |inner, key| {
            Value::Object([((*key).to_owned(), inner)].into_iter().collect())
        });
        let (at, new) = self.insertion(object, Some(key), &wrapped);
        self.insert(at, &new)
    }

    /// Appends an element to the array at `path`; creates the array if it is missing.
    pub(crate) fn add_element(
        &mut self,
        path: &[&str],
        value: &Value,
    ) -> Result<(), JsonEditError> {
        let (array, missing) = self.descend(path)?;
        if !missing.is_empty() {
            return self.add_member(path, &Value::Array(vec![value.clone()]));
        }
        if !matches!(array.kind, SpannedKind::Array(_)) {
            return Err(self.wrong_type(array, &path.join("."), "an array"));
        }
        let (at, new) = self.insertion(array, None, value);
        self.insert(at, &new)
    }

    /// Follows `path` as far as it exists; returns the last value found and the missing keys.
    fn descend<'p, 'k>(
        &self,
        path: &'p [&'k str],
    ) -> Result<(&SpannedValue, &'p [&'k str]), JsonEditError> {
        let mut place = &self.root;
        let mut rest = path;
        let mut name = "the file";
        while let Some((key, deeper)) = rest.split_first() {
            let SpannedKind::Object(members) = &place.kind else {
                return Err(self.wrong_type(place, name, "an object"));
            };
            // The last one of duplicates counts, as for JSON parsers.
            let Some(member) = members.iter().rfind(|member| member.key == *key) else { break };
            (place, rest, name) = (&member.value, deeper, key);
        }
        Ok((place, rest))
    }

    /// Returns the text to insert behind the last value of a container, in the format of its neighbours, and its place.
    fn insertion(
        &self,
        container: &SpannedValue,
        key: Option<&str>,
        value: &Value,
    ) -> (usize, String) {
        let inner = self.text.get(container.range.clone()).unwrap_or_default();
        let on_one_line = !inner.contains('\n');
        let style = JsonStyle::detect(&self.text);
        let outer_indent = indent_at(&self.text, container.range.start);
        match last_entry(container) {
            Some(last) if on_one_line => {
                (last.end, format!(", {}", style.format_member(key, value, None)))
            }
            Some(last) => {
                let indent = indent_at(&self.text, last.start);
                let member = style.format_member(key, value, Some(&indent));
                (last.end, format!(",{}{indent}{member}", style.line_end))
            }
            None => {
                let indent = format!("{outer_indent}{}", style.indent);
                let member = style.format_member(key, value, Some(&indent));
                let close = if on_one_line {
                    format!("{}{outer_indent}", style.line_end)
                } else {
                    String::new()
                };
                (container.range.start + 1, format!("{}{indent}{member}{close}", style.line_end))
            }
        }
    }

    /// Inserts the text and parses the result again, because every later position has moved.
    fn insert(&mut self, at: usize, new: &str) -> Result<(), JsonEditError> {
        let mut text = self.text.clone();
        text.insert_str(at, new);
        *self = Self::parse(text)?;
        Ok(())
    }

    fn wrong_type(
        &self,
        place: &SpannedValue,
        name: &str,
        expected: &'static str,
    ) -> JsonEditError {
        let before = self.text.get(..place.range.start).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        JsonEditError::WrongType { line, column, name: name.to_owned(), expected }
    }
}

/// Returns the bytes of the last element of an array, or of the last member of an object with its key.
fn last_entry(container: &SpannedValue) -> Option<Range<usize>> {
    match &container.kind {
        SpannedKind::Object(members) => {
            members.last().map(|member| member.start..member.value.range.end)
        }
        SpannedKind::Array(elements) => elements.last().map(|element| element.range.clone()),
        _ => None,
    }
}

fn syntax_error(text: &str, error: &JsonSyntaxError) -> JsonEditError {
    let size = |number: u32| usize::try_from(number.max(1)).unwrap_or(usize::MAX);
    let (line, column) = (size(error.line), size(error.column));
    let rest = text.lines().nth(line - 1).unwrap_or_default();
    let rest = rest.get(column.saturating_sub(1)..).unwrap_or_default();
    let what = if rest.starts_with("//") || rest.starts_with("/*") || rest.starts_with('#') {
        "comments are not JSON; remove them".to_owned()
    } else {
        error.message.clone()
    };
    JsonEditError::Malformed { line, column, what }
}

/// Indentation and line ending of a document.
struct JsonStyle {
    indent: String,
    line_end: &'static str,
}

impl JsonStyle {
    fn detect(text: &str) -> Self {
        let line_end = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let indents = text.lines().filter(|line| !line.trim().is_empty()).map(leading_space);
        let unit = indents.filter(|indent| !indent.is_empty()).min_by_key(|indent| indent.len());
        Self { indent: unit.unwrap_or("  ").to_owned(), line_end }
    }

    /// Formats a member or an element: on several lines with `indent`, else on one line.
    fn format_member(&self, key: Option<&str>, value: &Value, indent: Option<&str>) -> String {
        let name = key.map(|key| format!("{}: ", Value::from(key))).unwrap_or_default();
        let value =
            indent.map_or_else(|| value.to_string(), |indent| self.format_pretty(value, indent));
        format!("{name}{value}")
    }

    fn format_pretty(&self, value: &Value, indent: &str) -> String {
        let deeper = format!("{indent}{}", self.indent);
        let lines: Vec<String> = match value {
            Value::Object(members) if !members.is_empty() => members
                .iter()
                .map(|(key, value)| self.format_member(Some(key), value, Some(&deeper)))
                .collect(),
            Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
                items.iter().map(|item| self.format_pretty(item, &deeper)).collect()
            }
            other => return other.to_string(),
        };
        let (open, close) = if value.is_object() { ('{', '}') } else { ('[', ']') };
        let end = self.line_end;
        let body = lines.join(&format!(",{end}{deeper}"));
        format!("{open}{end}{deeper}{body}{end}{indent}{close}")
    }
}

/// Returns the indentation of the line that contains the position.
fn indent_at(text: &str, at: usize) -> String {
    let before = text.get(..at).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    leading_space(text.get(line_start..at).unwrap_or_default()).to_owned()
}

fn leading_space(line: &str) -> &str {
    let end = line.find(|c| c != ' ' && c != '\t').unwrap_or(line.len());
    line.get(..end).unwrap_or_default()
}

#[cfg(test)]
#[path = "json_edit_tests.rs"]
mod tests;
