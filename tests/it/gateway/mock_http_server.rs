//! An HTTP server on 127.0.0.1 that stores every request it receives.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::support::wait::wait_until;
use serde_json::{Value, json};

/// One received request; header names are lower case.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Value,
    /// The body as text, for bodies that are not JSON.
    pub(crate) text: String,
}

/// Answers one request on its connection, which is closed afterwards.
pub(super) type Responder = dyn Fn(&ReceivedRequest, &mut TcpStream) + Send + Sync;

/// The running server; stopped when dropped.
pub(crate) struct MockHttpServer {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    stopped: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
    accepting: Option<thread::JoinHandle<()>>,
}

impl MockHttpServer {
    pub(crate) fn start(
        answer: impl Fn(&ReceivedRequest, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), answer)
    }

    pub(crate) fn start_at(
        address: SocketAddr,
        answer: impl Fn(&ReceivedRequest, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        // Another process may use the port until its connection is closed.
        let listener = wait_until("the address is free", || TcpListener::bind(address).ok());
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let stopped = Arc::new(AtomicBool::new(false));
        let open = Arc::new(Mutex::new(Vec::new()));
        let answer: Arc<Responder> = Arc::new(answer);
        let (seen, over, streams) =
            (Arc::clone(&requests), Arc::clone(&stopped), Arc::clone(&open));
        let accepting = thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(mut stream) = stream else { continue };
                streams.lock().unwrap().push(stream.try_clone().unwrap());
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                thread::spawn(move || {
                    if let Some(request) = read(&stream) {
                        seen.lock().unwrap().push(request.clone());
                        answer(&request, &mut stream);
                    }
                    let _ = stream.shutdown(Shutdown::Both);
                });
            }
        });
        Self { address, requests, stopped, open, accepting: Some(accepting) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for MockHttpServer {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn read(stream: &TcpStream) -> Option<ReceivedRequest> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|&read| read > 0)?;
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let text = String::from_utf8_lossy(&body).into_owned();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    Some(ReceivedRequest { method, path, headers, body, text })
}

/// Writes a complete response; each line in `headers` ends in CR LF.
pub(super) fn respond(stream: &mut TcpStream, status: &str, headers: &str, body: &str) {
    let length = body.len();
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
    );
}

/// The answer of an MCP server with one tool, `who`; `None` for notifications.
pub(super) fn mcp_response(message: &Value) -> Option<Value> {
    let result = match message["method"].as_str()? {
        "initialize" => json!({
            "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
            "serverInfo": { "name": "far", "version": "1" },
        }),
        "tools/list" => {
            json!({ "tools": [{ "name": "who", "inputSchema": { "type": "object" } }] })
        }
        "tools/call" => json!({
            "content": [{ "type": "text", "text": format!("far {}", message["params"]["arguments"]) }],
            "structuredContent": { "n": 0.1 },
        }),
        _ => return None,
    };
    message.get("id").map(|id| json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

/// Streamable HTTP with plain JSON answers.
pub(super) fn respond_streamable(request: &ReceivedRequest, stream: &mut TcpStream) {
    if request.method != "POST" {
        return respond(stream, "405 Method Not Allowed", "", "");
    }
    let json = "content-type: application/json\r\nmcp-session-id: s-1\r\n";
    match mcp_response(&request.body) {
        Some(answer) => respond(stream, "200 OK", json, &answer.to_string()),
        None => respond(stream, "202 Accepted", "", ""),
    }
}

/// The older HTTP+SSE transport: messages are posted to `endpoint`, answers arrive on the open stream.
pub(crate) fn legacy_sse(
    endpoint: &str,
) -> impl Fn(&ReceivedRequest, &mut TcpStream) + Send + Sync + 'static + use<> {
    let endpoint = endpoint.to_owned();
    let open: Mutex<Option<TcpStream>> = Mutex::new(None);
    move |request, stream| {
        if request.method == "GET" {
            let begin = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
            // Stored before the endpoint is announced: the first message may arrive at once.
            *open.lock().unwrap() = Some(stream.try_clone().unwrap());
            write!(stream, "{begin}: hello\n\nevent: endpoint\ndata: {endpoint}\n\n").unwrap();
            // Until the client closes the stream.
            let _ = stream.read(&mut [0]);
            return;
        }
        respond(stream, "202 Accepted", "", "");
        if let (Some(answer), Some(open)) =
            (mcp_response(&request.body), &mut *open.lock().unwrap())
        {
            // Two `data` lines, which join to the same JSON.
            let answer = answer.to_string().replacen(',', ",\ndata: ", 1);
            let _ = write!(open, "event: message\r\ndata: {answer}\n\n");
        }
    }
}
