//! Redaction of logged values: known secrets, members with revealing names, and words that look like API keys.

use serde_json::Value;

use super::text::shorten;

/// Values below 8 characters are not redacted: replacing short words everywhere would make texts unreadable.
const MIN_SECRET_LEN: usize = 8;
/// Minimum length of a word with the prefix of an API key.
const MIN_KEY_LEN: usize = 16;
/// Limit of a logged text in characters; the transcript has the whole.
const MAX_TEXT_CHARS: usize = 2_000;
/// Length to which a text is cut before redaction, so that no partial secret remains at the final cut.
const MAX_SCANNED_CHARS: usize = 4 * MAX_TEXT_CHARS;
const MAX_ITEMS: usize = 64;
const MAX_DEPTH: usize = 12;

/// Prefixes of API keys of well-known services.
const KEY_PREFIXES: [&str; 16] = [
    "sk-",
    "pk-",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "AKIA",
    "ASIA",
    "AIza",
    "npm_",
    "pypi-",
];
/// Words in the name of a member that mark its value as secret.
const SECRET_NAMES: [&str; 9] = [
    "password",
    "passwd",
    "secret",
    "token",
    "api_key",
    "apikey",
    "authorization",
    "credential",
    "private_key",
];

/// A secret value and the name that replaces it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret {
    name: String,
    value: String,
}

impl Secret {
    /// Creates a secret; `None` if the value is too short to be redacted.
    pub(crate) fn new(name: &str, value: String) -> Option<Self> {
        (value.chars().count() >= MIN_SECRET_LEN).then(|| Self { name: name.to_owned(), value })
    }

    /// Returns true if the name marks its value as secret.
    pub(crate) fn is_secret_name(name: &str) -> bool {
        let lower = name.to_ascii_lowercase().replace('-', "_");
        SECRET_NAMES.iter().any(|word| lower.contains(word))
    }

    /// Replaces all occurrences of the value by `[name]`; returns true if there was one.
    pub(crate) fn replace_in(&self, text: &mut String) -> bool {
        let found = text.contains(&self.value);
        if found {
            *text = text.replace(&self.value, &format!("[{}]", self.name));
        }
        found
    }
}

/// Removes secrets from logged values.
#[derive(Clone, Default)]
pub(crate) struct Redactor {
    secrets: Vec<Secret>,
}

impl Redactor {
    pub(crate) fn new(secrets: Vec<Secret>) -> Self {
        Self { secrets }
    }

    /// Returns the value without secrets.
    ///
    /// Texts are cut to 2,000 characters, lists and objects to 64 items, nesting to 12 levels.
    pub(crate) fn redact(&self, value: Value) -> Value {
        self.redact_at(value, 0)
    }

    fn redact_at(&self, value: Value, depth: usize) -> Value {
        match value {
            Value::String(text) => Value::String(self.redact_text(&text)),
            Value::Array(_) | Value::Object(_) if depth >= MAX_DEPTH => Value::from("[left out]"),
            Value::Array(items) => items
                .into_iter()
                .take(MAX_ITEMS)
                .map(|item| self.redact_at(item, depth + 1))
                .collect(),
            Value::Object(members) => members
                .into_iter()
                .take(MAX_ITEMS)
                .map(|(name, value)| {
                    let value = self.redact_member(&name, value, depth);
                    (self.redact_text(&name), value)
                })
                .collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) => value,
        }
    }

    fn redact_member(&self, name: &str, value: Value, depth: usize) -> Value {
        match value {
            Value::String(_) if Secret::is_secret_name(name) => Value::from("[secret]"),
            value => self.redact_at(value, depth + 1),
        }
    }

    /// Known secrets are replaced before the final cut, which could leave an unrecognizable part of one.
    fn redact_text(&self, text: &str) -> String {
        let mut text = shorten(text, MAX_SCANNED_CHARS);
        for secret in &self.secrets {
            secret.replace_in(&mut text);
        }
        if may_have_keys(&text) {
            text = redact_keys(&text);
        }
        shorten(&text, MAX_TEXT_CHARS)
    }
}

/// Returns false for texts that cannot contain a key: a fast check, since most do not.
fn may_have_keys(text: &str) -> bool {
    text.contains("eyJ")
        || text.contains("earer")
        || text.contains("EARER")
        || KEY_PREFIXES.iter().any(|prefix| text.contains(prefix))
}

/// Replaces every word that looks like a key.
fn redact_keys(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    let mut after_bearer = false;
    while let Some(start) = rest.find(is_key_character) {
        let (between, from_word) = rest.split_at(start);
        let end = from_word.find(|c| !is_key_character(c)).unwrap_or(from_word.len());
        let (word, after) = from_word.split_at(end);
        clean.push_str(between);
        let secret = looks_like_key(word) || (after_bearer && word.len() >= MIN_SECRET_LEN);
        clean.push_str(if secret { "[secret]" } else { word });
        after_bearer = word.eq_ignore_ascii_case("bearer");
        rest = after;
    }
    clean.push_str(rest);
    clean
}

fn is_key_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

fn looks_like_key(word: &str) -> bool {
    let is_token = word.starts_with("eyJ") && word.matches('.').count() == 2;
    word.len() >= MIN_KEY_LEN
        && (is_token || KEY_PREFIXES.iter().any(|prefix| word.starts_with(prefix)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn e1_known_secrets_secret_members_and_api_keys_are_redacted() {
        let redactor =
            Redactor::new(vec![Secret::new("BRAVE_KEY", "abcd-12345".to_owned()).unwrap()]);
        let clean = redactor.redact(json!({
            "command": "curl -H 'Authorization: Bearer tok12345678' x?key=abcd-12345 -u ghp_0123456789abcdefghij",
            "apiKey": "short", "headers": [{ "X-Auth-Token": "whatever" }], "max_tokens": 3, "abcd-12345": 1,
        }));
        assert_eq!(
            clean,
            json!({
                "command": "curl -H 'Authorization: Bearer [secret]' x?key=[BRAVE_KEY] -u [secret]",
                "apiKey": "[secret]", "headers": [{ "X-Auth-Token": "[secret]" }], "max_tokens": 3, "[BRAVE_KEY]": 1,
            })
        );
    }

    #[test]
    fn long_texts_and_deep_values_are_truncated() {
        let redactor = Redactor::default();
        let long = redactor.redact(json!("ä".repeat(1_000_000)));
        assert_eq!(long.as_str().unwrap().chars().count(), MAX_TEXT_CHARS);
        let deep = (0..100).fold(json!(1), |value, _| json!([value]));
        assert!(redactor.redact(deep).to_string().contains("[left out]"));
    }
}
