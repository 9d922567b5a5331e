//! JSON Schemas of agent files and `defaults.yaml`.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

use super::agent_schema::AgentFile;
use super::defaults_schema::DefaultsFile;

/// Schema of the front matter of `agent.md`.
pub(crate) fn agent_schema() -> Schema {
    schema::<AgentFile>()
}

/// Schema of `agents/defaults.yaml`.
pub(crate) fn defaults_schema() -> Schema {
    schema::<DefaultsFile>()
}

fn schema<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12()
        .with_transform(RecursiveTransform(forbid_null))
        .into_generator()
        .into_root_schema_for::<T>()
}

/// Removes `null` from property types: a key may be absent, but not without a value.
fn forbid_null(schema: &mut Schema) {
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
        return;
    };
    for property in properties.values_mut().filter_map(Value::as_object_mut) {
        if let Some(kinds) = property.get_mut("type").and_then(Value::as_array_mut) {
            kinds.retain(|kind| kind != "null");
            if let [only] = kinds.as_slice() {
                let only = only.clone();
                property.insert("type".to_owned(), only);
            }
        }
        if let Some(choices) = property.get_mut("anyOf").and_then(Value::as_array_mut) {
            choices.retain(|choice| choice.get("type").is_none_or(|kind| kind != "null"));
            if let [only] = choices.as_slice()
                && let Some(reference) = only.get("$ref").cloned()
            {
                property.remove("anyOf");
                property.insert("$ref".to_owned(), reference);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::catalog::parse::{agent_keys, defaults};

    fn properties(schema: &Schema) -> BTreeSet<&str> {
        let properties = schema.get("properties").and_then(|value| value.as_object()).unwrap();
        properties.keys().map(String::as_str).collect()
    }

    #[test]
    fn schemas_have_exactly_the_parsed_keys() {
        assert_eq!(properties(&agent_schema()), agent_keys::known_keys().collect());
        assert_eq!(
            properties(&defaults_schema()),
            defaults::DEFAULTS_KEYS.iter().copied().collect()
        );
    }
}
