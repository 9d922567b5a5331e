//! The HTTP client with the token of a [`Keeper`] on every request.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::ClientJsonRpcMessage;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;

use super::super::post::Problem;
use super::super::untouched::Untouched;
use super::keeper::Keeper;

type Headers = HashMap<HeaderName, HeaderValue>;

/// A client that signs its requests where somebody has signed in.
#[derive(Clone)]
pub(in super::super) struct SignedClient {
    http: Untouched,
    /// None where the entry has an `Authorization` header of its own: that one counts.
    keeper: Option<Arc<Keeper>>,
}

impl SignedClient {
    pub(in super::super) fn new(http: Untouched, keeper: Option<Arc<Keeper>>) -> Self {
        Self { http, keeper }
    }

    /// Sends with a token, and once more with another where the server refuses it.
    async fn send<T, F, Sending>(&self, request: F) -> Result<T, Problem>
    where
        F: Fn(Option<String>) -> Sending,
        Sending: Future<Output = Result<T, Problem>>,
    {
        let Some(keeper) = &self.keeper else { return request(None).await };
        let token = keeper.token().await.map_err(unusable)?;
        let refused = match request(token.clone()).await {
            Err(problem) if asks_for_sign_in(&problem) => problem,
            other => return self.note_scope(other),
        };
        let another = match &token {
            Some(token) => keeper.another_than(token).await.map_err(unusable)?,
            None => None,
        };
        let Some(another) = another else {
            keeper.note_refusal();
            return Err(refused);
        };
        match request(Some(another)).await {
            Err(problem) if asks_for_sign_in(&problem) => {
                keeper.note_refusal();
                Err(problem)
            }
            other => self.note_scope(other),
        }
    }

    fn note_scope<T>(&self, result: Result<T, Problem>) -> Result<T, Problem> {
        if let (Err(StreamableHttpError::InsufficientScope(said)), Some(keeper)) =
            (&result, &self.keeper)
        {
            keeper.note_missing_scope(said.get_required_scope());
        }
        result
    }
}

/// Some servers answer 401 and forget to say what they want.
fn asks_for_sign_in(problem: &Problem) -> bool {
    match problem {
        StreamableHttpError::AuthRequired(_) => true,
        StreamableHttpError::UnexpectedServerResponse(text) => text.starts_with("HTTP 401"),
        StreamableHttpError::Client(error) => {
            error.status() == Some(reqwest::StatusCode::UNAUTHORIZED)
        }
        _ => false,
    }
}

fn unusable(reason: String) -> Problem {
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
        custom_headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Problem> {
        self.send(|token| {
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
        custom_headers: Headers,
        largest: usize,
    ) -> Result<StreamableHttpPostResponse, Problem> {
        self.send(|token| {
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
        custom_headers: Headers,
    ) -> Result<(), Problem> {
        self.send(|token| {
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
        custom_headers: Headers,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Problem> {
        self.send(|token| {
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
        custom_headers: Headers,
        largest: usize,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Problem> {
        self.send(|token| {
            let (session, last, headers) =
                (session_id.clone(), last_event_id.clone(), custom_headers.clone());
            let uri = Arc::clone(&uri);
            self.http
                .get_stream_with_max_sse_event_size(uri, session, last, token, headers, largest)
        })
        .await
    }
}
