//! What is secret does not stand in the record: known values, telling keys, and words that look like a key.

use serde_json::Value;

use crate::base::shorten;

/// Shorter values are words, not secrets: replacing them would garble everything.
const SHORTEST: usize = 8;
/// A key to an API is longer than a word.
const SHORTEST_KEY: usize = 16;
/// What a text is cut to; the whole of it is in the transcript.
const MAX_TEXT: usize = 2_000;
/// What is looked at of a longer text, so that no half of a secret stands at the cut.
const LOOKED_AT: usize = 4 * MAX_TEXT;
const MAX_ITEMS: usize = 64;
const MAX_DEPTH: usize = 12;

/// How keys of well-known services begin.
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
/// What a member's name says of its value.
const TELLING: [&str; 9] = [
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

/// A value that must not be told, and the name that stands in for it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    name: String,
    value: String,
}

impl Secret {
    /// A secret, if the value can be one.
    pub fn new(name: &str, value: String) -> Option<Self> {
        (value.chars().count() >= SHORTEST).then(|| Self { name: name.to_owned(), value })
    }

    /// Whether a name says that its value is secret.
    pub fn is_named_by(name: &str) -> bool {
        let lower = name.to_ascii_lowercase().replace('-', "_");
        TELLING.iter().any(|word| lower.contains(word))
    }

    /// Puts the name in its place, wherever it stands; `true` where it did.
    pub fn replace_in(&self, text: &mut String) -> bool {
        let found = text.contains(&self.value);
        if found {
            *text = text.replace(&self.value, &format!("[{}]", self.name));
        }
        found
    }
}

/// Takes secrets out of what is recorded.
#[derive(Clone, Default)]
pub struct Redactor {
    secrets: Vec<Secret>,
}

impl Redactor {
    /// With values that are known to be secret.
    pub fn new(secrets: Vec<Secret>) -> Self {
        Self { secrets }
    }

    /// The value without secrets, and with no text that is longer than a page.
    pub fn clean(&self, value: Value) -> Value {
        self.clean_at(value, 0)
    }

    fn clean_at(&self, value: Value, depth: usize) -> Value {
        match value {
            Value::String(text) => Value::String(self.clean_text(&text)),
            Value::Array(_) | Value::Object(_) if depth >= MAX_DEPTH => Value::from("[left out]"),
            Value::Array(items) => items
                .into_iter()
                .take(MAX_ITEMS)
                .map(|item| self.clean_at(item, depth + 1))
                .collect(),
            Value::Object(members) => members
                .into_iter()
                .take(MAX_ITEMS)
                .map(|(name, value)| {
                    let value = self.clean_member(&name, value, depth);
                    (self.clean_text(&name), value)
                })
                .collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) => value,
        }
    }

    fn clean_member(&self, name: &str, value: Value, depth: usize) -> Value {
        match value {
            Value::String(_) if Secret::is_named_by(name) => Value::from("[secret]"),
            value => self.clean_at(value, depth + 1),
        }
    }

    /// Known values first: a cut could leave half of one that nobody would recognise.
    fn clean_text(&self, text: &str) -> String {
        let mut text = shorten(text, LOOKED_AT);
        for secret in &self.secrets {
            secret.replace_in(&mut text);
        }
        if may_have_keys(&text) {
            text = without_keys(&text);
        }
        shorten(&text, MAX_TEXT)
    }
}

/// Most texts have none, and looking closely takes longer.
fn may_have_keys(text: &str) -> bool {
    text.contains("eyJ")
        || text.contains("earer")
        || text.contains("EARER")
        || KEY_PREFIXES.iter().any(|prefix| text.contains(prefix))
}

/// The text with every word that looks like a key replaced.
fn without_keys(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    let mut after_bearer = false;
    while let Some(start) = rest.find(is_key_character) {
        let (between, word_on) = rest.split_at(start);
        let end = word_on.find(|c| !is_key_character(c)).unwrap_or(word_on.len());
        let (word, after) = word_on.split_at(end);
        clean.push_str(between);
        let secret = is_key(word) || (after_bearer && word.len() >= SHORTEST);
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

fn is_key(word: &str) -> bool {
    let is_token = word.starts_with("eyJ") && word.matches('.').count() == 2;
    word.len() >= SHORTEST_KEY
        && (is_token || KEY_PREFIXES.iter().any(|prefix| word.starts_with(prefix)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn e1_known_values_telling_keys_and_keys_by_their_look_are_replaced() {
        let redactor =
            Redactor::new(vec![Secret::new("BRAVE_KEY", "abcd-12345".to_owned()).unwrap()]);
        let clean = redactor.clean(json!({
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
    fn a_long_text_is_cut_and_a_deep_value_ends() {
        let redactor = Redactor::default();
        let long = redactor.clean(json!("ä".repeat(1_000_000)));
        assert_eq!(long.as_str().unwrap().chars().count(), MAX_TEXT);
        let deep = (0..100).fold(json!(1), |value, _| json!([value]));
        assert!(redactor.clean(deep).to_string().contains("[left out]"));
    }
}
