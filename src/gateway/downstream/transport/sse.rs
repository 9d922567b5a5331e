//! Client of the HTTP+SSE transport (MCP 2024-11-05), for servers without Streamable HTTP.
//!
//! One `GET` stays open: its first event names the URL for POST requests, later events are messages. Both directions
//! are converted to JSON lines, so that the connection is handled like that of a stdio server.

use std::error::Error;
use std::iter;
use std::time::Duration;

use futures_util::StreamExt;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use reqwest::{Client, Response, StatusCode, Url};
use sse_stream::Sse;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::http::describe_transport_error;
use super::raw_http_client::{EventStream, raw_event_stream};
use crate::jsonrpc::Frame;

/// Maximum size of an event.
const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;
const PIPE_BUFFER_BYTES: usize = 64 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time for which a message waits for the POST before it.
///
/// Servers expect messages in order, but some respond to the POST of a call only when the call is done.
const ORDER_TIMEOUT: Duration = Duration::from_millis(500);
/// POSTs without an answer; further messages wait in the queue, which is limited.
const MAX_POSTS: usize = 256;

/// Reason why the event stream could not be opened.
pub(crate) struct SseOpenError {
    pub(crate) reason: String,
    /// Set for HTTP 401.
    pub(crate) unauthorized: bool,
}

impl From<String> for SseOpenError {
    fn from(reason: String) -> Self {
        Self { reason, unauthorized: false }
    }
}

/// Lines from the server, and lines to it.
pub(crate) type SsePipes = (DuplexStream, DuplexStream);

/// Opens the event stream and waits for the endpoint. `ended` receives the reason of its end.
pub(crate) async fn connect(
    url: &str,
    headers: HeaderMap,
    ended: watch::Sender<Option<String>>,
) -> Result<SsePipes, SseOpenError> {
    let client = Client::builder()
        // Headers must not reach another host, and servers of this transport need no redirects.
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .default_headers(headers)
        .build()
        .map_err(|_| "no HTTP client could be made".to_owned())?;
    let url = Url::parse(url).map_err(|_| "its address is malformed".to_owned())?;
    let request = client.get(url.clone()).header(ACCEPT, "text/event-stream");
    let response = request.send().await.map_err(|error| describe_error(&error))?;
    let unauthorized = response.status() == StatusCode::UNAUTHORIZED;
    check_response(&response).map_err(|reason| SseOpenError { reason, unauthorized })?;
    let mut events = raw_event_stream(response, MAX_EVENT_BYTES);
    let endpoint = read_endpoint(&mut events, &url).await?;
    let (incoming, to_us) = duplex(PIPE_BUFFER_BYTES);
    let (from_us, outgoing) = duplex(PIPE_BUFFER_BYTES);
    tokio::spawn(async move {
        let why = tokio::select! {
            why = forward_events(events, to_us) => why,
            why = post_lines(client, endpoint, from_us) => why,
        };
        let _ = ended.send(Some(why));
    });
    Ok((incoming, outgoing))
}

fn check_response(response: &Response) -> Result<(), String> {
    let status = response.status();
    if !status.is_success() {
        return Err(format!("it answered {status}"));
    }
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
        return Ok(());
    }
    Err("it answered with something else than an event stream".to_owned())
}

/// Describes an error without its URL, which can contain a secret.
fn describe_error(error: &reqwest::Error) -> String {
    let what = if error.is_connect() { "no connection" } else { "the connection broke" };
    let cause = iter::successors(error.source(), |&cause| cause.source()).last();
    cause.map_or(what.to_owned(), |cause| format!("{what}: {cause}"))
}

/// Writes the messages of the server as lines until the stream ends; returns the reason.
async fn forward_events(mut events: EventStream, mut to_us: DuplexStream) -> String {
    loop {
        let event = match next_event(&mut events).await {
            Ok(event) => event,
            Err(why) => return why,
        };
        if event.event.is_none_or(|name| name.is_empty() || name == "message") {
            // Lines of an event are joined by LF, which in JSON occurs only between tokens.
            let line = Frame::seal(event.data.unwrap_or_default().into_bytes());
            if to_us.write_all(line.as_bytes()).await.is_err() {
                return "it was ended by the gateway".to_owned();
            }
        }
    }
}

/// Posts every line until the input ends or a POST fails; returns the reason.
async fn post_lines(client: Client, endpoint: Url, from_us: DuplexStream) -> String {
    let mut lines = BufReader::new(from_us).lines();
    let mut posts: JoinSet<Result<(), String>> = JoinSet::new();
    loop {
        let done = tokio::select! {
            line = lines.next_line(), if posts.len() < MAX_POSTS => {
                let Ok(Some(line)) = line else { return "it was ended by the gateway".to_owned() };
                posts.spawn(post(client.clone(), endpoint.clone(), line));
                timeout(ORDER_TIMEOUT, posts.join_next()).await.ok().flatten()
            }
            done = posts.join_next(), if !posts.is_empty() => done,
        };
        if let Some(Ok(Err(why))) = done {
            return why;
        }
    }
}

async fn post(client: Client, endpoint: Url, line: String) -> Result<(), String> {
    let request = client.post(endpoint).header(CONTENT_TYPE, "application/json").body(line);
    let response = request.send().await.map_err(|error| describe_error(&error))?;
    let status = response.status();
    if status.is_success() { Ok(()) } else { Err(format!("it refused a message: {status}")) }
}

/// Reads the endpoint, which must have the same origin as the stream.
async fn read_endpoint(events: &mut EventStream, stream: &Url) -> Result<Url, String> {
    let event = next_event(events).await?;
    if event.event.as_deref() != Some("endpoint") {
        return Err("its stream does not begin with the event `endpoint`".to_owned());
    }
    let endpoint = stream.join(event.data.unwrap_or_default().trim());
    let endpoint = endpoint.map_err(|_| "its endpoint is malformed".to_owned())?;
    if endpoint.origin() != stream.origin() {
        return Err("its endpoint is on another host, which is refused".to_owned());
    }
    Ok(endpoint)
}

/// Returns the next event with data.
async fn next_event(events: &mut EventStream) -> Result<Sse, String> {
    loop {
        match events.next().await {
            Some(Ok(event)) if event.data.is_some() => return Ok(event),
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(describe_transport_error(&error)),
            None => return Err("it closed its event stream".to_owned()),
        }
    }
}
