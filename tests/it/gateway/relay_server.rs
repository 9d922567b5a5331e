//! The faulty server over HTTP: a relay between its pipes and Streamable HTTP or HTTP+SSE.
//!
//! The relay adds no fault of its own: bytes of the server are events, the end of the process is the end of the streams.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use super::faulty;
use super::mock_http_server::{MockHttpServer, ReceivedRequest, respond};

const STREAM: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/event-stream\r\n";

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RelayTransport {
    Sse,
    Streamable,
}

/// The running relay.
pub(super) struct RelayServer {
    http: MockHttpServer,
    transport: RelayTransport,
}

impl RelayServer {
    pub(super) fn start(transport: RelayTransport, mode: &str) -> Self {
        let relay = Relay { mode: mode.to_owned(), running: Mutex::new(None) };
        let http = MockHttpServer::start(move |request, stream| match transport {
            RelayTransport::Sse => relay.respond_sse(request, stream),
            RelayTransport::Streamable => relay.respond_streamable(request, stream),
        });
        Self { http, transport }
    }

    /// The entry for `.mcp.json`.
    pub(super) fn entry(&self) -> Value {
        match self.transport {
            RelayTransport::Sse => json!({ "url": self.http.url("/sse"), "type": "sse" }),
            RelayTransport::Streamable => json!({ "url": self.http.url("/mcp") }),
        }
    }
}

struct Relay {
    mode: String,
    running: Mutex<Option<Running>>,
}

/// One process of the server.
struct Running {
    child: Child,
    stdin: ChildStdin,
    routes: Arc<Mutex<Routes>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Open event streams. Dropping a sender ends its stream.
#[derive(Default)]
struct Routes {
    /// Streams that wait for the response with this id.
    waiting: HashMap<String, Sender<Vec<u8>>>,
    /// The stream for everything else.
    common: Option<Sender<Vec<u8>>>,
    has_ended: bool,
}

impl Routes {
    /// Sends a line, or what is left of one at the end, to the stream it belongs to.
    fn deliver(&mut self, line: &[u8]) {
        let message: Option<Value> = serde_json::from_slice(line).ok();
        let is_unreadable = message.is_none();
        let is_response = |message: &Value| message.get("method").is_none();
        let id = message.filter(is_response).map(|message| message["id"].to_string());
        let waiting = id.and_then(|id| self.waiting.remove(&id));
        let streams = match (&waiting, &self.common) {
            (Some(stream), _) => vec![stream],
            (None, Some(stream)) if !is_unreadable => vec![stream],
            (None, _) => self.waiting.values().chain(&self.common).collect(),
        };
        for stream in streams {
            let _ = stream.send(line.to_vec());
        }
    }
}

impl Relay {
    fn start_process(&self) {
        let mut child = Command::new(faulty())
            .arg(&self.mode)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let stdin = child.stdin.take().unwrap();
        let routes = Arc::new(Mutex::new(Routes::default()));
        *self.running.lock().unwrap() = Some(Running { child, stdin, routes: Arc::clone(&routes) });
        thread::spawn(move || {
            let mut line = Vec::new();
            while output.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
                routes.lock().unwrap().deliver(&line);
                line.clear();
            }
            *routes.lock().unwrap() = Routes { has_ended: true, ..Routes::default() };
        });
    }

    /// Runs `act` with the process; `None` if there is none.
    fn with<T>(&self, act: impl FnOnce(&mut Running) -> T) -> Option<T> {
        let mut running = self.running.lock().unwrap();
        let running = running.as_mut()?;
        let has_ended = running.routes.lock().unwrap().has_ended;
        (!has_ended).then(|| act(running))
    }

    fn write(running: &mut Running, request: &ReceivedRequest) {
        let _ = writeln!(running.stdin, "{}", request.text.trim_end());
    }

    fn respond_sse(&self, request: &ReceivedRequest, stream: &mut TcpStream) {
        if request.method == "POST" {
            self.with(|running| Self::write(running, request));
            return respond(stream, "202 Accepted", "", "");
        }
        self.start_process();
        let lines = self.with(open_common_stream).unwrap();
        let _ = write!(stream, "{STREAM}\r\nevent: endpoint\ndata: /messages\n\n");
        forward(&lines, stream);
    }

    fn respond_streamable(&self, request: &ReceivedRequest, stream: &mut TcpStream) {
        if request.body["method"] == "initialize" {
            self.start_process();
        }
        let lines = self.with(|running| match (request.method.as_str(), &request.body["id"]) {
            ("GET", _) => Some(open_common_stream(running)),
            ("POST", id) if !id.is_null() && request.body.get("method").is_some() => {
                let (sender, lines) = channel();
                running.routes.lock().unwrap().waiting.insert(id.to_string(), sender);
                Self::write(running, request);
                Some(lines)
            }
            ("POST", _) => {
                Self::write(running, request);
                None
            }
            _ => None,
        });
        match lines {
            None => respond(stream, "404 Not Found", "", ""),
            Some(None) => respond(stream, "202 Accepted", "", ""),
            Some(Some(lines)) => {
                let _ = write!(stream, "{STREAM}mcp-session-id: s-1\r\n\r\n");
                forward(&lines, stream);
            }
        }
    }
}

fn open_common_stream(running: &mut Running) -> Receiver<Vec<u8>> {
    let (sender, lines) = channel();
    running.routes.lock().unwrap().common = Some(sender);
    lines
}

/// Writes each line as an event until its sender is dropped. A torn line is no complete event.
fn forward(lines: &Receiver<Vec<u8>>, stream: &mut TcpStream) {
    for line in lines {
        let end: &[u8] = if line.ends_with(b"\n") { b"\n" } else { b"" };
        if stream.write_all(&[b"data: ", &line[..], end].concat()).is_err() {
            return;
        }
    }
}
