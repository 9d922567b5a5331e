//! Parser of JSON-RPC message envelopes; `params` stays JSON text.

use std::borrow::Cow;
use std::fmt;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::frame::Frame;
use super::recover::RecoveredNames;

/// Deepest nesting that is accepted, the limit of `serde_json`.
const MAX_DEPTH: usize = 127;

/// The id of a request. Numbers with a fraction or an exponent are invalid: `1` and `1.0` would be two ids.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Id {
    /// A whole number.
    Number(i64),
    /// A string, unescaped.
    Text(String),
}

impl Id {
    /// Parses the JSON of an id.
    pub(crate) fn parse(raw: &str) -> Option<Self> {
        if raw.starts_with('"') {
            return serde_json::from_str(raw).ok().map(Self::Text);
        }
        raw.parse().ok().map(Self::Number)
    }

    /// Returns the id without the quotation marks of a string, for logs.
    pub(crate) fn unquoted(&self) -> Cow<'_, str> {
        match self {
            Self::Number(number) => Cow::Owned(number.to_string()),
            Self::Text(text) => Cow::Borrowed(text),
        }
    }
}

/// The id as JSON.
impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => Value::from(text.as_str()).fmt(f),
        }
    }
}

/// A message, borrowed from the line or body it was parsed from.
#[derive(Debug)]
pub(crate) enum Message<'a> {
    Request {
        id: Id,
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
    },
    Notification {
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
    },
    /// A response to one of our requests; its content is not validated here.
    Response,
}

/// JSON-RPC error for a line or body that is not a valid message.
#[derive(Debug)]
pub(crate) struct InvalidMessage {
    /// -32700 (not parsable as JSON) or -32600 (JSON, but not a valid message).
    pub code: i32,
    /// One sentence.
    pub message: String,
    /// Id and names recovered from the bytes, for the response and the audit entry.
    pub recovered: Box<RecoveredNames>,
}

impl InvalidMessage {
    pub(crate) const PARSE_ERROR: i32 = -32_700;
    pub(crate) const INVALID_REQUEST: i32 = -32_600;

    /// The error for valid JSON that is not a valid request.
    pub(crate) fn invalid_request(line: &[u8], sentence: &str) -> Self {
        Self::new(line, Self::INVALID_REQUEST, format!("this is no valid request: {sentence}"))
    }

    /// The error for a request whose id is used by an active request.
    pub(crate) fn id_in_use(line: &[u8], id: &Id) -> Self {
        let sentence = format!("the request with the id {id} has not ended yet");
        Self::invalid_request(line, &sentence).with_id(id)
    }

    /// Sets the id of the request, if known: recovery does not find every id.
    #[must_use]
    pub(crate) fn with_id(mut self, id: &Id) -> Self {
        self.recovered.id = Some(id.to_string());
        self
    }

    /// The error response, with the id of the request if recovered, otherwise `null`.
    pub(crate) fn response(&self) -> Frame {
        Frame::error(self.recovered.id.as_deref().unwrap_or("null"), self.code, &self.message, None)
    }

    /// The error for bytes that cannot be parsed as JSON.
    pub(crate) fn parse_error(line: &[u8], sentence: &str) -> Self {
        Self::new(line, Self::PARSE_ERROR, format!("the message cannot be read: {sentence}"))
    }

    fn new(line: &[u8], code: i32, message: String) -> Self {
        Self { code, message, recovered: Box::new(RecoveredNames::recover(line)) }
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    jsonrpc: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "also_null")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "also_null")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "also_null")]
    error: Option<&'a RawValue>,
}

/// Deserializes `null` to `Some`, to distinguish it from a missing field.
fn also_null<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

impl<'a> Message<'a> {
    /// Parses a line (with or without LF) or a body: exactly one JSON object, UTF-8, at most 127 levels deep.
    pub(crate) fn parse(line: &'a [u8]) -> Result<Self, InvalidMessage> {
        let Ok(text) = str::from_utf8(line) else {
            return Err(InvalidMessage::parse_error(line, "it is not UTF-8"));
        };
        if !text.trim_start_matches([' ', '\t', '\r', '\n']).starts_with('{') {
            return Err(match serde_json::from_str::<IgnoredAny>(text) {
                Ok(_) => InvalidMessage::invalid_request(line, "a message is one JSON object"),
                Err(error) => InvalidMessage::parse_error(line, &error.to_string()),
            });
        }
        if is_too_deep(line) {
            let sentence = format!("it is nested more than {MAX_DEPTH} levels deep");
            return Err(InvalidMessage::parse_error(line, &sentence));
        }
        let envelope = serde_json::from_str::<Envelope<'_>>(text);
        envelope.map_err(|error| classify_error(text, &error))?.into_message(line)
    }
}

impl<'a> Envelope<'a> {
    fn into_message(self, line: &[u8]) -> Result<Message<'a>, InvalidMessage> {
        let invalid = |sentence| {
            let invalid = InvalidMessage::invalid_request(line, sentence);
            let id = self.id.and_then(|id| Id::parse(id.get()));
            Err(match id {
                Some(id) => invalid.with_id(&id),
                None => invalid,
            })
        };
        if self.jsonrpc.as_deref() != Some("2.0") {
            return invalid("`jsonrpc` must be \"2.0\"");
        }
        if self.method.is_some() && (self.result.is_some() || self.error.is_some()) {
            return invalid("it has `method` and also `result` or `error`");
        }
        let is_value = |raw: Option<&RawValue>| raw.is_some_and(|raw| raw.get() != "null");
        let (method, params) = (self.method, self.params);
        match (method, self.id) {
            (Some(method), None) => Ok(Message::Notification { method, params }),
            (Some(method), Some(id)) => match Id::parse(id.get()) {
                Some(id) => Ok(Message::Request { id, method, params }),
                None => invalid("`id` must be a string or a whole number"),
            },
            (None, _) if is_value(self.result) || is_value(self.error) => Ok(Message::Response),
            (None, _) => invalid("it has neither `method` nor `result` nor `error`"),
        }
    }
}

/// Converts a deserialization error: invalid request if the text is valid JSON, otherwise parse error.
fn classify_error(text: &str, error: &serde_json::Error) -> InvalidMessage {
    match (error.classify(), serde_json::from_str::<IgnoredAny>(text)) {
        (Category::Data, Ok(_)) => {
            InvalidMessage::invalid_request(text.as_bytes(), &error.to_string())
        }
        _ => InvalidMessage::parse_error(text.as_bytes(), &error.to_string()),
    }
}

/// Returns `true` above 127 levels. Levels are counted only if there are more than 127 opening brackets.
fn is_too_deep(line: &[u8]) -> bool {
    memchr::memchr2_iter(b'[', b'{', line).nth(MAX_DEPTH).is_some()
        && nesting_depth(line) > MAX_DEPTH
}

fn nesting_depth(line: &[u8]) -> usize {
    let (mut depth, mut most, mut in_string) = (0_usize, 0, false);
    let mut bytes = line.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' if in_string => drop(bytes.next()),
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => depth += 1,
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        most = most.max(depth);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case("1" => Some(Id::Number(1)))]
    #[test_case("-7" => Some(Id::Number(-7)))]
    #[test_case(r#""\u0061""# => Some(Id::Text("a".to_owned())); "one string in two spellings")]
    #[test_case("1.0" => None)]
    #[test_case("1e0" => None)]
    #[test_case("null" => None)]
    #[test_case("[1]" => None)]
    #[test_case("99999999999999999999" => None; "beyond 64 bits")]
    fn ids_are_parsed(raw: &str) -> Option<Id> {
        Id::parse(raw)
    }

    fn error_code(line: &[u8]) -> i32 {
        Message::parse(line).unwrap_err().code
    }

    #[test_case(b"nonsense")]
    #[test_case(b"")]
    #[test_case(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\xff\"}"; "invalid UTF-8")]
    #[test_case(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\"}{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"x\"}"; "two values")]
    #[test_case(b"{\"jsonrpc\":\"2.0\",\"id\":1,\x0b\"method\":\"x\"}"; "VT between tokens")]
    #[test_case(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\"} x"; "something behind")]
    fn invalid_json_is_a_parse_error(line: &[u8]) {
        assert_eq!(error_code(line), InvalidMessage::PARSE_ERROR);
    }

    #[test]
    fn nesting_is_limited() {
        let nested = |levels: usize| {
            let (open, close) = ("[".repeat(levels), "]".repeat(levels));
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{{"x":{open}{close}}}}}"#)
        };
        assert!(Message::parse(nested(MAX_DEPTH - 2).as_bytes()).is_ok());
        assert_eq!(error_code(nested(MAX_DEPTH - 1).as_bytes()), InvalidMessage::PARSE_ERROR);
        assert_eq!(error_code(nested(100_000).as_bytes()), InvalidMessage::PARSE_ERROR);
        let wide =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":[{}0]}}"#, "[],".repeat(500));
        assert!(Message::parse(wide.as_bytes()).is_ok());
        let quoted = r#"{"jsonrpc":"2.0","id":1,"method":"x","params":["\"QUOTED"]}"#;
        let quoted = quoted.replace("QUOTED", &"[".repeat(500));
        assert!(Message::parse(quoted.as_bytes()).is_ok());
    }

    #[test_case("[]"; "a batch")]
    #[test_case(r#"["2.0",1,"x"]"#; "a list with the fields in order")]
    #[test_case("7"; "a number")]
    #[test_case(r#"{"jsonrpc":"2.0","id":1.0,"method":"x"}"#; "a fraction as id")]
    #[test_case(r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#; "no id")]
    #[test_case(r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}"#; "two ids")]
    #[test_case(r#"{"jsonrpc":"2.0","id":1,"method":7}"#; "a method that is a number")]
    #[test_case(r#"{"id":1,"method":"x"}"#; "another protocol")]
    #[test_case(r#"{"jsonrpc":"2.0","id":1,"method":"x","result":{}}"#; "a request with a result")]
    #[test_case(r#"{"jsonrpc":"2.0","id":1,"method":"x","error":null}"#; "a request with an error that is null")]
    #[test_case(r#"{"jsonrpc":"2.0","id":1}"#; "nothing asked and nothing answered")]
    fn json_that_is_not_a_message_is_an_invalid_request(line: &str) {
        assert_eq!(error_code(line.as_bytes()), InvalidMessage::INVALID_REQUEST);
    }

    #[test]
    fn a_pretty_printed_request_is_parsed() {
        let text = "\r\n{\n  \"jsonrpc\": \"2.0\",\r  \"id\": \"a\",\n  \"method\": \"x\",\n  \"params\": {\n}\n}\n";
        let Message::Request { id, method, params } = Message::parse(text.as_bytes()).unwrap()
        else {
            panic!()
        };
        assert_eq!((id, &*method, params.unwrap().get()), (Id::Text("a".to_owned()), "x", "{\n}"));
    }

    #[test_case(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#)]
    #[test_case(r#"{"jsonrpc":"2.0","id":null,"error":{}}"#; "an error about nothing in particular")]
    fn responses_are_parsed(line: &str) {
        assert!(matches!(Message::parse(line.as_bytes()), Ok(Message::Response)));
    }
}
