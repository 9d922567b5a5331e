//! Secrets of an agent's servers do not leave with its answer.

use serde_json::Value;

use crate::record::Secret;

/// Replaces every secret in `text` by its name; `true` where there was one.
pub(super) fn redact(text: &mut String, secrets: &[Secret]) -> bool {
    secrets.iter().fold(false, |found, secret| secret.replace_in(text) | found)
}

/// The same for every text in a value.
pub(super) fn redact_value(value: &mut Value, secrets: &[Secret]) -> bool {
    match value {
        Value::String(text) => redact(text, secrets),
        Value::Array(items) => {
            items.iter_mut().fold(false, |found, item| redact_value(item, secrets) | found)
        }
        Value::Object(members) => {
            members.iter_mut().fold(false, |found, (_, item)| redact_value(item, secrets) | found)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_secret_is_replaced_by_its_name_wherever_it_stands() {
        let secrets = [Secret::new("API_KEY", "sk-12345678".to_owned()).unwrap()];
        let mut text = "the key sk-12345678, again sk-12345678".to_owned();
        assert!(redact(&mut text, &secrets));
        assert_eq!(text, "the key [API_KEY], again [API_KEY]");
        let mut value = json!({ "a": ["x", { "b": "<sk-12345678>" }], "n": 1 });
        assert!(redact_value(&mut value, &secrets));
        assert_eq!(value, json!({ "a": ["x", { "b": "<[API_KEY]>" }], "n": 1 }));
        assert!(!redact(&mut text, &secrets) && Secret::new("MODE", "prod".to_owned()).is_none());
    }
}
