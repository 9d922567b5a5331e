//! Finds what is sound in a store that is damaged, entry by entry.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::conversation::Conversation;

/// Every sound entry: each is an object that says all of itself, wherever it stands.
pub(super) fn salvage(bytes: &[u8]) -> Vec<Conversation> {
    let mut found = Vec::new();
    match serde_json::from_slice(bytes) {
        Ok(value) => gather(value, &mut found),
        Err(_) => dig(bytes, &mut found),
    }
    found
}

/// The entries in a text that is no JSON.
fn dig(bytes: &[u8], found: &mut Vec<Conversation>) {
    let mut rest = bytes;
    while let Some(open) = rest.iter().position(|byte| *byte == b'{') {
        let from_open = rest.get(open..).unwrap_or_default();
        let mut stream = serde_json::Deserializer::from_slice(from_open).into_iter::<Flat>();
        let used = match stream.next() {
            Some(Ok(Flat(object))) => {
                found.extend(sound_entry(&object));
                stream.byte_offset()
            }
            _ => 1,
        };
        rest = from_open.get(used..).unwrap_or_default();
    }
}

/// The entries in a value that is whole.
fn gather(value: Value, found: &mut Vec<Conversation>) {
    match value {
        Value::Object(object) => match sound_entry(&object) {
            Some(conversation) => found.push(conversation),
            None => object.into_iter().for_each(|(_, inner)| gather(inner, found)),
        },
        Value::Array(items) => items.into_iter().for_each(|inner| gather(inner, found)),
        _ => {}
    }
}

/// An entry with all it needs; what else somebody wrote into it is left out.
fn sound_entry(object: &Map<String, Value>) -> Option<Conversation> {
    let mut known = Map::new();
    for field in FIELDS {
        if let Some(value) = object.get(field) {
            known.insert(field.to_owned(), value.clone());
        }
    }
    serde_json::from_value(Value::Object(known)).ok()
}

/// An object of plain values. Entries are such objects; looking no deeper keeps a hostile text from
/// being read again and again.
struct Flat(Map<String, Value>);

impl<'de> Deserialize<'de> for Flat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FlatVisitor)
    }
}

struct FlatVisitor;

impl<'de> Visitor<'de> for FlatVisitor {
    type Value = Flat;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of plain values")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Flat, A::Error> {
        let mut object = Map::new();
        while let Some((name, Plain(value))) = access.next_entry()? {
            object.insert(name, value);
        }
        Ok(Flat(object))
    }
}

struct Plain(Value);

impl<'de> Deserialize<'de> for Plain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PlainVisitor)
    }
}

struct PlainVisitor;

impl Visitor<'_> for PlainVisitor {
    type Value = Plain;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plain value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Plain, E> {
        Ok(Plain(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Plain, E> {
        Ok(Plain(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Plain, E> {
        Ok(Plain(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Plain, E> {
        Ok(Plain(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Plain, E> {
        Ok(Plain(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Plain, E> {
        Ok(Plain(Value::Null))
    }
}

const FIELDS: [&str; 13] = [
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
