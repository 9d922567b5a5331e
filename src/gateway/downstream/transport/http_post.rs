//! One message posted to a server on the network; its answer stays what the server wrote.
//!
//! rmcp's own client reads an answer in plain JSON into typed values, drops what the types do not know, and takes
//! as much of it as there is. Statuses mean here what they mean there.

use reqwest::header::{
    ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use reqwest::{Client, Response, StatusCode};
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, StreamableHttpError,
    StreamableHttpPostResponse,
};

use super::untouched::{event_stream, packed};
use crate::base::{one_line, shorten};

const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";
const SESSION: &str = "mcp-session-id";

pub(super) type Problem = StreamableHttpError<reqwest::Error>;

/// A message on its way.
pub(super) struct Post {
    pub(super) message: ClientJsonRpcMessage,
    pub(super) session: Option<HeaderValue>,
    pub(super) token: Option<String>,
    pub(super) headers: HeaderMap,
    /// The largest answer, or event of an answer, that is taken.
    pub(super) largest: usize,
}

impl Post {
    /// Sends it, and waits for the beginning of an event stream or for the whole of anything else.
    pub(super) async fn send(
        mut self,
        client: &Client,
        url: &str,
    ) -> Result<StreamableHttpPostResponse, Problem> {
        self.headers
            .insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
        let in_session = self.session.is_some();
        if let Some(session) = self.session.take() {
            self.headers.insert(SESSION, session);
        }
        let mut request = client.post(url).headers(std::mem::take(&mut self.headers));
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let response = request.json(&self.message).send().await.map_err(without_address)?;
        let status = response.status();
        if let Some(refusal) = refusal(status, response.headers()) {
            return Err(refusal);
        }
        match status {
            StatusCode::ACCEPTED | StatusCode::NO_CONTENT => {
                Ok(StreamableHttpPostResponse::Accepted)
            }
            StatusCode::NOT_FOUND if in_session => Err(StreamableHttpError::SessionExpired),
            status if status.is_success() => self.answer(response).await,
            status => self.failure(status, response, in_session).await,
        }
    }

    async fn answer(&self, response: Response) -> Result<StreamableHttpPostResponse, Problem> {
        let wants_answer = matches!(self.message, JsonRpcMessage::Request(_));
        if !wants_answer && response.content_length() == Some(0) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        let session = header(response.headers(), SESSION);
        let kind = header(response.headers(), CONTENT_TYPE.as_str());
        if kind.as_deref().is_some_and(|kind| kind.starts_with(EVENTS)) {
            let events = event_stream(response, self.largest, !self.is_handshake());
            return Ok(StreamableHttpPostResponse::Sse(events, session));
        }
        if !kind.as_deref().is_some_and(|kind| kind.starts_with(JSON)) {
            return Err(StreamableHttpError::UnexpectedContentType(kind));
        }
        let body = text(response, self.largest).await?;
        let packed = if self.is_handshake() { body } else { packed(body) };
        match serde_json::from_str(&packed) {
            Ok(message) => Ok(StreamableHttpPostResponse::Json(message, session)),
            Err(_) if !wants_answer => Ok(StreamableHttpPostResponse::Accepted),
            Err(error) => Err(unexpected(format!("its answer is no MCP message: {error}"))),
        }
    }

    fn request_id(&self) -> Option<RequestId> {
        match &self.message {
            JsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        }
    }

    /// The handshake is rmcp's own and stays typed.
    fn is_handshake(&self) -> bool {
        matches!(&self.message, JsonRpcMessage::Request(request)
            if matches!(request.request, ClientRequest::InitializeRequest(_)))
    }

    /// A refusal in the protocol's words stays one; anything else is a failure of HTTP.
    async fn failure(
        &self,
        status: StatusCode,
        response: Response,
        in_session: bool,
    ) -> Result<StreamableHttpPostResponse, Problem> {
        let overloaded = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
        let retry_after = header(response.headers(), RETRY_AFTER.as_str());
        let failed = || HttpStatusError::new(status.as_u16(), retry_after.clone()).into();
        let session = header(response.headers(), SESSION);
        let is_json = header(response.headers(), CONTENT_TYPE.as_str())
            .is_some_and(|kind| kind.starts_with(JSON));
        if status == StatusCode::TOO_MANY_REQUESTS || (overloaded && !is_json) {
            return Err(failed());
        }
        let body = text(response, self.largest).await.unwrap_or_default();
        let asks_who = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if is_json
            && !asks_who
            && let Ok(JsonRpcMessage::Error(mut error)) =
                serde_json::from_str::<ServerJsonRpcMessage>(&body)
        {
            let asked = self.request_id();
            // Most servers know a session no longer with 404; some with this, and without a word about the request.
            if error.id != asked && in_session && status == StatusCode::BAD_REQUEST {
                return Err(StreamableHttpError::SessionExpired);
            }
            // It answers this message, whatever it says: nobody else waits for it.
            error.id = asked;
            return Ok(StreamableHttpPostResponse::Json(JsonRpcMessage::Error(error), session));
        }
        if overloaded {
            return Err(failed());
        }
        Err(unexpected(format!("HTTP {status}: {}", shorten(&one_line(&body), 400))))
    }
}

/// Whether the server wants to know who we are, or that somebody agrees to more.
fn refusal(status: StatusCode, headers: &HeaderMap) -> Option<Problem> {
    let challenge = header(headers, WWW_AUTHENTICATE.as_str())?;
    match status {
        StatusCode::UNAUTHORIZED => {
            Some(StreamableHttpError::AuthRequired(AuthRequiredError::new(challenge)))
        }
        StatusCode::FORBIDDEN => {
            let scope = scope(&challenge);
            let error = InsufficientScopeError::new(challenge, scope);
            Some(StreamableHttpError::InsufficientScope(error))
        }
        _ => None,
    }
}

/// The `scope` of a challenge, with or without quotes.
fn scope(challenge: &str) -> Option<String> {
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

/// An error of HTTP without the address, which may hold a secret and which libraries write into our log.
pub(super) fn without_address(error: reqwest::Error) -> Problem {
    StreamableHttpError::Client(error.without_url())
}

fn unexpected(sentence: String) -> Problem {
    StreamableHttpError::UnexpectedServerResponse(sentence.into())
}

/// The whole body, if it is not too large.
async fn text(mut response: Response, largest: usize) -> Result<String, Problem> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(without_address)? {
        if body.len() + piece.len() > largest {
            return Err(unexpected(format!("its answer is larger than {largest} bytes")));
        }
        body.extend_from_slice(&piece);
    }
    String::from_utf8(body).map_err(|_| unexpected("its answer is not UTF-8".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case(r#"Bearer error="insufficient_scope", scope="files:read files:write""# => Some("files:read files:write".to_owned()))]
    #[test_case("Bearer Scope=read:data, realm=x" => Some("read:data".to_owned()))]
    #[test_case("Bearer scope=" => None)]
    #[test_case("Bearer" => None)]
    fn the_scope_of_a_challenge(challenge: &str) -> Option<String> {
        scope(challenge)
    }
}
