//! Reduction of an output schema to a hint for the CLI (`--json-schema`).
//!
//! Adjutant validates answers against the whole schema.
//!
//! The CLI implements an older draft strictly: 2.1.325 does not start with an unknown keyword or format, and 2.1.197
//! then lacks the tool that it tells the model to use. The hint holds only keywords that both know, and accepts every
//! value that the schema accepts; if an answer violates the rest, the agent gets feedback.

use serde_json::{Map, Value};

/// Limit of a hint. One argument has at most 128 KiB, and a hint also costs tokens.
const MAX_HINT_BYTES: usize = 32 * 1024;

/// Keywords without subschemas that mean the same in both drafts.
const COPIED_KEYWORDS: [&str; 13] = [
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

/// Returns the hint for a schema; `None` unless the value must be an object, as arguments of a tool
/// are.
pub(crate) fn hint(schema: &Value) -> Option<String> {
    let object =
        schema.as_object().filter(|object| object.get("type") == Some(&"object".into()))?;
    if has_subschema_ids(schema) {
        return None;
    }
    let mut hint = weaken(object, &definitions(object));
    // The API rejects alternatives at the root of a tool's schema.
    for keyword in ["anyOf", "allOf"] {
        hint.remove(keyword);
    }
    if let Some(Value::Object(definitions)) = object.get("$defs") {
        let names = self::definitions(object);
        let weaker =
            definitions.iter().map(|(name, part)| (name.clone(), weaken_part(part, &names)));
        hint.insert("$defs".to_owned(), Value::Object(weaker.collect()));
    }
    let text = Value::Object(hint).to_string();
    (text.len() <= MAX_HINT_BYTES).then_some(text)
}

fn definitions(object: &Map<String, Value>) -> Vec<String> {
    let definitions = object.get("$defs").and_then(Value::as_object);
    definitions.into_iter().flatten().map(|(name, _)| format!("#/$defs/{name}")).collect()
}

/// Returns `true` if a subschema has its own URI, which changes the meaning of references.
fn has_subschema_ids(schema: &Value) -> bool {
    match schema {
        Value::Object(object) => {
            let named =
                ["$id", "$anchor", "$dynamicAnchor"].iter().any(|key| object.contains_key(*key));
            named || object.values().any(has_subschema_ids)
        }
        Value::Array(items) => items.iter().any(has_subschema_ids),
        _ => false,
    }
}

fn weaken_part(schema: &Value, definitions: &[String]) -> Value {
    match schema {
        Value::Object(object) => Value::Object(weaken(object, definitions)),
        other => other.clone(),
    }
}

/// Returns the schema without unsupported keywords. No remaining keyword depends on a removed one.
fn weaken(object: &Map<String, Value>, definitions: &[String]) -> Map<String, Value> {
    let mut kept = Map::new();
    for (keyword, value) in object {
        let value = match (keyword.as_str(), value) {
            (keyword, value) if COPIED_KEYWORDS.contains(&keyword) => value.clone(),
            ("enum", Value::Array(options)) if is_unique_list(options) => value.clone(),
            ("properties", Value::Object(properties)) => {
                let parts = properties.iter();
                parts.map(|(name, part)| (name.clone(), weaken_part(part, definitions))).collect()
            }
            ("additionalProperties", part) if !object.contains_key("patternProperties") => {
                weaken_part(part, definitions)
            }
            // Next to `prefixItems`, `items` applies to the remaining items only, which the older draft does not know.
            ("items", part) if !object.contains_key("prefixItems") => {
                weaken_part(part, definitions)
            }
            ("anyOf" | "allOf", Value::Array(parts)) => {
                parts.iter().map(|part| weaken_part(part, definitions)).collect()
            }
            // Several weakened alternatives may match, so `oneOf` becomes `anyOf`.
            ("oneOf", Value::Array(parts)) if !object.contains_key("anyOf") => {
                let parts = parts.iter().map(|part| weaken_part(part, definitions)).collect();
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

/// Returns `true` if the options are not empty and unique, as the older draft requires.
fn is_unique_list(options: &[Value]) -> bool {
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
    fn keywords_unknown_to_the_older_draft_are_removed() {
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
    fn no_hint_is_given_if_it_could_be_wrong() {
        assert_eq!(hint(&json!({ "type": "array" })), None);
        assert_eq!(hint(&json!({ "properties": {} })), None, "any value fits, not just objects");
        assert_eq!(hint(&json!({ "type": "object", "$defs": { "a": { "$id": "x" } } })), None);
        let long = "x".repeat(MAX_HINT_BYTES);
        assert_eq!(hint(&json!({ "type": "object", "description": long })), None);
    }

    #[test]
    fn alternatives_at_the_root_are_removed() {
        let schema = json!({ "type": "object", "oneOf": [{ "required": ["a"] }] });
        assert_eq!(hinted(&schema), json!({ "type": "object" }));
    }
}
