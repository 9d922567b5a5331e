//! HTTP client that sends the access token of a [`TokenSource`] with every request.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::ClientJsonRpcMessage;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;

use super::token_source::TokenSource;
use crate::gateway::downstream::{PostError, RawHttpClient};

type RequestHeaders = HashMap<HeaderName, HeaderValue>;

/// HTTP client with optional OAuth sign-in.
#[derive(Clone)]
pub(crate) struct SignedClient {
    http: RawHttpClient,
    /// `None` if the entry has an `Authorization` header of its own, which takes precedence.
    token_source: Option<Arc<TokenSource>>,
}

impl SignedClient {
    pub(crate) fn new(http: RawHttpClient, token_source: Option<Arc<TokenSource>>) -> Self {
        Self { http, token_source }
    }

    /// Sends a request with the current token, and once more with a new token after a 401.
    async fn send_with_token<T, F, Sending>(&self, request: F) -> Result<T, PostError>
    where
        F: Fn(Option<String>) -> Sending,
        Sending: Future<Output = Result<T, PostError>>,
    {
        let Some(token_source) = &self.token_source else { return request(None).await };
        let token = token_source.token().await.map_err(token_error)?;
        let refused = match request(token.clone()).await {
            Err(problem) if is_unauthorized(&problem) => problem,
            other => return self.note_missing_scope(other),
        };
        let another = match &token {
            Some(token) => token_source.replace_rejected(token).await.map_err(token_error)?,
            None => None,
        };
        let Some(another) = another else {
            token_source.note_sign_in_needed();
            return Err(refused);
        };
        match request(Some(another)).await {
            Err(problem) if is_unauthorized(&problem) => {
                token_source.note_sign_in_needed();
                Err(problem)
            }
            other => self.note_missing_scope(other),
        }
    }

    fn note_missing_scope<T>(&self, result: Result<T, PostError>) -> Result<T, PostError> {
        if let (Err(StreamableHttpError::InsufficientScope(said)), Some(token_source)) =
            (&result, &self.token_source)
        {
            token_source.note_missing_scope(said.get_required_scope());
        }
        result
    }
}

/// Returns true for a 401, also without a `WWW-Authenticate` header.
fn is_unauthorized(problem: &PostError) -> bool {
    match problem {
        StreamableHttpError::AuthRequired(_) => true,
        StreamableHttpError::UnexpectedServerResponse(text) => text.starts_with("HTTP 401"),
        StreamableHttpError::Client(error) => {
            error.status() == Some(reqwest::StatusCode::UNAUTHORIZED)
        }
        _ => false,
    }
}

fn token_error(reason: String) -> PostError {
    StreamableHttpError::UnexpectedServerResponse(reason.into())
}

impl StreamableHttpClient for SignedClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _auth_header: Option<String>,
        custom_headers: RequestHeaders,
    ) -> Result<StreamableHttpPostResponse, PostError> {
        self.send_with_token(|token| {
            let (uri, message) = (Arc::clone(&uri), message.clone());
            self.http.post_message(uri, message, session_id.clone(), token, custom_headers.clone())
        })
        .await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _auth_header: Option<String>,
        custom_headers: RequestHeaders,
        largest: usize,
    ) -> Result<StreamableHttpPostResponse, PostError> {
        self.send_with_token(|token| {
            let (uri, message, headers) =
                (Arc::clone(&uri), message.clone(), custom_headers.clone());
            let session = session_id.clone();
            self.http.post_message_with_max_sse_event_size(
                uri, message, session, token, headers, largest,
            )
        })
        .await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _auth_header: Option<String>,
        custom_headers: RequestHeaders,
    ) -> Result<(), PostError> {
        self.send_with_token(|token| {
            let (uri, session) = (Arc::clone(&uri), Arc::clone(&session_id));
            self.http.delete_session(uri, session, token, custom_headers.clone())
        })
        .await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _auth_header: Option<String>,
        custom_headers: RequestHeaders,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, PostError> {
        self.send_with_token(|token| {
            let (session, last) = (session_id.clone(), last_event_id.clone());
            self.http.get_stream(Arc::clone(&uri), session, last, token, custom_headers.clone())
        })
        .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _auth_header: Option<String>,
        custom_headers: RequestHeaders,
        largest: usize,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, PostError> {
        self.send_with_token(|token| {
            let (session, last, headers) =
                (session_id.clone(), last_event_id.clone(), custom_headers.clone());
            let uri = Arc::clone(&uri);
            self.http
                .get_stream_with_max_sse_event_size(uri, session, last, token, headers, largest)
        })
        .await
    }
}
