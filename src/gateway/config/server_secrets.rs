//! What must not be printed: the values of variables, of a server's environment and of its headers.

use std::fmt;
use std::sync::Arc;

/// Shorter values are words like `dev` or `1`: hiding them would only garble the text.
const SHORTEST: usize = 6;

/// Values, with what stands in their place.
#[derive(Clone, Default)]
pub(super) struct Secrets(Arc<Vec<(String, String)>>);

impl Secrets {
    pub(super) fn new(mut values: Vec<(String, String)>) -> Self {
        values.retain(|(value, _)| value.len() >= SHORTEST);
        // A value that holds another is replaced first.
        values.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
        Self(Arc::new(values))
    }

    /// `text` without any such value.
    pub(super) fn hide(&self, text: &str) -> String {
        let hidden = |text: String, (value, written): &(String, String)| {
            if text.contains(value) { text.replace(value, written) } else { text }
        };
        self.0.iter().fold(text.to_owned(), hidden)
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secrets", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_as_they_were_written() {
        let secrets = Secrets::new(vec![
            ("s3cret-key".to_owned(), "${KEY}".to_owned()),
            ("dev".to_owned(), "${MODE}".to_owned()),
        ]);
        assert_eq!(secrets.hide("401 for s3cret-key in dev"), "401 for ${KEY} in dev");
        assert!(!format!("{secrets:?}").contains("s3cret"));
    }
}
