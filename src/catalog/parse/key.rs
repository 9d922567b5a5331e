//! Declaration of one key of `agent.md` or `defaults.yaml`: name, documentation, type, range and field.
//!
//! Reading, unknown-key checks, `adjutant show`, the JSON Schemas and the tables in `docs/agent-file.md` follow from it.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::node::{MappingFields, Node};
use super::shape::Shape;
use crate::util::parse_age;

/// A top-level key whose value is stored in a `T`.
pub(crate) struct Key<T> {
    pub(crate) name: &'static str,
    /// One sentence without its full stop.
    pub(crate) doc: &'static str,
    pub(crate) effect: Effect,
    /// True for a key of agent files that `defaults.yaml` has, too.
    pub(crate) shared: bool,
    kind: Kind<T>,
}

/// Effect of a key on what an agent may do; decides how a typo of the key is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Effect {
    /// A typo is an error: it must never widen permissions.
    Restricts,
    None,
    /// Suggested only for a misspelling, never for a word that it contains.
    Widens,
}

enum Kind<T> {
    Number(RangeInclusive<u64>, fn(&mut T) -> &mut dyn NumberField),
    Dollars(fn(&mut T) -> &mut Option<f64>),
    /// A number and a unit, such as `30d`.
    Age(fn(&mut T) -> &mut Option<Duration>),
    Other(Shape, ReadValue<T>, ShowValue<T>),
}

/// Reads a value into its field and reports its mistakes.
type ReadValue<T> = fn(&Node<'_>, &mut T);
/// Returns the value as `adjutant show` prints it.
type ShowValue<T> = fn(&T) -> Value;

/// A field that holds a whole number; a duration is a number of milliseconds.
pub(crate) trait NumberField {
    fn store(&mut self, number: u64);
    fn show(&self) -> Value;
}

impl<T> Key<T> {
    const fn new(name: &'static str, kind: Kind<T>) -> Self {
        Self { name, doc: "", effect: Effect::Restricts, shared: false, kind }
    }

    pub(crate) const fn number(
        name: &'static str,
        range: RangeInclusive<u64>,
        field: fn(&mut T) -> &mut dyn NumberField,
    ) -> Self {
        Self::new(name, Kind::Number(range, field))
    }

    pub(crate) const fn dollars(name: &'static str, field: fn(&mut T) -> &mut Option<f64>) -> Self {
        Self::new(name, Kind::Dollars(field))
    }

    pub(crate) const fn age(
        name: &'static str,
        field: fn(&mut T) -> &mut Option<Duration>,
    ) -> Self {
        Self::new(name, Kind::Age(field))
    }

    pub(crate) const fn other(
        name: &'static str,
        shape: Shape,
        read: ReadValue<T>,
        show: ShowValue<T>,
    ) -> Self {
        Self::new(name, Kind::Other(shape, read, show))
    }

    /// A key whose value depends on other keys or files; the parser of the file reads it.
    pub(crate) const fn dependent(name: &'static str, shape: Shape, show: ShowValue<T>) -> Self {
        Self::other(name, shape, |_, _| {}, show)
    }

    pub(crate) const fn doc(mut self, doc: &'static str) -> Self {
        self.doc = doc;
        self
    }

    pub(crate) const fn effect(mut self, effect: Effect) -> Self {
        self.effect = effect;
        self
    }

    pub(crate) const fn shared(mut self) -> Self {
        self.shared = true;
        self
    }

    fn read(&self, node: &Node<'_>, into: &mut T) {
        match &self.kind {
            Kind::Number(range, field) => {
                if let Some(number) = node.integer(range.clone()) {
                    field(into).store(number);
                }
            }
            Kind::Dollars(field) => *field(into) = node.dollars(),
            Kind::Age(field) => *field(into) = read_age(node),
            Kind::Other(_, read, _) => read(node, into),
        }
    }

    /// Returns the value in `from`, which a field accessor borrows mutably.
    pub(crate) fn show(&self, from: &mut T) -> Value {
        match &self.kind {
            Kind::Number(_, field) => field(from).show(),
            Kind::Dollars(field) => json!(field(from)),
            Kind::Age(field) => field(from).show(),
            Kind::Other(_, _, show) => show(from),
        }
    }

    /// Returns the built-in value in `built_in` if it is a flag, a number, a text or a list.
    pub(crate) fn default(&self, built_in: &mut T) -> Option<Value> {
        Some(self.show(built_in)).filter(|value| match value {
            Value::Null | Value::Object(_) => false,
            Value::Bool(_) | Value::Number(_) => true,
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
        })
    }

    fn schema(&self, built_in: &mut T) -> Value {
        let mut schema = match &self.kind {
            Kind::Number(range, _) => Shape::Number(range.clone()).schema(self.doc),
            Kind::Dollars(_) => Shape::Dollars.schema(self.doc),
            Kind::Age(_) => Shape::Pattern("^[0-9]+[smhdw]$").schema(self.doc),
            Kind::Other(shape, ..) => shape.schema(self.doc),
        };
        if let (Some(default), Some(schema)) = (self.default(built_in), schema.as_object_mut()) {
            schema.insert("default".to_owned(), default);
        }
        schema
    }
}

/// Reads every key of `keys` that the file has.
pub(crate) fn read_keys<T: 'static>(
    keys: impl Iterator<Item = &'static Key<T>>,
    fields: &MappingFields<'_>,
    into: &mut T,
) {
    for key in keys {
        if let Some(node) = fields.get(key.name) {
            key.read(&node, into);
        }
    }
}

/// Returns `properties` of the JSON Schema; defaults are taken from `built_in`.
pub(crate) fn properties<T: 'static>(
    keys: impl Iterator<Item = &'static Key<T>>,
    mut built_in: T,
) -> Map<String, Value> {
    keys.map(|key| (key.name.to_owned(), key.schema(&mut built_in))).collect()
}

fn read_age(node: &Node<'_>) -> Option<Duration> {
    let text = node.text()?;
    let age = parse_age(text);
    if age.is_none() {
        node.error("wrong-value", format!("`{}` is no age: `{text}`", node.path))
            .help("write a number and a unit: `30d`, `12h`, `45m` or `10s`");
    }
    age
}

impl NumberField for u32 {
    fn store(&mut self, number: u64) {
        *self = Self::try_from(number).unwrap_or(Self::MAX);
    }

    fn show(&self) -> Value {
        json!(self)
    }
}

impl NumberField for u64 {
    fn store(&mut self, number: u64) {
        *self = number;
    }

    fn show(&self) -> Value {
        json!(self)
    }
}

impl NumberField for usize {
    fn store(&mut self, number: u64) {
        *self = Self::try_from(number).unwrap_or(Self::MAX);
    }

    fn show(&self) -> Value {
        json!(self)
    }
}

impl NumberField for Duration {
    fn store(&mut self, number: u64) {
        *self = Self::from_millis(number);
    }

    fn show(&self) -> Value {
        json!(u64::try_from(self.as_millis()).unwrap_or(u64::MAX))
    }
}

impl<N: NumberField + Default> NumberField for Option<N> {
    fn store(&mut self, number: u64) {
        self.get_or_insert_default().store(number);
    }

    fn show(&self) -> Value {
        self.as_ref().map_or(Value::Null, N::show)
    }
}

#[cfg(test)]
#[path = "key_tests.rs"]
mod tests;
