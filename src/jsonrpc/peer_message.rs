//! Messages of a downstream server, parsed leniently.
//!
//! [`super::Message`] is the strict parser for clients. Servers are started by the user, and a message that is not quite
//! valid must fail its own call and nothing else.

use std::borrow::Cow;

use memchr::memmem;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::frame::LineJson;
use super::message::Id;
use super::rpc_client::{RpcClientError, RpcOutcome};

/// JSON-RPC error object.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct RpcError {
    pub(crate) code: i32,
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) data: Option<Value>,
}

impl RpcError {
    const INTERNAL_ERROR: i32 = -32_603;
    pub(crate) const METHOD_NOT_FOUND: i32 = -32_601;

    /// The error of a response whose `error` is malformed.
    fn malformed() -> Self {
        let message = "the server answered with a malformed error".to_owned();
        Self { code: Self::INTERNAL_ERROR, message, data: None }
    }
}

/// One message of a server.
#[derive(Debug)]
pub(crate) enum PeerMessage<'a> {
    /// Response to the request with this id.
    Reply {
        id: u64,
        outcome: RpcOutcome,
    },
    Request {
        id: Id,
        method: Cow<'a, str>,
    },
    Notification {
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
    },
    /// JSON that is not a message, for example a line of a log.
    Other,
}

#[derive(Deserialize)]
struct PeerEnvelope<'a> {
    #[serde(borrow)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl<'a> PeerMessage<'a> {
    /// Bytes at each end of an unreadable message in which its id is looked for.
    pub(crate) const END_BYTES: usize = 256;

    /// Parses a line that is not empty.
    pub(crate) fn parse(line: &'a [u8]) -> serde_json::Result<Self> {
        if !line.starts_with(b"{") {
            return serde_json::from_slice::<&RawValue>(line).map(|_| Self::Other);
        }
        serde_json::from_slice(line).map(PeerEnvelope::into_message)
    }

    /// Returns the `progressToken` of progress parameters, if it is one of ours.
    pub(crate) fn progress_token(params: &RawValue) -> Option<u64> {
        #[derive(Deserialize)]
        struct ProgressParams<'p> {
            #[serde(borrow, rename = "progressToken")]
            token: &'p RawValue,
        }
        let params: ProgressParams<'_> = serde_json::from_str(params.get()).ok()?;
        own_id(params.token)
    }

    /// Returns the ids that an unreadable response may have: the last one in `end`, the first one in `begin`.
    pub(crate) fn ids_at_ends(begin: &[u8], end: &[u8]) -> [Option<u64>; 2] {
        const ID_KEY: &[u8] = b"\"id\":";
        let id_at = |text: &[u8], at: usize| leading_id(text.get(at + ID_KEY.len()..)?);
        [
            memmem::rfind(end, ID_KEY).and_then(|at| id_at(end, at)),
            memmem::find(begin, ID_KEY).and_then(|at| id_at(begin, at)),
        ]
    }
}

impl<'a> PeerEnvelope<'a> {
    fn into_message(self) -> PeerMessage<'a> {
        let Self { jsonrpc, id, method, params, result, error } = self;
        match (method, id) {
            (Some(method), None) => PeerMessage::Notification { method, params },
            (Some(method), Some(id)) => match Id::parse(id.get()) {
                Some(id) => PeerMessage::Request { id, method },
                None => PeerMessage::Other,
            },
            // Without `jsonrpc` the line is a log line that happens to contain an id.
            (None, Some(_)) if result.is_none() && error.is_none() && jsonrpc.is_none() => {
                PeerMessage::Other
            }
            (None, id) => match id.and_then(own_id) {
                Some(id) => PeerMessage::Reply { id, outcome: outcome(result, error) },
                None => PeerMessage::Other,
            },
        }
    }
}

/// Parses the id of one of our requests. Some servers return a numeric id as a string.
fn own_id(id: &RawValue) -> Option<u64> {
    id.get().trim_matches('"').parse().ok()
}

fn outcome(result: Option<&RawValue>, error: Option<&RawValue>) -> RpcOutcome {
    match (result, error) {
        (Some(result), _) => Ok(LineJson::new(result.to_owned())),
        (None, Some(error)) => {
            let error = serde_json::from_str(error.get()).unwrap_or_else(|_| RpcError::malformed());
            Err(RpcClientError::ErrorResponse(error))
        }
        (None, None) => {
            Err(RpcClientError::InvalidResponse("its answer has neither a result nor an error"))
        }
    }
}

/// Parses the number at the start of `text`, quoted or not.
fn leading_id(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii_start();
    let text = text.strip_prefix(b"\"").unwrap_or(text);
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    str::from_utf8(text.get(..digits)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case(r#"{"id":"ask","method":"ping"}"#, "request ping"; "a request without the version")]
    #[test_case(r#"{"jsonrpc":"2.0","method":"notifications/x"}"#, "notification"; "a notification")]
    #[test_case(r#"{"result":{"z": 1.0} ,"jsonrpc":"2.0","id":7}"#, r#"7 {"z": 1.0}"#; "a result at the front")]
    #[test_case(r#"{"id":"7","result":{}}"#, "7 {}"; "a numeric id as text")]
    #[test_case(r#"{"id":7,"error":{"code":-1,"message":"no"}}"#, "7 error -1"; "an error")]
    #[test_case(r#"{"id":7,"error":"no"}"#, "7 error -32603"; "a malformed error")]
    #[test_case(r#"{"jsonrpc":"2.0","id":7}"#, "7 invalid"; "neither result nor error")]
    #[test_case(r#"{"id":7,"level":"debug"}"#, "other"; "a line of a log")]
    #[test_case(r#"{"jsonrpc":"2.0","id":1.5,"result":{}}"#, "other"; "an id that is not ours")]
    #[test_case(r#"["id",7]"#, "other"; "a list")]
    #[test_case("7", "other"; "a number")]
    fn a_message_is_classified(line: &str, expected: &str) {
        let found = match PeerMessage::parse(line.as_bytes()).unwrap() {
            PeerMessage::Request { method, .. } => format!("request {method}"),
            PeerMessage::Notification { .. } => "notification".to_owned(),
            PeerMessage::Reply { id, outcome: Ok(result) } => format!("{id} {}", result.as_str()),
            PeerMessage::Reply { id, outcome: Err(RpcClientError::ErrorResponse(error)) } => {
                format!("{id} error {}", error.code)
            }
            PeerMessage::Reply { id, .. } => format!("{id} invalid"),
            PeerMessage::Other => "other".to_owned(),
        };
        assert_eq!(found, expected);
    }

    #[test_case(b"{\"id\":7,\"result\":{\"x\":\"\xff\"}}"; "invalid UTF-8")]
    #[test_case(b"{\"id\":7,\"result\":{"; "cut off")]
    #[test_case(b"nonsense")]
    fn other_text_is_an_error(line: &[u8]) {
        assert!(PeerMessage::parse(line).is_err());
    }
}
