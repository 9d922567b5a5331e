//! A value of the document with its path; every reader says what is wrong and goes on.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde_yaml::{Mapping, Value};

use super::model::Template;
use super::positions::{join_index, join_key};
use super::problem::{At, Problems};
use super::template::is_variable_name;
use crate::base::nearest;

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Node<'v> {
    pub(super) value: &'v Value,
    pub(super) path: String,
}

impl<'v> Node<'v> {
    /// About this value.
    pub(super) fn at(&self) -> At {
        At::Value(self.path.clone())
    }

    /// About the key of this value.
    pub(super) fn at_key(&self) -> At {
        At::Key(self.path.clone())
    }

    fn wrong_type<T>(&self, wanted: &str, example: &str, problems: &mut Problems) -> Option<T> {
        let Self { path, value } = self;
        let message = format!("`{path}` must be {wanted}, not {}", kind_of(value));
        problems.error("wrong-type", self.at(), message).help(format!("write {example}"));
        None
    }

    /// Text that is not empty.
    pub(super) fn text(&self, problems: &mut Problems) -> Option<&'v str> {
        match self.value {
            Value::String(text) if text.trim().is_empty() => {
                let message = format!("`{}` is empty", self.path);
                problems.error("empty-value", self.at(), message);
                None
            }
            Value::String(text) => Some(text),
            Value::Number(_) | Value::Bool(_) => {
                let example = format!("it in quotes: `\"{}\"`", plain(self.value));
                self.wrong_type("text", &example, problems)
            }
            _ => self.wrong_type("text", "a text in quotes", problems),
        }
    }

    /// `true` or `false`.
    pub(super) fn boolean(&self, problems: &mut Problems) -> Option<bool> {
        match self.value {
            Value::Bool(value) => Some(*value),
            _ => self.wrong_type("true or false", "`true` or `false`, without quotes", problems),
        }
    }

    /// A whole number within `range`.
    pub(super) fn whole(&self, range: RangeInclusive<u64>, problems: &mut Problems) -> Option<u64> {
        let Value::Number(number) = self.value else {
            let example = format!("a number such as `{}`, without quotes", range.start().max(&1));
            return self.wrong_type("a whole number", &example, problems);
        };
        let value = number.as_u64().filter(|value| range.contains(value));
        if value.is_none() {
            let (low, high) = range.into_inner();
            let message = format!("`{}` must be a whole number from {low} to {high}", self.path);
            problems.error("out-of-range", self.at(), message);
        }
        value
    }

    /// As [`Node::whole`], where 32 bits are enough.
    pub(super) fn small(&self, range: RangeInclusive<u32>, problems: &mut Problems) -> Option<u32> {
        let wide = u64::from(*range.start())..=u64::from(*range.end());
        self.whole(wide, problems).and_then(|value| u32::try_from(value).ok())
    }

    /// A time in milliseconds within `range`.
    pub(super) fn milliseconds(
        &self,
        range: RangeInclusive<u64>,
        problems: &mut Problems,
    ) -> Option<Duration> {
        self.whole(range, problems).map(Duration::from_millis)
    }

    /// Dollars: more than nothing.
    pub(super) fn dollars(&self, problems: &mut Problems) -> Option<f64> {
        let Value::Number(number) = self.value else {
            return self.wrong_type("a number of dollars", "a number such as `0.50`", problems);
        };
        let value = number.as_f64().filter(|value| value.is_finite() && *value > 0.0);
        if value.is_none() {
            let message = format!("`{}` must be more than 0", self.path);
            problems.error("out-of-range", self.at(), message);
        }
        value
    }

    /// One of a few words.
    pub(super) fn one_of<T: Copy>(
        &self,
        words: &[(&str, T)],
        problems: &mut Problems,
    ) -> Option<T> {
        let text = self.text(problems)?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*value);
        }
        let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let message = format!("`{}` cannot be `{text}`", self.path);
        problems
            .error("wrong-value", self.at(), message)
            .help(format!("write one of: {}", all.join(", ")));
        None
    }

    /// The items of a list.
    pub(super) fn items(&self, problems: &mut Problems) -> Option<Vec<Node<'v>>> {
        match self.value {
            Value::Sequence(items) => Some(
                items
                    .iter()
                    .enumerate()
                    .map(|(index, value)| Node { value, path: join_index(&self.path, index) })
                    .collect(),
            ),
            _ => self.wrong_type("a list", "a list: `[one, two]`, or `[]` for none", problems),
        }
    }

    /// The items of a list, or the one text that was written in its place.
    pub(super) fn items_or_text(&self, problems: &mut Problems) -> Option<Vec<Node<'v>>> {
        match self.value {
            Value::String(_) => Some(vec![self.clone()]),
            _ => self.items(problems),
        }
    }

    /// The fields of a mapping.
    pub(super) fn fields(&self, problems: &mut Problems) -> Option<Fields<'v>> {
        match self.value {
            Value::Mapping(mapping) => Some(Fields::new(mapping, &self.path, problems)),
            _ => self.wrong_type("a mapping", "`key: value` lines below it, indented", problems),
        }
    }

    /// Text with variables in it.
    pub(super) fn template(&self, problems: &mut Problems) -> Option<Template> {
        let Value::String(text) = self.value else {
            self.text(problems)?;
            return None;
        };
        let template = Template(text.clone());
        if let Some(mistake) = template.mistake() {
            problems
                .error("template-syntax", self.at(), format!("{mistake} in `{}`", self.path))
                .help("write `${NAME}` or `${NAME:-a default}`");
            return None;
        }
        Some(template)
    }

    /// A mapping from names to texts with variables.
    pub(super) fn templates(&self, problems: &mut Problems) -> Option<BTreeMap<String, Template>> {
        let fields = self.fields(problems)?;
        let mut all = BTreeMap::new();
        for (key, node) in fields.iter() {
            if let Some(template) = node.template(problems) {
                all.insert(key.to_owned(), template);
            }
        }
        Some(all)
    }

    /// As [`Node::templates`], where every name is a variable's.
    pub(super) fn variables(&self, problems: &mut Problems) -> Option<BTreeMap<String, Template>> {
        let all = self.templates(problems)?;
        for name in all.keys().filter(|name| !is_variable_name(name)) {
            let at = At::Key(join_key(&self.path, name));
            problems.error("invalid-variable", at, format!("`{name}` cannot be a variable's name"));
        }
        Some(all)
    }
}

/// The fields of a mapping, in the order they were written.
#[derive(Clone, Debug)]
pub(super) struct Fields<'v> {
    path: String,
    entries: Vec<(&'v str, &'v Value)>,
}

impl<'v> Fields<'v> {
    /// Fields with text as keys; other keys are mistakes.
    pub(super) fn new(mapping: &'v Mapping, path: &str, problems: &mut Problems) -> Self {
        let mut entries = Vec::with_capacity(mapping.len());
        for (key, value) in mapping {
            match key {
                Value::String(key) => entries.push((key.as_str(), value)),
                other => {
                    let name = plain(other);
                    let at = At::Key(join_key(path, &name));
                    problems
                        .error("wrong-type", at, format!("the key `{name}` is not text"))
                        .help(format!("put it in quotes: `\"{name}\"`"));
                }
            }
        }
        Self { path: path.to_owned(), entries }
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &str) -> Option<Node<'v>> {
        let (_, value) = self.entries.iter().find(|(found, _)| *found == key)?;
        Some(Node { value, path: join_key(&self.path, key) })
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'v str, Node<'v>)> {
        self.entries
            .iter()
            .map(|(key, value)| (*key, Node { value, path: join_key(&self.path, key) }))
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The mapping's own path.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Every key that is not in `known` is an error.
    pub(super) fn refuse_unknown(&self, known: &[&str], problems: &mut Problems) {
        for (key, node) in self.iter().filter(|(key, _)| !known.contains(key)) {
            let message = match self.path.as_str() {
                "" => format!("unknown key `{key}`"),
                path => format!("unknown key `{key}` in `{path}`"),
            };
            problems.error("unknown-key", node.at_key(), message).help(suggestion(key, known));
        }
    }
}

/// `did you mean …`, or what there is.
pub(super) fn suggestion(wanted: &str, known: &[&str]) -> String {
    match nearest(wanted, known.iter().copied()).first() {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known are: {}", known.join(", ")),
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

fn plain(value: &Value) -> String {
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
