//! One HTTP POST to a Streamable HTTP server; the response body is kept as the server wrote it.
//!
//! rmcp's own client deserializes JSON responses into typed values, drops unknown fields and does not limit the size.
//! HTTP statuses are interpreted as rmcp does.

use reqwest::header::{
    ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use reqwest::{Client, Response, StatusCode};
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, GetExtensions, JsonRpcMessage, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, StreamableHttpError,
    StreamableHttpPostResponse,
};

use super::http_stream::{CarriedFrame, wrap_raw};
use super::raw_http_client::event_stream;
use crate::jsonrpc::Frame;
use crate::util::{one_line, shorten};

const EVENT_STREAM_TYPE: &str = "text/event-stream";
const JSON_TYPE: &str = "application/json";
const SESSION_HEADER: &str = "mcp-session-id";

pub(crate) type PostError = StreamableHttpError<reqwest::Error>;

/// One message to send.
pub(crate) struct HttpPost {
    pub(crate) message: ClientJsonRpcMessage,
    pub(crate) session: Option<HeaderValue>,
    pub(crate) token: Option<String>,
    pub(crate) headers: HeaderMap,
    /// Maximum size in bytes of a response, or of one event of an event stream.
    pub(crate) max_bytes: usize,
}

impl HttpPost {
    /// Sends the message; returns when an event stream starts, or any other response is read completely.
    pub(crate) async fn send(
        mut self,
        client: &Client,
        url: &str,
    ) -> Result<StreamableHttpPostResponse, PostError> {
        self.headers
            .insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
        self.headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(JSON_TYPE));
        let in_session = self.session.is_some();
        if let Some(session) = self.session.take() {
            self.headers.insert(SESSION_HEADER, session);
        }
        let mut request = client.post(url).headers(std::mem::take(&mut self.headers));
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let response = request.body(self.body()?).send().await.map_err(remove_url)?;
        let status = response.status();
        if let Some(refusal) = auth_error(status, response.headers()) {
            return Err(refusal);
        }
        match status {
            StatusCode::ACCEPTED | StatusCode::NO_CONTENT => {
                Ok(StreamableHttpPostResponse::Accepted)
            }
            StatusCode::NOT_FOUND if in_session => Err(StreamableHttpError::SessionExpired),
            status if status.is_success() => self.read_response(response).await,
            status => self.convert_error_status(status, response, in_session).await,
        }
    }

    /// Returns the frame of the message.
    fn body(&self) -> serde_json::Result<Vec<u8>> {
        let extensions = match &self.message {
            JsonRpcMessage::Request(request) => Some(request.request.extensions()),
            JsonRpcMessage::Notification(message) => Some(message.notification.extensions()),
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => None,
        };
        match extensions.and_then(|extensions| extensions.get::<CarriedFrame>()) {
            Some(frame) => Ok(frame.as_bytes().to_vec()),
            // Sealed: a server that reads lines must not find a second message in the body.
            None => Ok(Frame::seal(serde_json::to_vec(&self.message)?).into_bytes()),
        }
    }

    async fn read_response(
        &self,
        response: Response,
    ) -> Result<StreamableHttpPostResponse, PostError> {
        let wants_answer = matches!(self.message, JsonRpcMessage::Request(_));
        if !wants_answer && response.content_length() == Some(0) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        let session = header(response.headers(), SESSION_HEADER);
        let kind = header(response.headers(), CONTENT_TYPE.as_str());
        if kind.as_deref().is_some_and(|kind| kind.starts_with(EVENT_STREAM_TYPE)) {
            let events = event_stream(response, self.max_bytes, !self.is_handshake());
            return Ok(StreamableHttpPostResponse::Sse(events, session));
        }
        if !kind.as_deref().is_some_and(|kind| kind.starts_with(JSON_TYPE)) {
            return Err(StreamableHttpError::UnexpectedContentType(kind));
        }
        let body = read_body(response, self.max_bytes).await?;
        let wrapped = if self.is_handshake() { None } else { wrap_raw(&body) };
        match wrapped.map_or_else(|| serde_json::from_str(&body), Ok) {
            Ok(message) => Ok(StreamableHttpPostResponse::Json(message, session)),
            Err(_) if !wants_answer => Ok(StreamableHttpPostResponse::Accepted),
            Err(error) => {
                Err(unexpected_response(format!("its answer is no MCP message: {error}")))
            }
        }
    }

    fn request_id(&self) -> Option<RequestId> {
        match &self.message {
            JsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        }
    }

    /// Returns true for `initialize`: rmcp needs its result typed, so it is not wrapped.
    fn is_handshake(&self) -> bool {
        matches!(&self.message, JsonRpcMessage::Request(request)
            if matches!(request.request, ClientRequest::InitializeRequest(_)))
    }

    /// Converts an error status: a JSON-RPC error in the body is kept, anything else becomes an HTTP error.
    async fn convert_error_status(
        &self,
        status: StatusCode,
        response: Response,
        in_session: bool,
    ) -> Result<StreamableHttpPostResponse, PostError> {
        let overloaded = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
        let retry_after = header(response.headers(), RETRY_AFTER.as_str());
        let failed = || HttpStatusError::new(status.as_u16(), retry_after.clone()).into();
        let session = header(response.headers(), SESSION_HEADER);
        let is_json = header(response.headers(), CONTENT_TYPE.as_str())
            .is_some_and(|kind| kind.starts_with(JSON_TYPE));
        if status == StatusCode::TOO_MANY_REQUESTS || (overloaded && !is_json) {
            return Err(failed());
        }
        let body = read_body(response, self.max_bytes).await.unwrap_or_default();
        let asks_who = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if is_json
            && !asks_who
            && let Ok(JsonRpcMessage::Error(mut error)) =
                serde_json::from_str::<ServerJsonRpcMessage>(&body)
        {
            let asked = self.request_id();
            // Most servers report an unknown session with 404; some with 400 and an error without the request id.
            if error.id != asked && in_session && status == StatusCode::BAD_REQUEST {
                return Err(StreamableHttpError::SessionExpired);
            }
            // The error answers this request, whatever id the server put into it.
            error.id = asked;
            return Ok(StreamableHttpPostResponse::Json(JsonRpcMessage::Error(error), session));
        }
        if overloaded {
            return Err(failed());
        }
        Err(unexpected_response(format!("HTTP {status}: {}", shorten(&one_line(&body), 400))))
    }
}

/// Returns the error for a 401 or 403 with a `WWW-Authenticate` challenge.
fn auth_error(status: StatusCode, headers: &HeaderMap) -> Option<PostError> {
    let challenge = header(headers, WWW_AUTHENTICATE.as_str())?;
    match status {
        StatusCode::UNAUTHORIZED => {
            Some(StreamableHttpError::AuthRequired(AuthRequiredError::new(challenge)))
        }
        StatusCode::FORBIDDEN => {
            let scope = challenge_scope(&challenge);
            let error = InsufficientScopeError::new(challenge, scope);
            Some(StreamableHttpError::InsufficientScope(error))
        }
        _ => None,
    }
}

/// Returns the `scope` of a challenge, quoted or not.
fn challenge_scope(challenge: &str) -> Option<String> {
    let at = challenge.to_ascii_lowercase().find("scope=")?;
    let value = challenge.get(at + "scope=".len()..)?;
    let scope = match value.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => value.split([',', ';', ' ']).next(),
    };
    scope.filter(|scope| !scope.is_empty()).map(str::to_owned)
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

/// Removes the URL from an error: the URL can contain a secret, and libraries log errors.
pub(crate) fn remove_url(error: reqwest::Error) -> PostError {
    StreamableHttpError::Client(error.without_url())
}

pub(crate) fn unexpected_response(sentence: String) -> PostError {
    StreamableHttpError::UnexpectedServerResponse(sentence.into())
}

/// Reads the whole body, at most `largest` bytes.
async fn read_body(mut response: Response, largest: usize) -> Result<String, PostError> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(remove_url)? {
        if body.len() + piece.len() > largest {
            return Err(unexpected_response(format!("its answer is larger than {largest} bytes")));
        }
        body.extend_from_slice(&piece);
    }
    String::from_utf8(body).map_err(|_| unexpected_response("its answer is not UTF-8".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case(r#"Bearer error="insufficient_scope", scope="files:read files:write""# => Some("files:read files:write".to_owned()))]
    #[test_case("Bearer Scope=read:data, realm=x" => Some("read:data".to_owned()))]
    #[test_case("Bearer scope=" => None)]
    #[test_case("Bearer" => None)]
    fn the_scope_of_a_challenge_is_parsed(challenge: &str) -> Option<String> {
        challenge_scope(challenge)
    }
}
