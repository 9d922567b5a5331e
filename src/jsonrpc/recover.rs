//! Recovery of the id and the called tool from a message that cannot be parsed.

use std::borrow::Cow;

use serde::de::IgnoredAny;

/// Nesting levels whose keys are tracked.
const TRACKED_LEVELS: usize = 3;
/// Longest token that is recovered: 256 characters, each escaped as `\u0061`, in quotation marks.
const MAX_TOKEN_LEN: usize = 256 * 6 + 2;
/// The keys on the path to an id or a name.
const TRACKED_KEYS: [&str; 8] =
    ["id", "method", "params", "name", "arguments", "server", "tool", "agent_name"];

/// Id and names that were recovered from an invalid message; unverified.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RecoveredNames {
    /// The JSON of the id, also of an invalid one such as `1.0`.
    pub id: Option<String>,
    pub method: Option<String>,
    /// `params.name`.
    pub name: Option<String>,
    /// `params.arguments.server`.
    pub target_server: Option<String>,
    /// `params.arguments.tool`.
    pub target_tool: Option<String>,
    /// `params.arguments.agent_name`.
    pub agent_name: Option<String>,
}

impl RecoveredNames {
    /// Scans the bytes once, tracking only strings and brackets. The first value of a key counts.
    ///
    /// The id is that of the first object. The names are those of the first object that names a tool, also in a batch
    /// or after another object. A batch has no id, because one error answers all of it.
    pub(crate) fn recover(bytes: &[u8]) -> Self {
        let mut scan = RecoveryScanner { rest: bytes, ..RecoveryScanner::default() };
        while scan.next_token() {}
        scan.found
    }

    /// Returns the tool of a `tools/call`, or of a message whose method was not recovered.
    pub(crate) fn called_tool(&self) -> Option<&str> {
        let is_call = self.method.as_deref().is_none_or(|method| method == "tools/call");
        self.name.as_deref().filter(|_| is_call)
    }
}

#[derive(Default)]
struct RecoveryScanner<'a> {
    rest: &'a [u8],
    depth: usize,
    /// The current key of each tracked level: one of [`TRACKED_KEYS`], or empty.
    keys: [&'static str; TRACKED_LEVELS],
    /// Set if the next scalar is the value of that key.
    at_value: bool,
    /// Set in a batch and after the first object, where an id belongs to another message.
    has_no_id: bool,
    found: RecoveredNames,
}

impl RecoveryScanner<'_> {
    /// Consumes one token; `false` at the end of the bytes, or once a tool is found.
    fn next_token(&mut self) -> bool {
        let Some((first, behind)) = self.rest.split_first() else { return false };
        match first {
            b'"' => return self.read_string(),
            // A batch adds no level: levels are relative to its messages.
            b'[' if self.depth == 0 => self.has_no_id = true,
            b'{' | b'[' => {
                self.depth += 1;
                self.set_key("");
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    return self.next_message();
                }
            }
            b',' => self.set_key(""),
            b'-' | b'0'..=b'9' => return self.read_number(),
            _ => {}
        }
        self.rest = behind;
        true
    }

    /// Continues after a complete message; `false` if the message named a tool.
    fn next_message(&mut self) -> bool {
        self.rest = self.rest.get(1..).unwrap_or_default();
        self.has_no_id = true;
        if self.found.called_tool().is_some() {
            return false;
        }
        self.found = RecoveredNames { id: self.found.id.take(), ..RecoveredNames::default() };
        true
    }

    fn read_string(&mut self) -> bool {
        let end = string_token_len(self.rest);
        let (token, behind) = self.rest.split_at(end);
        self.rest = behind;
        // Skips all non-graphic bytes, also those that are not JSON whitespace, such as VT or NEL.
        let next = behind.iter().find(|byte| byte.is_ascii_graphic());
        if next == Some(&b':') && !self.at_value {
            let key = unescape(token);
            self.set_key(TRACKED_KEYS.into_iter().find(|known| *known == key).unwrap_or_default());
            self.at_value = true;
        } else {
            self.record_value(token);
        }
        true
    }

    fn read_number(&mut self) -> bool {
        let is_part = |byte: &u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
        let end = self.rest.iter().position(|byte| !is_part(byte)).unwrap_or(self.rest.len());
        let (token, behind) = self.rest.split_at(end);
        self.rest = behind;
        self.record_value(token);
        true
    }

    fn set_key(&mut self, key: &'static str) {
        self.at_value = false;
        if let Some(place) = self.depth.checked_sub(1).and_then(|level| self.keys.get_mut(level)) {
            *place = key;
        }
    }

    fn record_value(&mut self, token: &[u8]) {
        if !std::mem::take(&mut self.at_value) || token.len() > MAX_TOKEN_LEN {
            return;
        }
        let found = &mut self.found;
        let place = match (self.depth, self.keys) {
            (1, ["id", ..]) => {
                if !self.has_no_id {
                    found.id = found.id.take().or_else(|| valid_json(token));
                }
                return;
            }
            (1, ["method", ..]) => &mut found.method,
            (2, ["params", "name", _]) => &mut found.name,
            (3, ["params", "arguments", "server"]) => &mut found.target_server,
            (3, ["params", "arguments", "tool"]) => &mut found.target_tool,
            (3, ["params", "arguments", "agent_name"]) => &mut found.agent_name,
            _ => return,
        };
        place.get_or_insert_with(|| unescape(token).into_owned());
    }
}

/// Returns the token if it is valid JSON by itself, so that it can be inserted into a response.
fn valid_json(token: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(token);
    serde_json::from_str::<IgnoredAny>(&text).ok().map(|_| text.into_owned())
}

/// The unescaped text of a string token; verbatim if the token is not valid JSON or too long for a name.
fn unescape(token: &[u8]) -> Cow<'_, str> {
    if token.len() <= MAX_TOKEN_LEN
        && token.contains(&b'\\')
        && let Ok(text) = serde_json::from_slice(token)
    {
        return Cow::Owned(text);
    }
    let inner = token.strip_prefix(b"\"").unwrap_or(token);
    String::from_utf8_lossy(inner.strip_suffix(b"\"").unwrap_or(inner))
}

/// The length of the string token at the start of `bytes`, including its quotation marks.
fn string_token_len(bytes: &[u8]) -> usize {
    let mut at = 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use test_case::test_case;

    fn expected_names() -> RecoveredNames {
        let text = |text: &str| Some(text.to_owned());
        RecoveredNames {
            id: text("7"),
            method: text("tools/call"),
            name: text("execute_tool"),
            target_server: text("s"),
            target_tool: text("delete_all"),
            agent_name: None,
        }
    }

    const ARGUMENTS: &str = r#""server":"s","tool":"delete_all","args":{"tool":"x","id":1}"#;

    #[test_case(&format!(r#"{{"id":7,"method":"tools/call","params":{{"name":"execute_tool","arguments":{{{ARGUMENTS}}}}}"#); "cut off")]
    #[test_case(&format!("{{\"params\":{{\"x\":[1,{{\"id\":3}}],\"name\" \x0b:\"execute_tool\",\"arguments\":{{{ARGUMENTS}}}}},\"method\":\"tools/call\",\"id\":7}}"); "the id at the end")]
    #[test_case(&format!(r#"{{"id":7,"method":"tools/call","params":{{"name":"execute_tool","arguments":{{{ARGUMENTS}}}}}}}{{"id":8}}"#); "another message behind")]
    #[test_case(&format!(r#"{{"id":7,"method":"x","params":{{"name":"y"}}}}{{"id":8,"method":"tools/call","params":{{"name":"execute_tool","arguments":{{{ARGUMENTS}}}}}}}"#); "behind another message")]
    #[test_case(&format!(r#"{{"id":7,"m\u0065thod":"tools\/call","p\u0061rams":{{"name":"execute\u005ftool","arguments":{{{}}}}}"#, ARGUMENTS.replace("delete_all", "delete\\u005fall")); "escaped")]
    #[test_case(&format!("{{\"id\":7,\"method\"\u{2028}:\"tools/call\",\"params\":{{\"name\"\u{85}:\"execute_tool\",\"arguments\":{{{ARGUMENTS}}}}}"); "NEL and LS between tokens")]
    #[test_case(&format!(r#"{{"params":{{"x":"{}","name":"execute_tool","arguments":{{{ARGUMENTS}}}}},"method":"tools/call","id":7}}"#, "y".repeat(2 << 20)); "behind 2 MiB")]
    fn names_are_recovered(text: &str) {
        assert_eq!(RecoveredNames::recover(text.as_bytes()), expected_names());
    }

    #[test]
    fn a_batch_names_a_tool_and_has_no_id() {
        let call = format!(
            r#"{{"id":7,"method":"tools/call","params":{{"name":"execute_tool","arguments":{{{ARGUMENTS}}}}}}}"#
        );
        let batch = format!(r#"[{{"id":1,"method":"ping"}}, {call}]"#);
        assert_eq!(
            RecoveredNames::recover(batch.as_bytes()),
            RecoveredNames { id: None, ..expected_names() }
        );
    }

    #[test_case("nonsense")]
    #[test_case(r#"["id",1]"#; "a list")]
    #[test_case(r#"{"x":"id\":1"}"#; "an id inside a string")]
    #[test_case(r#"{"id":--1"#; "no number")]
    #[test_case(r#"{"id":[1]}"#; "a list as id")]
    fn nothing_is_recovered_from_other_text(text: &str) {
        assert_eq!(RecoveredNames::recover(text.as_bytes()), RecoveredNames::default());
    }

    #[test_case(br#"{"id":1.0}"# => Some("1.0".to_owned()); "a fraction")]
    #[test_case(b"{\"id\":\"a\\u0061\xff\"" => Some("\"a\\u0061\u{fffd}\"".to_owned()); "a string")]
    fn the_id_is_recovered_verbatim(text: &[u8]) -> Option<String> {
        RecoveredNames::recover(text).id
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_can_be_scanned(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            RecoveredNames::recover(&bytes);
        }
    }
}
