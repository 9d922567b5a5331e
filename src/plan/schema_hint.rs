//! What of an answer's schema the CLI is told (`--json-schema`). It is a hint: the answer is validated by us, against all of it.
//!
//! The CLI knows an older draft and is strict about it: 2.1.325 does not start with a keyword or a format that it does not
//! know, and 2.1.197 then goes without the tool that it tells the model to use. So only what both understand is
//! passed on, and only so that everything that fits the schema fits the hint: what is left out is said to the agent if
//! its answer lacks it.

use serde_json::{Map, Value};

/// One argument has at most 128 KiB, and a hint is also paid for as tokens.
const MOST_BYTES: usize = 32 * 1024;

/// Keywords that mean the same in both drafts and hold no schema.
const PLAIN: [&str; 13] = [
    "type",
    "title",
    "description",
    "required",
    "const",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
];

/// The hint for a schema; none where the answer need not be an object, which alone a tool can be called with.
pub(super) fn hint(schema: &Value) -> Option<String> {
    let object =
        schema.as_object().filter(|object| object.get("type") == Some(&"object".into()))?;
    if names_places(schema) {
        return None;
    }
    let mut hint = weaker(object, &definitions(object));
    // The API takes no alternatives at the top of a tool's schema.
    for keyword in ["anyOf", "allOf"] {
        hint.remove(keyword);
    }
    if let Some(Value::Object(definitions)) = object.get("$defs") {
        let names = self::definitions(object);
        let weaker = definitions.iter().map(|(name, part)| (name.clone(), part_of(part, &names)));
        hint.insert("$defs".to_owned(), Value::Object(weaker.collect()));
    }
    let text = Value::Object(hint).to_string();
    (text.len() <= MOST_BYTES).then_some(text)
}

fn definitions(object: &Map<String, Value>) -> Vec<String> {
    let definitions = object.get("$defs").and_then(Value::as_object);
    definitions.into_iter().flatten().map(|(name, _)| format!("#/$defs/{name}")).collect()
}

/// Whether a part of it has an address of its own: then references mean other things than they say.
fn names_places(schema: &Value) -> bool {
    match schema {
        Value::Object(object) => {
            let named =
                ["$id", "$anchor", "$dynamicAnchor"].iter().any(|key| object.contains_key(*key));
            named || object.values().any(names_places)
        }
        Value::Array(items) => items.iter().any(names_places),
        _ => false,
    }
}

fn part_of(schema: &Value, definitions: &[String]) -> Value {
    match schema {
        Value::Object(object) => Value::Object(weaker(object, definitions)),
        other => other.clone(),
    }
}

/// The same with some keywords left out. None of those that stay depends on one that goes.
fn weaker(object: &Map<String, Value>, definitions: &[String]) -> Map<String, Value> {
    let mut kept = Map::new();
    for (keyword, value) in object {
        let value = match (keyword.as_str(), value) {
            (keyword, value) if PLAIN.contains(&keyword) => value.clone(),
            ("enum", Value::Array(options)) if is_plain(options) => value.clone(),
            ("properties", Value::Object(properties)) => {
                let parts = properties.iter();
                parts.map(|(name, part)| (name.clone(), part_of(part, definitions))).collect()
            }
            ("additionalProperties", part) if !object.contains_key("patternProperties") => {
                part_of(part, definitions)
            }
            // With `prefixItems` it is about the others alone, which the older draft does not know.
            ("items", part) if !object.contains_key("prefixItems") => part_of(part, definitions),
            ("anyOf" | "allOf", Value::Array(parts)) => {
                parts.iter().map(|part| part_of(part, definitions)).collect()
            }
            // Weaker alternatives may fit together, so that exactly one is too much to ask.
            ("oneOf", Value::Array(parts)) if !object.contains_key("anyOf") => {
                let parts = parts.iter().map(|part| part_of(part, definitions)).collect();
                kept.insert("anyOf".to_owned(), parts);
                continue;
            }
            ("$ref", Value::String(place)) if definitions.contains(place) => value.clone(),
            _ => continue,
        };
        kept.insert(keyword.clone(), value);
    }
    kept
}

/// The older draft wants options, each once.
fn is_plain(options: &[Value]) -> bool {
    !options.is_empty()
        && options
            .iter()
            .enumerate()
            .all(|(at, option)| !options.iter().take(at).any(|o| o == option))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn hinted(schema: &Value) -> Value {
        hint(schema).map_or(Value::Null, |text| serde_json::from_str(&text).unwrap())
    }

    #[test]
    fn what_an_older_draft_does_not_know_is_left_out() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "required": ["a"],
            "properties": {
                "a": { "type": "string", "format": "uri", "pattern": "^h", "description": "where" },
                "b": { "oneOf": [{ "type": "null" }, { "$ref": "#/$defs/c" }] },
                "d": { "type": "array", "prefixItems": [{ "type": "string" }], "items": { "type": "null" } },
            },
            "not": { "required": ["x"] }, "unevaluatedProperties": false,
            "$defs": { "c": { "type": "object", "additionalProperties": { "$ref": "https://elsewhere" } } },
        });
        let expected = json!({
            "type": "object", "required": ["a"],
            "properties": {
                "a": { "type": "string", "description": "where" },
                "b": { "anyOf": [{ "type": "null" }, { "$ref": "#/$defs/c" }] },
                "d": { "type": "array" },
            },
            "$defs": { "c": { "type": "object", "additionalProperties": {} } },
        });
        assert_eq!(hinted(&schema), expected);
    }

    #[test]
    fn there_is_no_hint_where_it_could_be_wrong() {
        assert_eq!(hint(&json!({ "type": "array" })), None);
        assert_eq!(hint(&json!({ "properties": {} })), None, "any value fits, not just objects");
        assert_eq!(hint(&json!({ "type": "object", "$defs": { "a": { "$id": "x" } } })), None);
        let long = "x".repeat(MOST_BYTES);
        assert_eq!(hint(&json!({ "type": "object", "description": long })), None);
    }

    #[test]
    fn alternatives_at_the_top_go() {
        let schema = json!({ "type": "object", "oneOf": [{ "required": ["a"] }] });
        assert_eq!(hinted(&schema), json!({ "type": "object" }));
    }
}
