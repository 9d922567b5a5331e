//! `execute_tool` past everything that it does not need, in the revision that has no sessions.
//!
//! There every request says all that must be known, and is answered with one JSON message: a call that the gateway can
//! pass on at once is judged, recorded and called as ever, without rmcp in between. Whatever is out of the ordinary is
//! rmcp's, and so are the revisions with sessions, whose answers can be asked for again.

use axum::body::Body;
use axum::http::header::{ACCEPT, CONTENT_TYPE, HeaderName};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use rmcp::model::ErrorCode;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use crate::gateway::{Gateway, GatewayError, Reply};
use crate::identity::Caller;
use crate::server::call_line::{Call, Revision, answer};
use crate::server::gateway_tools::EXECUTE_TOOL;

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
    let mut call = Call::read(message).filter(|call| call.revision == Revision::Sessionless)?;
    if call.progress_token.is_some() || call.tool_use_id.is_some() {
        return None;
    }
    let sender = caller.cloned().unwrap_or_else(Caller::main);
    let who = call.who(Ok(sender));
    let client_is_gone = call.execute.cancelled.clone().drop_guard();
    let (sender, receiver) = oneshot::channel();
    let reply: Reply = Box::new(move |result| drop(sender.send(result)));
    gateway.pass(who, call.execute, reply).ok()?;
    // It is dropped only where the whole process ends.
    let result = receiver.await.unwrap_or(Err(GatewayError::Cancelled));
    client_is_gone.disarm();
    let status = status(&result);
    let body = answer(&call.id, call.revision, result);
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
}
