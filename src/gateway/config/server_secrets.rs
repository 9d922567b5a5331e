//! Redaction of the secrets of one server: variables, environment and headers.

use std::fmt;
use std::sync::Arc;

/// Values below 6 bytes are not redacted.
///
/// Replacing `dev` or `1` everywhere would make messages unreadable.
const MIN_SECRET_LEN: usize = 6;

/// Secret values and their placeholders.
#[derive(Clone, Default)]
pub(crate) struct ServerSecrets(Arc<Vec<(String, String)>>);

impl ServerSecrets {
    pub(crate) fn new(mut values: Vec<(String, String)>) -> Self {
        values.retain(|(value, _)| value.len() >= MIN_SECRET_LEN);
        // Longest first: a value that contains another one must be replaced before it.
        values.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
        Self(Arc::new(values))
    }

    /// Replaces every secret in `text` by its placeholder.
    pub(crate) fn redact(&self, text: &str) -> String {
        let hidden = |text: String, (value, written): &(String, String)| {
            if text.contains(value) { text.replace(value, written) } else { text }
        };
        self.0.iter().fold(text.to_owned(), hidden)
    }
}

impl fmt::Debug for ServerSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secrets", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_replaced_by_their_placeholders() {
        let secrets = ServerSecrets::new(vec![
            ("s3cret-key".to_owned(), "${KEY}".to_owned()),
            ("dev".to_owned(), "${MODE}".to_owned()),
        ]);
        assert_eq!(secrets.redact("401 for s3cret-key in dev"), "401 for ${KEY} in dev");
        assert!(!format!("{secrets:?}").contains("s3cret"));
    }
}
