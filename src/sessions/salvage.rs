//! Recovery of intact entries from a damaged `sessions.json`.

use serde_json::{Deserializer, Map, Value};

use super::session::Session;

/// Fields of an entry; others are ignored.
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

/// Returns every intact entry: an object with all required fields, at any depth of any text.
///
/// An object that is not valid JSON is searched for objects inside. The recursion limit of serde_json (128) bounds how
/// often a byte is parsed.
pub(crate) fn recover_entries(bytes: &[u8]) -> Vec<Session> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while let Some(open) = rest.iter().position(|byte| *byte == b'{') {
        let from_open = rest.get(open..).unwrap_or_default();
        let mut stream = Deserializer::from_slice(from_open).into_iter::<Value>();
        let used = match stream.next() {
            Some(Ok(value)) => {
                search_value(value, &mut found);
                stream.byte_offset()
            }
            _ => 1,
        };
        rest = from_open.get(used..).unwrap_or_default();
    }
    found
}

fn search_value(value: Value, found: &mut Vec<Session>) {
    match value {
        Value::Object(object) => match parse_entry(&object) {
            Some(session) => found.push(session),
            None => object.into_iter().for_each(|(_, inner)| search_value(inner, found)),
        },
        Value::Array(items) => items.into_iter().for_each(|inner| search_value(inner, found)),
        _ => {}
    }
}

fn parse_entry(object: &Map<String, Value>) -> Option<Session> {
    let mut known = object.clone();
    known.retain(|field, _| SESSION_FIELDS.contains(&field.as_str()));
    serde_json::from_value(Value::Object(known)).ok()
}
