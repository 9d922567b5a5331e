//! Recovery of intact entries from a damaged `sessions.json`.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::session::Session;

/// Returns every intact entry: an object with all required fields, at any depth.
pub(crate) fn recover_entries(bytes: &[u8]) -> Vec<Session> {
    let mut found = Vec::new();
    match serde_json::from_slice(bytes) {
        Ok(value) => search_value(value, &mut found),
        Err(_) => search_text(bytes, &mut found),
    }
    found
}

/// Searches a text that is not valid JSON.
fn search_text(bytes: &[u8], found: &mut Vec<Session>) {
    let mut rest = bytes;
    while let Some(open) = rest.iter().position(|byte| *byte == b'{') {
        let from_open = rest.get(open..).unwrap_or_default();
        let mut stream = serde_json::Deserializer::from_slice(from_open).into_iter::<FlatObject>();
        let used = match stream.next() {
            Some(Ok(FlatObject(object))) => {
                found.extend(parse_entry(&object));
                stream.byte_offset()
            }
            _ => 1,
        };
        rest = from_open.get(used..).unwrap_or_default();
    }
}

/// Searches a valid JSON value.
fn search_value(value: Value, found: &mut Vec<Session>) {
    match value {
        Value::Object(object) => match parse_entry(&object) {
            Some(conversation) => found.push(conversation),
            None => object.into_iter().for_each(|(_, inner)| search_value(inner, found)),
        },
        Value::Array(items) => items.into_iter().for_each(|inner| search_value(inner, found)),
        _ => {}
    }
}

/// Parses an entry and ignores unknown fields.
fn parse_entry(object: &Map<String, Value>) -> Option<Session> {
    let mut known = Map::new();
    for field in SESSION_FIELDS {
        if let Some(value) = object.get(field) {
            known.insert(field.to_owned(), value.clone());
        }
    }
    serde_json::from_value(Value::Object(known)).ok()
}

/// An object of scalars, as entries are.
///
/// Nested values are rejected, so that a hostile text is not parsed repeatedly.
struct FlatObject(Map<String, Value>);

impl<'de> Deserialize<'de> for FlatObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FlatObjectVisitor)
    }
}

struct FlatObjectVisitor;

impl<'de> Visitor<'de> for FlatObjectVisitor {
    type Value = FlatObject;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of plain values")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<FlatObject, A::Error> {
        let mut object = Map::new();
        while let Some((name, PlainValue(value))) = access.next_entry()? {
            object.insert(name, value);
        }
        Ok(FlatObject(object))
    }
}

struct PlainValue(Value);

impl<'de> Deserialize<'de> for PlainValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PlainValueVisitor)
    }
}

struct PlainValueVisitor;

impl Visitor<'_> for PlainValueVisitor {
    type Value = PlainValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plain value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<PlainValue, E> {
        Ok(PlainValue(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<PlainValue, E> {
        Ok(PlainValue(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<PlainValue, E> {
        Ok(PlainValue(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<PlainValue, E> {
        Ok(PlainValue(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<PlainValue, E> {
        Ok(PlainValue(value.into()))
    }

    fn visit_unit<E>(self) -> Result<PlainValue, E> {
        Ok(PlainValue(Value::Null))
    }
}

const SESSION_FIELDS: [&str; 13] = [
    "agent",
    "key",
    "state",
    "session_id",
    "turns",
    "cost_usd",
    "created",
    "last_used",
    "last_run",
    "folder",
    "config_dir",
    "contract",
    "replaces",
];
