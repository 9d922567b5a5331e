//! Redaction: known secrets and, in the event log, members with revealing names and words that look like API keys.

use std::cmp::Reverse;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;

use super::text::shorten;

/// Values below 6 bytes are not redacted: replacing `dev` or `1` everywhere would make texts unreadable.
const MIN_SECRET_LEN: usize = 6;
/// Levels of JSON escapes that are searched: JSON text within JSON text within JSON text.
const MAX_ESCAPE_LEVELS: usize = 3;
/// Minimum length of a word behind `Bearer`, which can also be an ordinary word.
const MIN_BEARER_LEN: usize = 8;
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

/// Returns true if the name of a variable, header or member marks its value as secret.
pub(crate) fn is_secret_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase().replace('-', "_");
    SECRET_NAMES.iter().any(|word| lower.contains(word))
}

/// Replaces known secrets by placeholders, in every JSON spelling: escaped (`\"`, `\/`, `\u0041`), and within JSON
/// text that is a string of other JSON text. `Debug` shows only the number of secrets.
#[derive(Clone, Default)]
pub(crate) struct Redactor {
    /// Values and their placeholders. The first placeholder of a value counts.
    secrets: Arc<[(String, String)]>,
}

impl Redactor {
    /// Takes pairs of a value and its placeholder; values below 6 bytes are left out.
    pub(crate) fn new(secrets: impl IntoIterator<Item = (String, String)>) -> Self {
        let secrets = secrets.into_iter().filter(|(value, _)| value.len() >= MIN_SECRET_LEN);
        Self { secrets: secrets.collect() }
    }

    /// Returns `text` without secrets.
    pub(crate) fn redact(&self, text: &str) -> String {
        self.replace_secrets(text).unwrap_or_else(|| text.to_owned())
    }

    /// Redacts `text`; returns true if there was a secret.
    pub(crate) fn redact_text(&self, text: &mut String) -> bool {
        let Some(redacted) = self.replace_secrets(text) else { return false };
        *text = redacted;
        true
    }

    /// Redacts every string in a JSON value, not its keys; returns true if there was a secret.
    pub(crate) fn redact_value(&self, value: &mut Value) -> bool {
        let redact = |found, item| self.redact_value(item) | found;
        match value {
            Value::String(text) => self.redact_text(text),
            Value::Array(items) => items.iter_mut().fold(false, redact),
            Value::Object(members) => members.values_mut().fold(false, redact),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }

    /// Returns a value for the event log: without secrets, members with revealing names, and words like API keys.
    ///
    /// Texts are cut to 2,000 characters, lists and objects to 64 items, nesting to 12 levels.
    pub(crate) fn redact_event(&self, value: Value) -> Value {
        self.redact_at(value, 0)
    }

    fn redact_at(&self, value: Value, depth: usize) -> Value {
        match value {
            Value::String(text) => Value::String(self.redact_event_text(&text)),
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
                    let value = match value {
                        Value::String(_) if is_secret_name(&name) => Value::from("[secret]"),
                        value => self.redact_at(value, depth + 1),
                    };
                    (self.redact_event_text(&name), value)
                })
                .collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) => value,
        }
    }

    /// Known secrets are replaced before the final cut, which could leave an unrecognizable part of one.
    fn redact_event_text(&self, text: &str) -> String {
        let mut text = self.redact(&shorten(text, MAX_SCANNED_CHARS));
        if may_have_keys(&text) {
            text = redact_keys(&text);
        }
        shorten(&text, MAX_TEXT_CHARS)
    }

    /// Replaces all secrets at once; `None` if there is none. Overlapping ones get one placeholder.
    fn replace_secrets(&self, text: &str) -> Option<String> {
        let mut found = self.find_secrets(text);
        found.sort_by_key(|(range, _)| (range.start, Reverse(range.end)));
        found.first()?;
        let (mut clean, mut end) = (String::with_capacity(text.len()), 0);
        for (range, placeholder) in found {
            if range.start >= end {
                clean.push_str(text.get(end..range.start).unwrap_or_default());
                clean.push_str(placeholder);
            }
            end = end.max(range.end);
        }
        clean.push_str(text.get(end..).unwrap_or_default());
        Some(clean)
    }

    /// Returns the places of secrets in `text`, at each level of escaping, with their placeholders.
    fn find_secrets(&self, text: &str) -> Vec<(Range<usize>, &str)> {
        let mut found = Vec::new();
        if self.secrets.is_empty() {
            return found;
        }
        let mut level = Unescaped { text: text.to_owned(), offsets: (0..=text.len()).collect() };
        for _ in 0..=MAX_ESCAPE_LEVELS {
            for (value, placeholder) in &*self.secrets {
                for (start, _) in level.text.match_indices(value) {
                    found.push((level.original(start..start + value.len()), &**placeholder));
                }
            }
            if !level.text.contains('\\') {
                break;
            }
            level = level.unescape();
        }
        found
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secrets", self.secrets.len())
    }
}

/// A text after some levels of JSON escapes were removed.
struct Unescaped {
    text: String,
    /// Place in the original text of each byte, and of the end.
    offsets: Vec<usize>,
}

impl Unescaped {
    fn offset(&self, at: usize) -> usize {
        self.offsets.get(at).copied().unwrap_or_default()
    }

    fn original(&self, range: Range<usize>) -> Range<usize> {
        self.offset(range.start)..self.offset(range.end)
    }

    /// Removes one more level. Backslashes that begin no escape stay.
    fn unescape(&self) -> Self {
        let mut plain = Self { text: String::new(), offsets: Vec::new() };
        let mut rest = self.text.as_str();
        while let Some((c, after)) = next_char(rest) {
            plain.text.push(c);
            plain.offsets.resize(plain.text.len(), self.offset(self.text.len() - rest.len()));
            rest = after;
        }
        plain.offsets.push(self.offset(self.text.len()));
        plain
    }
}

/// Splits off the first character, which may be spelled as a JSON escape of 2, 6 or (surrogates) 12 bytes.
fn next_char(text: &str) -> Option<(char, &str)> {
    let escaped = |length| {
        let (escape, after) = text.split_at_checked(length)?;
        Some((serde_json::from_str(&format!("\"{escape}\"")).ok()?, after))
    };
    let unescaped = || {
        let mut chars = text.chars();
        Some((chars.next()?, chars.as_str()))
    };
    let is_escape = text.starts_with('\\');
    is_escape.then(|| [2, 6, 12].into_iter().find_map(escaped)).flatten().or_else(unescaped)
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
        let secret = looks_like_key(word) || (after_bearer && word.len() >= MIN_BEARER_LEN);
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
    use proptest::prelude::*;
    use serde_json::json;
    use test_case::test_case;

    fn redactor(secrets: &[(&str, &str)]) -> Redactor {
        Redactor::new(secrets.iter().map(|(value, by)| ((*value).to_owned(), (*by).to_owned())))
    }

    #[test]
    fn e1_known_secrets_secret_members_and_api_keys_are_redacted() {
        let redactor = redactor(&[("abcd-12345", "[BRAVE_KEY]")]);
        let clean = redactor.redact_event(json!({
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
        let long = redactor.redact_event(json!("ä".repeat(1_000_000)));
        assert_eq!(long.as_str().unwrap().chars().count(), MAX_TEXT_CHARS);
        let deep = (0..100).fold(json!(1), |value, _| json!([value]));
        assert!(redactor.redact_event(deep).to_string().contains("[left out]"));
    }

    #[test]
    fn secrets_are_replaced_by_their_placeholders() {
        let secrets =
            redactor(&[("s3cret-key", "${KEY}"), ("dev", "${MODE}"), ("sixsix", "[SIX]")]);
        let text = "401 for s3cret-key in dev, again s3cret-key, sixsix";
        assert_eq!(secrets.redact(text), "401 for ${KEY} in dev, again ${KEY}, [SIX]");
        assert_eq!(format!("{secrets:?}"), "2 secrets");
    }

    #[test]
    fn strings_in_a_value_are_redacted_and_a_secret_is_reported() {
        let secrets = redactor(&[("sk-12345678", "[API_KEY]")]);
        let mut text = "the key sk-12345678, again sk-12345678".to_owned();
        assert!(secrets.redact_text(&mut text));
        assert_eq!(text, "the key [API_KEY], again [API_KEY]");
        let mut value = json!({ "a": ["x", { "b": "<sk-12345678>" }], "n": 1 });
        assert!(secrets.redact_value(&mut value));
        assert_eq!(value, json!({ "a": ["x", { "b": "<[API_KEY]>" }], "n": 1 }));
        assert!(!secrets.redact_text(&mut text) && !secrets.redact_value(&mut value));
    }

    #[test_case("abcdef-long", "[LONG]"; "the longer of two that begin together")]
    #[test_case("xabcdefx", "x[SHORT]x"; "the shorter one alone")]
    #[test_case("abcdef-longer-than", "[LONG]-than"; "two that overlap leave no part")]
    #[test_case(r"abc\u0064ef", "[SHORT]"; "a letter as an escape")]
    #[test_case(r"C:\abcdef\n", r"C:\[SHORT]\n"; "backslashes around a secret stay")]
    fn overlapping_and_escaped_secrets_are_replaced_once(text: &str, clean: &str) {
        let secrets = [
            ("abcdef", "[SHORT]"),
            ("abcdef-long", "[LONG]"),
            ("-longer", "[OTHER]"),
            ("abcdef", "[SAME]"),
        ];
        assert_eq!(redactor(&secrets).redact(text), clean);
    }

    fn escape(c: char, style: u8) -> String {
        match (style, c) {
            (0, '/') => r"\/".to_owned(),
            (0 | 1, c) => {
                let quoted = serde_json::to_string(&c).unwrap();
                quoted[1..quoted.len() - 1].to_owned()
            }
            (_, c) => {
                let units = c.encode_utf16(&mut [0; 2]).to_vec();
                units.iter().fold(String::new(), |text, unit| format!("{text}\\u{unit:04X}"))
            }
        }
    }

    proptest! {
        /// A secret is found in every JSON spelling, at each level of nesting, and nothing around it is changed.
        #[test]
        fn a_secret_is_found_in_every_json_spelling(
            spelled in prop::collection::vec(
                (prop::sample::select(vec!['"', '\\', '/', 'a', 'n', 'u', '\n', '\u{1}', 'é', '😀']), 0..3_u8),
                6..20,
            ),
            outer_levels in 0..MAX_ESCAPE_LEVELS,
        ) {
            let value: String = spelled.iter().map(|(c, _)| *c).collect();
            let mut text: String = spelled.iter().map(|(c, style)| escape(*c, *style)).collect();
            for _ in 0..outer_levels {
                text = text.chars().map(|c| escape(c, 1)).collect();
            }
            let redactor = redactor(&[(&value, "[KEY]")]);
            prop_assert_eq!(redactor.redact(&format!("log: {text} end")), "log: [KEY] end");
            prop_assert_eq!(redactor.redact(&format!("log: {value} end")), "log: [KEY] end");
        }

        #[test]
        fn a_text_without_secrets_is_unchanged(text in prop::collection::vec(any::<char>(), 0..40)) {
            let text: String = text.into_iter().collect();
            prop_assert_eq!(redactor(&[("0123456789", "[KEY]")]).redact(&text), text);
        }
    }
}
