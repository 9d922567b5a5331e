//! The older HTTP+SSE transport, for servers that have nothing newer.
//!
//! One `GET` stays open: its first event says where messages are posted to, later ones are the
//! server's messages. Both directions become JSON lines, so that everything behind is the same as
//! with a process.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use reqwest::{Client, Response, StatusCode, Url};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::lines::Lines;

/// The largest event that is taken.
const MAX_EVENT: usize = 16 * 1024 * 1024;
const PIPE: usize = 64 * 1024;
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// How long a message waits for the one before: servers want them in order, but some acknowledge
/// a call only when it is done.
const ORDER_PATIENCE: Duration = Duration::from_millis(500);

/// Why a stream could not be opened.
pub(super) struct Refused {
    pub(super) reason: String,
    /// Whether the server wants to know who we are.
    pub(super) unauthorized: bool,
}

impl From<String> for Refused {
    fn from(reason: String) -> Self {
        Self { reason, unauthorized: false }
    }
}

type Pipes = Lines<DuplexStream>;

/// Opens the stream and waits for the address to post to. `ended` hears why it ended.
pub(super) async fn connect(
    server: Arc<str>,
    url: &str,
    headers: HeaderMap,
    ended: watch::Sender<Option<String>>,
) -> Result<Pipes, Refused> {
    let client = Client::builder()
        // No header may reach another host, and no such server needs a redirect.
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_PATIENCE)
        .default_headers(headers)
        .build()
        .map_err(|_| "no HTTP client could be made".to_owned())?;
    let url = Url::parse(url).map_err(|_| "its address is malformed".to_owned())?;
    let request = client.get(url.clone()).header(ACCEPT, "text/event-stream");
    let response = request.send().await.map_err(|error| problem(&error))?;
    let unauthorized = response.status() == StatusCode::UNAUTHORIZED;
    accepted(&response).map_err(|reason| Refused { reason, unauthorized })?;
    let mut events = Events { response, waiting: Vec::new() };
    let endpoint = events.endpoint(&url).await?;
    let (incoming, to_us) = duplex(PIPE);
    let (from_us, outgoing) = duplex(PIPE);
    tokio::spawn(async move {
        let why = tokio::select! {
            why = receive(events, to_us) => why,
            why = post_all(client, endpoint, from_us) => why,
        };
        let _ = ended.send(Some(why));
    });
    Ok(Lines::new(server, incoming, outgoing))
}

fn accepted(response: &Response) -> Result<(), String> {
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

/// Without the address, which may hold a secret.
fn problem(error: &reqwest::Error) -> String {
    let what = if error.is_connect() { "no connection" } else { "the connection broke" };
    let mut cause = std::error::Error::source(error);
    while let Some(deeper) = cause.and_then(std::error::Error::source) {
        cause = Some(deeper);
    }
    cause.map_or(what.to_owned(), |cause| format!("{what}: {cause}"))
}

/// Hands the server's messages on, one a line, until the stream ends; says why it did.
async fn receive(mut events: Events, mut to_us: DuplexStream) -> String {
    loop {
        let event = match events.next().await {
            Ok(event) => event,
            Err(why) => return why,
        };
        if event.name.is_empty() || event.name == "message" {
            // A line break within a JSON text can only stand between its words.
            let line = event.data.replace(['\n', '\r'], " ") + "\n";
            if to_us.write_all(line.as_bytes()).await.is_err() {
                return "it was ended by the gateway".to_owned();
            }
        }
    }
}

/// Posts every line, until there are no more or one is refused; says which.
async fn post_all(client: Client, endpoint: Url, from_us: DuplexStream) -> String {
    let mut lines = BufReader::new(from_us).lines();
    let mut posts: JoinSet<Result<(), String>> = JoinSet::new();
    loop {
        let done = tokio::select! {
            line = lines.next_line() => {
                let Ok(Some(line)) = line else { return "it was ended by the gateway".to_owned() };
                posts.spawn(post(client.clone(), endpoint.clone(), line));
                timeout(ORDER_PATIENCE, posts.join_next()).await.ok().flatten()
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
    let response = request.send().await.map_err(|error| problem(&error))?;
    let status = response.status();
    if status.is_success() { Ok(()) } else { Err(format!("it refused a message: {status}")) }
}

struct Event {
    name: String,
    data: String,
}

/// The events of a response.
struct Events {
    response: Response,
    waiting: Vec<u8>,
}

impl Events {
    /// Where messages go: only to the host that the stream is from.
    async fn endpoint(&mut self, stream: &Url) -> Result<Url, String> {
        let event = self.next().await?;
        if event.name != "endpoint" {
            return Err("its stream does not begin with the event `endpoint`".to_owned());
        }
        let endpoint = stream.join(event.data.trim());
        let endpoint = endpoint.map_err(|_| "its endpoint is malformed".to_owned())?;
        if endpoint.origin() != stream.origin() {
            return Err("its endpoint is on another host, which is refused".to_owned());
        }
        Ok(endpoint)
    }

    async fn next(&mut self) -> Result<Event, String> {
        let mut event = Event { name: String::new(), data: String::new() };
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                if !event.data.is_empty() {
                    return Ok(event);
                }
                event.name.clear();
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "event" => value.clone_into(&mut event.name),
                "data" => {
                    if !event.data.is_empty() {
                        event.data.push('\n');
                    }
                    event.data.push_str(value);
                }
                // Comments keep the connection alive; ids and retries are for browsers.
                _ => {}
            }
            if event.data.len() > MAX_EVENT {
                return Err("an event is larger than 16 MiB".to_owned());
            }
        }
    }

    async fn line(&mut self) -> Result<String, String> {
        let mut searched = 0;
        loop {
            let unseen = self.waiting.iter().skip(searched);
            if let Some(at) = unseen.clone().position(|byte| *byte == b'\n') {
                let rest = self.waiting.split_off(searched + at + 1);
                let line = std::mem::replace(&mut self.waiting, rest);
                return Ok(String::from_utf8_lossy(&line)
                    .trim_end_matches(['\r', '\n'])
                    .to_owned());
            }
            searched = self.waiting.len();
            if searched > MAX_EVENT {
                return Err("an event is larger than 16 MiB".to_owned());
            }
            match self.response.chunk().await {
                Ok(Some(piece)) => self.waiting.extend_from_slice(&piece),
                Ok(None) => return Err("it closed its event stream".to_owned()),
                Err(error) => return Err(problem(&error)),
            }
        }
    }
}
