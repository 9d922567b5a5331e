//! Outgoing messages: JSON text without line breaks, and frames of exactly one line.

use std::fmt::{self, Write as _};

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::message::Id;

/// JSON text without raw CR or LF; all other bytes are unchanged.
///
/// In valid JSON a raw CR or LF occurs only between tokens (inside a string it must be escaped), so replacing it by a
/// space changes neither values nor length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineJson(Box<str>);

impl LineJson {
    /// Replaces CR and LF by spaces; copies the text only if it contains one.
    pub fn new(raw: Box<RawValue>) -> Self {
        let text: Box<str> = raw.into();
        match has_line_break(text.as_bytes()) {
            true => Self(text.replace(['\r', '\n'], " ").into()),
            false => Self(text),
        }
    }

    /// Serializes a value; serde writes no line breaks.
    pub fn encode<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<Self> {
        serde_json::to_string(value).map(|text| Self(text.into()))
    }

    /// Parses JSON text.
    pub fn parse(text: String) -> serde_json::Result<Self> {
        RawValue::from_string(text).map(Self::new)
    }

    /// Encodes a JSON string.
    pub fn string(text: &str) -> Self {
        Self(Value::from(text).to_string().into())
    }

    /// Builds an object with these fields, in order.
    pub fn object(fields: &[(&str, &Self)]) -> Self {
        let size = fields.iter().map(|(name, value)| name.len() + value.0.len() + 4).sum::<usize>();
        let mut text = String::with_capacity(size + 2);
        for (name, value) in fields {
            text.push(if text.is_empty() { '{' } else { ',' });
            let _ = write!(text, "{}:{}", Value::from(*name), value.0);
        }
        text.push_str(if text.is_empty() { "{}" } else { "}" });
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<u64> for LineJson {
    fn from(number: u64) -> Self {
        Self(number.to_string().into())
    }
}

/// One complete line, including its LF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame(Vec<u8>);

impl Frame {
    /// Makes a line of one JSON text: replaces every raw CR and LF by a space and appends LF.
    ///
    /// INVARIANT: the only LF is the last byte and there is no CR (test: `a_frame_is_one_line`).
    pub(crate) fn seal(mut bytes: Vec<u8>) -> Self {
        while bytes.last().is_some_and(|byte| matches!(byte, b'\r' | b'\n')) {
            bytes.pop();
        }
        if has_line_break(&bytes) {
            for byte in &mut bytes {
                if matches!(byte, b'\r' | b'\n') {
                    *byte = b' ';
                }
            }
        }
        bytes.push(b'\n');
        Self(bytes)
    }

    /// A request. `progress_token` is added to `params` as `_meta`; `params` must not have a `_meta` of its own then.
    pub(crate) fn request(
        id: impl fmt::Display,
        method: &str,
        params: &LineJson,
        progress_token: Option<u64>,
    ) -> Self {
        let mut text = String::with_capacity(112 + method.len() + params.as_str().len());
        let (method, params) = (Value::from(method), params.as_str());
        let _ = write!(text, r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":"#);
        match progress_token.and_then(|token| Some((token, params.trim_end().strip_suffix('}')?))) {
            Some((token, fields)) => {
                let comma = if fields.trim_end() == "{" { "" } else { "," };
                let _ = write!(text, r#"{fields}{comma}"_meta":{{"progressToken":{token}}}}}"#);
            }
            None => text.push_str(params),
        }
        text.push('}');
        Self::seal(text.into_bytes())
    }

    pub(crate) fn notification(method: &str, params: &LineJson) -> Self {
        let (method, params) = (Value::from(method), params.as_str());
        Self::seal(
            format!(r#"{{"jsonrpc":"2.0","method":{method},"params":{params}}}"#).into_bytes(),
        )
    }

    /// A successful response.
    pub(crate) fn result(id: &Id, result: &LineJson) -> Self {
        let mut text = String::with_capacity(48 + result.as_str().len());
        let _ = write!(text, r#"{{"jsonrpc":"2.0","id":{id},"result":{}}}"#, result.as_str());
        Self::seal(text.into_bytes())
    }

    /// An error response. `id` is JSON: the id of the request, verbatim if it is not a valid id, or `null`.
    pub(crate) fn error(id: &str, code: i32, message: &str, data: Option<&Value>) -> Self {
        let data = data.map_or_else(String::new, |data| format!(r#","data":{data}"#));
        let message = Value::from(message);
        let error = format!(r#"{{"code":{code},"message":{message}{data}}}"#);
        Self::seal(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#).into_bytes())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the message without the line end, for a message inside another one.
    pub(crate) fn into_json(mut self) -> LineJson {
        self.0.pop();
        LineJson(String::from_utf8_lossy(&self.0).into())
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// A notification as a value, for a message inside a stream-json frame.
pub(crate) fn notification_value(method: &str, params: Option<Value>) -> Value {
    let mut message = json!({ "jsonrpc": "2.0", "method": method });
    if let (Some(params), Some(fields)) = (params, message.as_object_mut()) {
        fields.insert("params".to_owned(), params);
    }
    message
}

fn has_line_break(bytes: &[u8]) -> bool {
    memchr::memchr2(b'\r', b'\n', bytes).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use test_case::test_case;

    #[test]
    fn line_json_changes_only_line_breaks() {
        let text =
            "{\r\n \"a\\n\" :\t1e2,\n\"b\":[123456789012345678901234567890 , \"\u{2028}\"]\r}";
        let json = LineJson::parse(text.to_owned()).unwrap();
        assert_eq!(json.as_str(), text.replace(['\r', '\n'], " "));
    }

    #[test]
    fn object_keeps_the_order_of_its_fields() {
        let text = LineJson::encode("a\nb").unwrap();
        let object = LineJson::object(&[("name", &text), ("x\"", &LineJson::object(&[]))]);
        assert_eq!(object.as_str(), r#"{"name":"a\nb","x\"":{}}"#);
        let frame = Frame::request(7, "tools/call", &object, None);
        let expected = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":PARAMS}"#;
        let expected = expected.replace("PARAMS", object.as_str()) + "\n";
        assert_eq!(String::from_utf8(frame.into_bytes()).unwrap(), expected);
    }

    #[test_case(r#"{"a":1}"#, r#"{"a":1,"_meta":{"progressToken":9}}"#; "beside other fields")]
    #[test_case("{ }", r#"{ "_meta":{"progressToken":9}}"#; "alone")]
    fn a_progress_token_is_added_to_the_parameters(params: &str, expected: &str) {
        let params = LineJson::parse(params.to_owned()).unwrap();
        let frame = Frame::request(7, "x", &params, Some(9));
        let text = String::from_utf8(frame.into_bytes()).unwrap();
        assert!(text.ends_with(&format!("\"params\":{expected}}}\n")), "{text}");
    }

    proptest! {
        #[test]
        fn a_frame_is_one_line(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let frame = Frame::seal(bytes);
            let (last, rest) = frame.as_bytes().split_last().unwrap();
            prop_assert_eq!(*last, b'\n');
            prop_assert!(!has_line_break(rest));
        }
    }
}
