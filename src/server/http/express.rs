//! `execute_tool` past everything that it does not need, in the revision that has no sessions.
//!
//! There every request says all that must be known, and is answered with one JSON message: a call that the gateway can
//! pass on at once is judged, recorded and called as ever, without rmcp in between. Whatever is out of the ordinary is
//! rmcp's, and so are the revisions with sessions, whose answers can be asked for again.

use axum::body::Body;
use axum::http::header::{ACCEPT, CONTENT_TYPE, HeaderName};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use memchr::memmem;
use rmcp::model::ErrorCode;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::gateway::{Gateway, GatewayError, Reply};
use crate::identity::Caller;
use crate::server::fast_lane::{Call, Revision, answer};
use crate::server::gateway_tools::{self, EXECUTE_TOOL};

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// Answers a call, if it is one that can be passed on; `None` leaves it to rmcp, untouched.
pub(super) async fn pass(
    gateway: &Gateway,
    headers: &HeaderMap,
    message: &[u8],
    caller: Option<&Caller>,
) -> Option<Response> {
    if !is_ordinary(headers) || !gateway.has_servers() {
        return None;
    }
    let call = Call::read(message).filter(|call| call.revision == Revision::Sessionless)?;
    if call.progress_token.is_some() || call.tool_use_id.is_some() {
        return None;
    }
    let sender = caller.cloned().unwrap_or_else(Caller::main);
    let call_id = call.id.trim_matches('"').to_owned();
    let who = gateway_tools::who(Ok(sender), call.agent_id, call_id);
    let mut execute = call.execute;
    execute.cancelled = CancellationToken::new();
    let client_is_gone = execute.cancelled.clone().drop_guard();
    let (sender, receiver) = oneshot::channel();
    let reply: Reply = Box::new(move |result| drop(sender.send(result)));
    gateway.pass(who, execute, reply).ok()?;
    // It is dropped only where the whole process ends.
    let result = receiver.await.unwrap_or(Err(GatewayError::Cancelled));
    client_is_gone.disarm();
    let status = status(&result);
    let body = answer(&call.id, complete(result));
    let response = Response::builder().status(status).header(CONTENT_TYPE, JSON);
    response.body(Body::from(body)).ok()
}

/// Whether every header is there, once, and says what the message must say.
fn is_ordinary(headers: &HeaderMap) -> bool {
    let only = |name: &HeaderName| {
        let mut values = headers.get_all(name).iter();
        values.next().filter(|_| values.next().is_none()).and_then(|value| value.to_str().ok())
    };
    let says =
        |name: &'static str, value: &str| only(&HeaderName::from_static(name)) == Some(value);
    let accepts = only(&ACCEPT).is_some_and(|kinds| kinds.contains(JSON) && kinds.contains(EVENTS));
    accepts
        && only(&CONTENT_TYPE).is_some_and(|kind| kind == JSON)
        && says("mcp-protocol-version", Revision::SESSIONLESS)
        && says("mcp-method", "tools/call")
        && says("mcp-name", EXECUTE_TOOL)
        && !headers.contains_key("mcp-session-id")
        && !headers.keys().any(|name| name.as_str().starts_with("mcp-param-"))
}

/// The status that this revision has for an error, as rmcp has it.
fn status(result: &Result<Box<RawValue>, GatewayError>) -> StatusCode {
    let Err(GatewayError::Downstream { code, .. }) = result else { return StatusCode::OK };
    match ErrorCode(*code) {
        ErrorCode::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
        | ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY
        | ErrorCode::HEADER_MISMATCH => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

/// A result as this revision has it: it says that nothing follows.
fn complete(result: Result<Box<RawValue>, GatewayError>) -> Result<Box<RawValue>, GatewayError> {
    let raw = match result {
        Ok(raw) => raw,
        Err(error @ GatewayError::Downstream { .. }) => return Err(error),
        Err(error) => {
            RawValue::from_string(gateway_tools::failure_json(&error)).map_err(|_| error)?
        }
    };
    let Some(fields) = raw.get().strip_suffix('}').filter(|_| !says_so(&raw)) else {
        return Ok(raw);
    };
    let comma = if fields.trim_end() == "{" { "" } else { "," };
    let whole = format!("{fields}{comma}\"resultType\":\"complete\"}}");
    Ok(RawValue::from_string(whole).unwrap_or(raw))
}

/// Whether a result has the field already; the same word deeper down is somebody else's.
fn says_so(raw: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Fields {
        #[serde(rename = "resultType")]
        kind: Option<IgnoredAny>,
    }
    // Most results do not have the word, and are not read for it.
    memmem::find(raw.get().as_bytes(), b"\"resultType\"").is_some()
        && serde_json::from_str::<Fields>(raw.get()).is_ok_and(|fields| fields.kind.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    fn headers() -> HeaderMap {
        let all = [
            ("accept", "application/json, text/event-stream"),
            ("content-type", "application/json"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "execute_tool"),
        ];
        all.into_iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    #[test_case("accept", Some("application/json"); "no events")]
    #[test_case("content-type", None; "no content type")]
    #[test_case("mcp-protocol-version", Some("2025-11-25"); "a revision with sessions")]
    #[test_case("mcp-method", Some("tools/list"); "another method")]
    #[test_case("mcp-name", Some("list_servers"); "another tool")]
    #[test_case("mcp-session-id", Some("1"); "a session")]
    #[test_case("mcp-param-server", Some("s"); "an argument as a header")]
    fn what_is_out_of_the_ordinary_is_left_to_rmcp(name: &'static str, value: Option<&str>) {
        let mut headers = headers();
        assert!(is_ordinary(&headers));
        headers.append("mcp-method", "tools/call".parse().unwrap());
        assert!(!is_ordinary(&headers), "a header twice");
        let mut headers = self::headers();
        headers.remove(name);
        if let Some(value) = value {
            headers.insert(name, value.parse().unwrap());
        }
        assert!(!is_ordinary(&headers));
    }

    #[test_case(r#"{"content":[]}"#, r#"{"content":[],"resultType":"complete"}"#; "a result")]
    #[test_case("{ }", r#"{ "resultType":"complete"}"#; "nothing")]
    #[test_case(r#"{"x":{"resultType":1}}"#, r#"{"x":{"resultType":1},"resultType":"complete"}"#; "the word deeper down")]
    #[test_case(r#"{"resultType":"input_required"}"#, r#"{"resultType":"input_required"}"#; "one that says so itself")]
    fn a_result_says_that_nothing_follows(raw: &str, expected: &str) {
        let raw = RawValue::from_string(raw.to_owned()).unwrap();
        assert_eq!(complete(Ok(raw)).unwrap().get(), expected);
    }
}
