//! Secrets of an agent's servers do not leave with its answer.

use serde_json::Value;

use super::prepare;
use super::steps::Call;
use crate::catalog::Agent;
use crate::outcome::{Answer, Failure};
use crate::record::Secret;

impl Call {
    /// What an agent's servers know stays with them, whatever the agent answers.
    pub(super) fn keep_secrets(&mut self, agent: &Agent, answer: &mut Answer) {
        let secrets = prepare::secrets(agent);
        let in_text = redact(&mut answer.text, &secrets);
        let output = answer.output.as_mut();
        if output.is_some_and(|output| redact_value(output, &secrets)) | in_text {
            self.facts.notes.push(
                "The answer held a secret of the agent's servers; its name stands in its place."
                    .to_owned(),
            );
        }
    }
}

/// A failure quotes what the agent had written, and servers that do not start.
pub(super) fn without_secrets(agent: &Agent, mut failure: Failure) -> Failure {
    let secrets = prepare::secrets(agent);
    redact(&mut failure.message, &secrets);
    if let Some(partial) = &mut failure.partial {
        redact(partial, &secrets);
    }
    for error in &mut failure.errors {
        for text in [&mut error.path, &mut error.expected, &mut error.found] {
            redact(text, &secrets);
        }
    }
    failure
}

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
