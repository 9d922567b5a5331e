//! Entry of `execute_tool` for requests without a session.
//!
//! In revision 2026-07-28 a request is self-contained and is answered with one JSON message. Requests with progress, whose
//! responses are streams, and requests that rmcp has to check are left to rmcp, and so are the revisions with sessions,
//! whose responses are resumable.

use axum::body::Body;
use axum::http::header::{ACCEPT, CONTENT_TYPE, HeaderName};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use rmcp::model::ErrorCode;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::identity::Caller;
use crate::jsonrpc::Id;
use crate::server::router::{
    CallAnswer, CallRouter, ExecuteToolCall, ProtocolRevision, response_frame,
};
use crate::server::tools::EXECUTE_TOOL;

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// Answers a call; `None` leaves the request to rmcp, unchanged.
pub(crate) async fn try_execute(
    router: &CallRouter,
    headers: &HeaderMap,
    (id, params): (&Id, Option<&RawValue>),
    caller: Option<&Caller>,
) -> Option<Response> {
    if !has_expected_headers(headers) || !router.is_offered() {
        return None;
    }
    let call = ExecuteToolCall::parse(params)?;
    if call.revision != ProtocolRevision::Stateless || call.progress_token.is_some() {
        return None;
    }
    let sender = || caller.unwrap_or(&router.callers.default_caller).clone();
    let answer = match router.parse(id, &call, sender, CancellationToken::new()) {
        Ok(parsed) => router.execute_and_wait(parsed).await,
        Err(invalid) => router.refuse(invalid).await,
    };
    let status = status_of(&answer);
    let body = response_frame(id, call.revision, answer);
    let response = Response::builder().status(status).header(CONTENT_TYPE, JSON);
    response.body(Body::from(body.into_bytes())).ok()
}

/// Returns true if every header is present exactly once and has the value that the call requires.
fn has_expected_headers(headers: &HeaderMap) -> bool {
    let only = |name: &HeaderName| {
        let mut values = headers.get_all(name).iter();
        values.next().filter(|_| values.next().is_none()).and_then(|value| value.to_str().ok())
    };
    let says =
        |name: &'static str, value: &str| only(&HeaderName::from_static(name)) == Some(value);
    let accepts = only(&ACCEPT).is_some_and(|kinds| kinds.contains(JSON) && kinds.contains(EVENTS));
    accepts
        && only(&CONTENT_TYPE).is_some_and(|kind| kind == JSON)
        && says("mcp-protocol-version", ProtocolRevision::STATELESS_VERSION)
        && says("mcp-method", "tools/call")
        && says("mcp-name", EXECUTE_TOOL)
        && !headers.contains_key("mcp-session-id")
        && !headers.keys().any(|name| name.as_str().starts_with("mcp-param-"))
}

/// Returns the HTTP status of an answer in this revision, the same as in rmcp.
fn status_of(answer: &CallAnswer) -> StatusCode {
    let Err(error) = answer else { return StatusCode::OK };
    match error.code {
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
    fn requests_with_unusual_headers_are_left_to_rmcp(name: &'static str, value: Option<&str>) {
        let mut headers = headers();
        assert!(has_expected_headers(&headers));
        headers.append("mcp-method", "tools/call".parse().unwrap());
        assert!(!has_expected_headers(&headers), "a header twice");
        let mut headers = self::headers();
        headers.remove(name);
        if let Some(value) = value {
            headers.insert(name, value.parse().unwrap());
        }
        assert!(!has_expected_headers(&headers));
    }
}
