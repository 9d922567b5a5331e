//! Secrets of an agent's servers, and their removal from texts.

use serde_json::Value;

use super::process_spec::resolve_variables;
use crate::catalog::{Agent, ServerLaunch};
use crate::util::Secret;

/// Returns the values of an agent's servers that come from our environment or are named like a secret
/// (`TOKEN`).
pub(crate) fn server_secrets(agent: &Agent) -> Vec<Secret> {
    let values = agent.servers.iter().flat_map(|server| match &server.launch {
        ServerLaunch::Stdio { env, .. } => env.iter().collect::<Vec<_>>(),
        ServerLaunch::Http { headers, .. } => headers.iter().collect(),
        ServerLaunch::Shared => Vec::new(),
    });
    values
        .filter(|(name, template)| !template.variables().is_empty() || Secret::is_secret_name(name))
        .filter_map(|(name, template)| Secret::new(name, resolve_variables(template).ok()?))
        .collect()
}

/// Replaces every secret in `text` by its name. Returns `true` if there was one.
pub(crate) fn redact(text: &mut String, secrets: &[Secret]) -> bool {
    secrets.iter().fold(false, |found, secret| secret.replace_in(text) | found)
}

/// Redacts every string in a JSON value, not its keys. Returns `true` if there was a secret.
pub(crate) fn redact_value(value: &mut Value, secrets: &[Secret]) -> bool {
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
    fn secrets_are_replaced_by_their_names_everywhere() {
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
