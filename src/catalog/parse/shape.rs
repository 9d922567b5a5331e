//! Shapes of values, for the JSON Schemas that editors use and for the known keys of nested mappings.

use std::ops::RangeInclusive;

use serde_json::{Map, Value, json};

/// Shape of a value.
pub(crate) enum Shape {
    Any,
    Text,
    /// Text that matches the regular expression.
    Pattern(&'static str),
    /// Text of 1 to this many characters.
    TextUpTo(usize),
    Flag,
    Number(RangeInclusive<u64>),
    /// A number above 0.
    Dollars,
    Words(&'static [&'static str]),
    /// A list of texts, or one text.
    Texts,
    List(&'static Shape),
    /// A mapping from any names.
    Map(&'static Shape),
    /// A mapping with these keys and no others.
    Object(&'static [Property]),
    OneOf(&'static [Shape]),
    Null,
    /// An entry of this name below `$defs`.
    Definition(&'static str),
}

/// A key of a nested mapping.
pub(crate) struct Property {
    pub(crate) name: &'static str,
    shape: Shape,
    doc: &'static str,
    required: bool,
}

pub(crate) const fn property(name: &'static str, shape: Shape, doc: &'static str) -> Property {
    Property { name, shape, doc, required: false }
}

pub(crate) const fn required(name: &'static str, shape: Shape, doc: &'static str) -> Property {
    Property { name, shape, doc, required: true }
}

/// Returns the names of the properties.
pub(crate) fn names(properties: &[Property]) -> Vec<&'static str> {
    properties.iter().map(|property| property.name).collect()
}

impl Shape {
    /// Returns the JSON Schema with a description.
    pub(crate) fn schema(&self, doc: &str) -> Value {
        let mut schema = Map::new();
        if !doc.is_empty() {
            schema.insert("description".to_owned(), json!(format!("{doc}.")));
        }
        if let Value::Object(keywords) = self.keywords() {
            schema.extend(keywords);
        }
        Value::Object(schema)
    }

    fn keywords(&self) -> Value {
        match self {
            Self::Any => json!({}),
            Self::Text => json!({"type": "string"}),
            Self::Pattern(pattern) => json!({"type": "string", "pattern": pattern}),
            Self::TextUpTo(max) => json!({"type": "string", "minLength": 1, "maxLength": max}),
            Self::Flag => json!({"type": "boolean"}),
            Self::Number(range) => {
                json!({"type": "integer", "minimum": range.start(), "maximum": range.end()})
            }
            Self::Dollars => json!({"type": "number", "exclusiveMinimum": 0}),
            Self::Words(words) => json!({"type": "string", "enum": words}),
            Self::Texts => json!({"type": ["string", "array"], "items": {"type": "string"}}),
            Self::List(item) => json!({"type": "array", "items": item.keywords()}),
            Self::Map(value) => {
                json!({"type": "object", "additionalProperties": value.keywords()})
            }
            Self::Object(properties) => object_schema(properties.iter()),
            Self::OneOf(shapes) => {
                json!({"anyOf": shapes.iter().map(Self::keywords).collect::<Vec<_>>()})
            }
            Self::Null => json!({"type": "null"}),
            Self::Definition(name) => json!({"$ref": format!("#/$defs/{name}")}),
        }
    }
}

/// Returns the JSON Schema of a mapping with these keys and no others.
pub(crate) fn object_schema<'p>(properties: impl Iterator<Item = &'p Property>) -> Value {
    let (mut schemas, mut required) = (Map::new(), Vec::new());
    for property in properties {
        schemas.insert(property.name.to_owned(), property.shape.schema(property.doc));
        required.extend(property.required.then_some(property.name));
    }
    let mut schema =
        json!({"type": "object", "properties": schemas, "additionalProperties": false});
    if let Some(schema) = schema.as_object_mut().filter(|_| !required.is_empty()) {
        schema.insert("required".to_owned(), json!(required));
    }
    schema
}

#[cfg(test)]
impl Shape {
    /// Returns the values in words, for the documentation.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Any => "any".to_owned(),
            Self::Text | Self::Pattern(_) => "text".to_owned(),
            Self::TextUpTo(max) => format!("text of 1 to {max} characters"),
            Self::Flag => "`true`, `false`".to_owned(),
            Self::Number(range) => format!("{} to {}", range.start(), range.end()),
            Self::Dollars => "more than 0".to_owned(),
            Self::Words(words) => format!("`{}`", words.join("`, `")),
            Self::Texts => "list, or one text".to_owned(),
            Self::List(_) => "list".to_owned(),
            Self::Map(_) | Self::Definition(_) | Self::Null => "mapping".to_owned(),
            Self::Object(properties) => {
                let names = names(properties).join("`, `");
                format!("mapping with `{names}`")
            }
            Self::OneOf(shapes) => {
                shapes.iter().map(Self::describe).collect::<Vec<_>>().join(", or ")
            }
        }
    }
}
