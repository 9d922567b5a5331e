//! Value of a YAML or JSON file with its path. Typed accessors report problems instead of failing.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde_yaml::{Mapping, Value};

use super::super::diagnostic::Severity;
use super::super::problem::{AddedProblem, ProblemTarget, Problems};
use super::positions::{join_index, join_key};
use crate::catalog::model::{Template, is_variable_name};
use crate::util::{nearest_names, shorten};

/// Origin of a value; decides the wording of problems and what other programs may have written into the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileFormat {
    /// Agent files and `defaults.yaml`.
    Yaml,
    /// Manifest of an extension.
    Manifest,
    /// `.mcp.json`: `null` means absent, numbers and flags in `env` and `headers` are text, `${` is not checked.
    McpJson,
}

/// A value with its path in the document, or in the server entry for JSON.
#[derive(Clone, Debug)]
pub(crate) struct Node<'v> {
    pub(crate) value: &'v Value,
    pub(crate) path: String,
    pub(crate) format: FileFormat,
    pub(crate) problems: &'v Problems,
}

/// Type names for messages: as expected in YAML, as missing in JSON.
const TEXT: (&str, &str) = ("text", "no text");
const FLAG: (&str, &str) = ("true or false", "neither true nor false");
const WHOLE_NUMBER: (&str, &str) = ("a whole number", "no whole number");
const LIST: (&str, &str) = ("a list", "no list");
const MAPPING: (&str, &str) = ("a mapping", "no JSON object");

impl<'v> Node<'v> {
    pub(crate) fn is_yaml(&self) -> bool {
        self.format == FileFormat::Yaml
    }

    /// Name in a message: the path, or `it` for a JSON entry itself.
    pub(crate) fn subject(&self) -> String {
        if self.path.is_empty() { "it".to_owned() } else { format!("`{}`", self.path) }
    }

    fn child(&self, value: &'v Value, path: String) -> Self {
        Self { value, path, ..*self }
    }

    /// Target of a problem about this value.
    pub(crate) fn at(&self) -> ProblemTarget {
        ProblemTarget::Value(self.path.clone())
    }

    /// Target of a problem about the key of this value.
    pub(crate) fn at_key(&self) -> ProblemTarget {
        ProblemTarget::Key(self.path.clone())
    }

    /// Reports a mistake in this value.
    pub(crate) fn error(&self, code: &'static str, message: impl Into<String>) -> AddedProblem<'v> {
        self.problems.error(code, self.at(), message)
    }

    /// Reports a mistake at the key of this value.
    pub(crate) fn key_error(
        &self,
        code: &'static str,
        message: impl Into<String>,
    ) -> AddedProblem<'v> {
        self.problems.error(code, self.at_key(), message)
    }

    /// Reports something suspicious at the key of this value.
    pub(crate) fn key_warning(
        &self,
        code: &'static str,
        message: impl Into<String>,
    ) -> AddedProblem<'v> {
        self.problems.add(Severity::Warning, code, self.at_key(), message)
    }

    fn wrong_type<T>(&self, (wanted, missing): (&str, &str), example: &str) -> Option<T> {
        let Self { path, value, .. } = self;
        let message = match self.is_yaml() {
            true => format!("`{path}` must be {wanted}, not {}", kind_of(value)),
            false => format!("`{}` is {missing}", shorten(path, 80)),
        };
        self.error("wrong-type", message).help(format!("write {example}"));
        None
    }

    /// Returns a non-blank string.
    pub(crate) fn text(&self) -> Option<&'v str> {
        let text = self.string()?;
        if text.trim().is_empty() {
            let whose = if self.is_yaml() { "" } else { "its " };
            let message = format!("{whose}`{}` is empty", self.path);
            self.error("empty-value", message);
            return None;
        }
        Some(text)
    }

    /// Returns a string, which may be blank.
    pub(crate) fn string(&self) -> Option<&'v str> {
        match self.value {
            Value::String(text) => Some(text),
            Value::Number(_) | Value::Bool(_) => {
                let example = format!("it in quotes: `\"{}\"`", scalar_text(self.value));
                self.wrong_type(TEXT, &example)
            }
            _ => self.wrong_type(TEXT, "a text in quotes"),
        }
    }

    pub(crate) fn boolean(&self) -> Option<bool> {
        match self.value {
            Value::Bool(value) => Some(*value),
            _ => self.wrong_type(FLAG, "`true` or `false`, without quotes"),
        }
    }

    /// Returns an integer within `range`.
    pub(crate) fn integer(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let Value::Number(number) = self.value else {
            let example = format!("a number such as `{}`, without quotes", range.start().max(&1));
            return self.wrong_type(WHOLE_NUMBER, &example);
        };
        let value = number.as_u64().filter(|value| range.contains(value));
        if value.is_none() {
            let (low, high) = range.into_inner();
            let message = format!("`{}` must be a whole number from {low} to {high}", self.path);
            self.error("out-of-range", message);
        }
        value
    }

    /// Returns a finite amount above 0.
    pub(crate) fn dollars(&self) -> Option<f64> {
        let Value::Number(number) = self.value else {
            let dollars = ("a number of dollars", "no number");
            return self.wrong_type(dollars, "a number such as `0.50`");
        };
        let value = number.as_f64().filter(|value| value.is_finite() && *value > 0.0);
        if value.is_none() {
            let message = format!("`{}` must be more than 0", self.path);
            self.error("out-of-range", message);
        }
        value
    }

    /// Returns the value of the matching word. Words after the first for the same value are synonyms.
    pub(crate) fn one_of<T: Copy + PartialEq>(&self, words: &[(&str, T)]) -> Option<T> {
        let text = self.text()?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*value);
        }
        let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let message = match self.is_yaml() {
            true => format!("`{}` cannot be `{text}`", self.path),
            false => {
                format!("`{}` is `{}`, not {}", self.path, shorten(text, 40), list_words(words))
            }
        };
        self.error("wrong-value", message).help(format!("write one of: {}", all.join(", ")));
        None
    }

    pub(crate) fn items(&self) -> Option<Vec<Node<'v>>> {
        match self.value {
            Value::Sequence(items) => Some(
                items
                    .iter()
                    .enumerate()
                    .map(|(index, value)| self.child(value, join_index(&self.path, index)))
                    .collect(),
            ),
            _ => self.wrong_type(LIST, "a list: `[one, two]`, or `[]` for none"),
        }
    }

    /// Returns the items of a list; a single string counts as a list of one item.
    pub(crate) fn items_or_text(&self) -> Option<Vec<Node<'v>>> {
        match self.value {
            Value::String(_) => Some(vec![self.clone()]),
            _ => self.items(),
        }
    }

    pub(crate) fn fields(&self) -> Option<MappingFields<'v>> {
        match self.value {
            Value::Mapping(mapping) => {
                Some(MappingFields::with_format(mapping, &self.path, self.format, self.problems))
            }
            _ => self.wrong_type(MAPPING, "`key: value` lines below it, indented"),
        }
    }

    /// Returns a template with valid `${…}` syntax.
    pub(crate) fn template(&self) -> Option<Template> {
        let template = Template(self.string()?.to_owned());
        let mistake = template.syntax_error().filter(|_| self.format != FileFormat::McpJson);
        if let Some(mistake) = mistake {
            self.error("template-syntax", format!("{mistake} in `{}`", self.path))
                .help("write `${NAME}` or `${NAME:-a default}`");
            return None;
        }
        Some(template)
    }

    /// Like [`Node::template`], not blank.
    pub(crate) fn filled_template(&self) -> Option<Template> {
        self.text()?;
        self.template()
    }

    /// Returns a mapping from names to templates.
    pub(crate) fn templates(&self) -> Option<BTreeMap<String, Template>> {
        let fields = self.fields()?;
        let mut all = BTreeMap::new();
        for (key, node) in fields.iter() {
            let template = match node.value {
                Value::Number(_) | Value::Bool(_) if self.format == FileFormat::McpJson => {
                    Some(Template(scalar_text(node.value)))
                }
                _ => node.template(),
            };
            all.extend(template.map(|template| (key.to_owned(), template)));
        }
        Some(all)
    }

    /// Like [`Node::templates`]; in YAML the keys must be valid names of environment variables.
    pub(crate) fn variables(&self) -> Option<BTreeMap<String, Template>> {
        let all = self.templates()?;
        for name in all.keys().filter(|name| self.is_yaml() && !is_variable_name(name)) {
            let at = ProblemTarget::Key(join_key(&self.path, name));
            self.problems.error(
                "invalid-variable",
                at,
                format!("`{name}` cannot be a variable's name"),
            );
        }
        Some(all)
    }
}

/// Fields of a mapping in document order.
#[derive(Clone, Debug)]
pub(crate) struct MappingFields<'v> {
    path: String,
    format: FileFormat,
    pub(crate) problems: &'v Problems,
    entries: Vec<(&'v str, &'v Value)>,
}

impl<'v> MappingFields<'v> {
    /// Fields of a whole YAML file.
    pub(crate) fn new(mapping: &'v Mapping, problems: &'v Problems) -> Self {
        Self::with_format(mapping, "", FileFormat::Yaml, problems)
    }

    /// Reports keys that are not strings as errors.
    fn with_format(
        mapping: &'v Mapping,
        path: &str,
        format: FileFormat,
        problems: &'v Problems,
    ) -> Self {
        let mut entries = Vec::with_capacity(mapping.len());
        for (key, value) in mapping {
            match key {
                Value::String(key) => entries.push((key.as_str(), value)),
                other => {
                    let name = scalar_text(other);
                    let at = ProblemTarget::Key(join_key(path, &name));
                    problems
                        .error("wrong-type", at, format!("the key `{name}` is not text"))
                        .help(format!("put it in quotes: `\"{name}\"`"));
                }
            }
        }
        Self { path: path.to_owned(), format, problems, entries }
    }

    pub(crate) fn get(&self, key: &str) -> Option<Node<'v>> {
        let absent = |value: &Value| value.is_null() && self.format == FileFormat::McpJson;
        let (_, value) = self.entries.iter().find(|(found, _)| *found == key)?;
        (!absent(value)).then(|| self.node(key, value))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'v str, Node<'v>)> {
        self.entries.iter().map(|(key, value)| (*key, self.node(key, value)))
    }

    fn node(&self, key: &str, value: &'v Value) -> Node<'v> {
        let Self { format, problems, .. } = *self;
        Node { value, path: join_key(&self.path, key), format, problems }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Reads the value of `key` if there is one.
    pub(crate) fn read<T>(
        &self,
        key: &str,
        accessor: impl FnOnce(&Node<'v>) -> Option<T>,
    ) -> Option<T> {
        accessor(&self.get(key)?)
    }

    /// Reads the value of `key` as one of `words` if there is one.
    pub(crate) fn choose<T: Copy + PartialEq>(&self, key: &str, words: &[(&str, T)]) -> Option<T> {
        self.get(key)?.one_of(words)
    }

    /// Reports every key outside `known` as an error.
    pub(crate) fn reject_unknown(&self, known: &[&str]) {
        for (key, node) in self.iter().filter(|(key, _)| !known.contains(key)) {
            let message = match self.path.as_str() {
                "" => format!("unknown key `{key}`"),
                path if self.format != FileFormat::Yaml => {
                    format!("`{path}` has an unknown key `{}`", shorten(key, 40))
                }
                path => format!("unknown key `{key}` in `{path}`"),
            };
            node.key_error("unknown-key", message).help(suggestion(key, known));
        }
    }
}

/// Help text: the nearest known word, or all known words.
pub(crate) fn suggestion(wanted: &str, known: &[&str]) -> String {
    match nearest_names(wanted, known.iter().copied()).first() {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known are: {}", known.join(", ")),
    }
}

/// Lists the words without synonyms: `` `a`, `b` or `c` ``.
fn list_words<T: PartialEq>(words: &[(&str, T)]) -> String {
    let first = |(index, (_, value)): &(usize, &(&str, T))| {
        words.iter().position(|(_, known)| known == value) == Some(*index)
    };
    let words: Vec<String> =
        words.iter().enumerate().filter(first).map(|(_, (word, _))| format!("`{word}`")).collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => words.concat(),
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "empty",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Sequence(_) => "a list",
        Value::Mapping(_) => "a mapping",
        Value::Tagged(_) => "a tagged value",
    }
}

fn scalar_text(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(value) => value.to_string(),
        Value::String(value) => value.clone(),
        Value::Sequence(_) => "[…]".to_owned(),
        Value::Mapping(_) => "{…}".to_owned(),
        Value::Tagged(_) => "!…".to_owned(),
    }
}
