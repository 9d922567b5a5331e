//! Adds to a JSON file without touching a byte that is there: an edit is always one insertion.
//!
//! The text is read twice. `serde_json` says whether it is JSON at all, with line and column; then a
//! small scanner, which may rely on that, finds the place where the new text goes.

use std::ops::Range;

use serde_json::Value;

/// A JSON document with the places of its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JsonText {
    text: String,
    /// Where the outermost value stands.
    root: Range<usize>,
}

/// Why a text cannot be added to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum JsonRefused {
    /// It is no JSON.
    #[error("line {line}, column {column}: {what}")]
    Malformed {
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
        /// In the words of the parser, or ours where we know better.
        what: String,
    },
    /// A value is of another kind than the one to add to.
    #[error("line {line}, column {column}: `{name}` must be {expected}")]
    Kind {
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
        /// What it is called.
        name: String,
        /// `an object` or `an array`.
        expected: &'static str,
    },
}

impl JsonText {
    /// Checks that `text` is one JSON object.
    pub(super) fn parse(text: impl Into<String>) -> Result<Self, JsonRefused> {
        let text = text.into();
        let body = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let value: Value = serde_json::from_str(body).map_err(|error| malformed(body, &error))?;
        let mut scan = Scan { bytes: text.as_bytes(), at: text.len() - body.len() };
        scan.skip_space();
        let start = scan.at;
        scan.skip_value();
        let root = start..scan.at;
        let parsed = Self { text, root };
        if !value.is_object() {
            return Err(parsed.kind(&parsed.root, "the file", "an object"));
        }
        Ok(parsed)
    }

    /// The text as it is now.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The value as a program reads it.
    pub(super) fn value(&self) -> Value {
        self.text
            .get(self.root.clone())
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default()
    }

    /// Adds the member at the end of a path of keys, with the objects above it where they are missing.
    /// What is there already stays as it is.
    pub(super) fn add_member(&mut self, path: &[&str], value: &Value) -> Result<(), JsonRefused> {
        let (object, missing) = self.descend(path)?;
        let Some((key, deeper)) = missing.split_first() else { return Ok(()) };
        let wrapped = deeper.iter().rev().fold(value.clone(), |inner, key| {
            Value::Object([((*key).to_owned(), inner)].into_iter().collect())
        });
        self.insert(&object, Some(key), &wrapped);
        Ok(())
    }

    /// Adds an element to the end of the array at `path`, which is made where it is missing.
    pub(super) fn add_element(&mut self, path: &[&str], value: &Value) -> Result<(), JsonRefused> {
        let (array, missing) = self.descend(path)?;
        if !missing.is_empty() {
            return self.add_member(path, &Value::Array(vec![value.clone()]));
        }
        if self.first_byte(&array) != Some(b'[') {
            return Err(self.kind(&array, &path.join("."), "an array"));
        }
        self.insert(&array, None, value);
        Ok(())
    }

    /// Follows `path` as far as it exists: the last value found, and the keys that are missing.
    fn descend<'p, 'k>(
        &self,
        path: &'p [&'k str],
    ) -> Result<(Range<usize>, &'p [&'k str]), JsonRefused> {
        let mut place = self.root.clone();
        let mut rest = path;
        let mut name = "the file";
        while let Some((key, deeper)) = rest.split_first() {
            if self.first_byte(&place) != Some(b'{') {
                return Err(self.kind(&place, name, "an object"));
            }
            let Some(value) = self.member(&place, key) else { break };
            (place, rest, name) = (value, deeper, key);
        }
        Ok((place, rest))
    }

    /// The value of a key; of the last one where a key stands twice, as readers of JSON have it.
    fn member(&self, object: &Range<usize>, key: &str) -> Option<Range<usize>> {
        let entries = self.scan(object.start + 1).entries(true);
        let named = |entry: &&Entry| {
            let text = entry.key.clone().and_then(|place| self.text.get(place));
            text.and_then(|text| serde_json::from_str::<String>(text).ok()).as_deref() == Some(key)
        };
        entries.iter().rfind(named).map(|entry| entry.value.clone())
    }

    /// Puts a value behind the last one of a container, written the way its neighbours are.
    fn insert(&mut self, container: &Range<usize>, key: Option<&str>, value: &Value) {
        let in_object = self.first_byte(container) == Some(b'{');
        let entries = self.scan(container.start + 1).entries(in_object);
        let inner = self.text.get(container.clone()).unwrap_or_default();
        let on_one_line = !inner.contains('\n');
        let style = Style::of(&self.text);
        let outer_indent = indent_at(&self.text, container.start);
        let (at, new) = match entries.last() {
            Some(last) if on_one_line => {
                (last.value.end, format!(", {}", style.member(key, value, None)))
            }
            Some(last) => {
                let indent = indent_at(&self.text, last.start());
                let member = style.member(key, value, Some(&indent));
                (last.value.end, format!(",{}{indent}{member}", style.line_end))
            }
            None => {
                let indent = format!("{outer_indent}{}", style.unit);
                let member = style.member(key, value, Some(&indent));
                let close = if on_one_line {
                    format!("{}{outer_indent}", style.line_end)
                } else {
                    String::new()
                };
                (container.start + 1, format!("{}{indent}{member}{close}", style.line_end))
            }
        };
        self.text.insert_str(at, &new);
        self.root.end += new.len();
    }

    fn scan(&self, at: usize) -> Scan<'_> {
        Scan { bytes: self.text.as_bytes(), at }
    }

    fn first_byte(&self, place: &Range<usize>) -> Option<u8> {
        self.text.as_bytes().get(place.start).copied()
    }

    fn kind(&self, place: &Range<usize>, name: &str, expected: &'static str) -> JsonRefused {
        let before = self.text.get(..place.start).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        JsonRefused::Kind { line, column, name: name.to_owned(), expected }
    }
}

fn malformed(text: &str, error: &serde_json::Error) -> JsonRefused {
    let (line, column) = (error.line().max(1), error.column().max(1));
    let rest = text.lines().nth(line - 1).unwrap_or_default();
    let rest = rest.get(column.saturating_sub(1)..).unwrap_or_default();
    let said = error.to_string();
    let what = said.split(" at line ").next().unwrap_or_default();
    let what = if rest.starts_with("//") || rest.starts_with("/*") || rest.starts_with('#') {
        "comments are not JSON; remove them".to_owned()
    } else {
        what.to_owned()
    };
    JsonRefused::Malformed { line, column, what }
}

/// How a document is written.
struct Style {
    unit: String,
    line_end: &'static str,
}

impl Style {
    fn of(text: &str) -> Self {
        let line_end = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let indents = text.lines().filter(|line| !line.trim().is_empty()).map(leading_space);
        let unit = indents.filter(|indent| !indent.is_empty()).min_by_key(|indent| indent.len());
        Self { unit: unit.unwrap_or("  ").to_owned(), line_end }
    }

    /// A member or an element, on several lines from `indent` on, or on one.
    fn member(&self, key: Option<&str>, value: &Value, indent: Option<&str>) -> String {
        let name = key.map(|key| format!("{}: ", Value::from(key))).unwrap_or_default();
        let value = indent.map_or_else(|| value.to_string(), |indent| self.pretty(value, indent));
        format!("{name}{value}")
    }

    fn pretty(&self, value: &Value, indent: &str) -> String {
        let deeper = format!("{indent}{}", self.unit);
        let lines: Vec<String> = match value {
            Value::Object(members) if !members.is_empty() => members
                .iter()
                .map(|(key, value)| self.member(Some(key), value, Some(&deeper)))
                .collect(),
            Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
                items.iter().map(|item| self.pretty(item, &deeper)).collect()
            }
            other => return other.to_string(),
        };
        let (open, close) = if value.is_object() { ('{', '}') } else { ('[', ']') };
        let end = self.line_end;
        let body = lines.join(&format!(",{end}{deeper}"));
        format!("{open}{end}{deeper}{body}{end}{indent}{close}")
    }
}

/// The white space that the line of a place begins with.
fn indent_at(text: &str, at: usize) -> String {
    let before = text.get(..at).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    leading_space(text.get(line_start..at).unwrap_or_default()).to_owned()
}

fn leading_space(line: &str) -> &str {
    let end = line.find(|c| c != ' ' && c != '\t').unwrap_or(line.len());
    line.get(..end).unwrap_or_default()
}

/// One value in a container, with its key in an object.
struct Entry {
    key: Option<Range<usize>>,
    value: Range<usize>,
}

impl Entry {
    fn start(&self) -> usize {
        self.key.as_ref().map_or(self.value.start, |key| key.start)
    }
}

/// Walks over text that is known to be JSON.
struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    /// The entries of the container whose opening bracket is just behind.
    fn entries(mut self, in_object: bool) -> Vec<Entry> {
        let mut entries = Vec::new();
        loop {
            self.skip_space();
            if matches!(self.peek(), None | Some(b'}' | b']')) {
                return entries;
            }
            let key = in_object.then(|| self.key());
            let start = self.at;
            self.skip_value();
            entries.push(Entry { key, value: start..self.at });
            self.skip_space();
            if self.peek() == Some(b',') {
                self.at += 1;
            }
        }
    }

    fn key(&mut self) -> Range<usize> {
        let start = self.at;
        self.skip_value();
        let key = start..self.at;
        self.skip_space();
        self.at += 1; // The colon.
        self.skip_space();
        key
    }

    fn skip_value(&mut self) {
        let mut depth = 0_usize;
        loop {
            match self.peek() {
                Some(b'"') => self.skip_string(),
                Some(b'{' | b'[') => {
                    depth += 1;
                    self.at += 1;
                }
                Some(b'}' | b']') => {
                    depth = depth.saturating_sub(1);
                    self.at += 1;
                }
                // Between brackets, everything else can be passed byte by byte.
                Some(_) if depth > 0 => self.at += 1,
                Some(_) => self.skip_word(),
                None => return,
            }
            if depth == 0 {
                return;
            }
        }
    }

    fn skip_string(&mut self) {
        self.at += 1;
        while let Some(byte) = self.peek() {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                return;
            }
        }
    }

    /// A number, `true`, `false` or `null`.
    fn skip_word(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        {
            self.at += 1;
        }
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }
}

#[cfg(test)]
#[path = "json_edit_tests.rs"]
mod tests;
