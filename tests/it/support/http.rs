//! `adjutant … --http`, and a client that can be rude: what it sends is what is on the wire.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::TestContext;

const PATIENCE: Duration = Duration::from_mins(1);

/// A server that listens; ended when dropped.
pub struct HttpServer {
    child: Child,
    pub address: SocketAddr,
    log: Receiver<String>,
}

impl HttpServer {
    /// Starts it with its address, and waits until it says that it listens.
    pub fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let (sender, log) = channel();
        let stderr = child.stderr.take().expect("its stderr");
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let mut server = Self { child, address: ([127, 0, 0, 1], 0).into(), log };
        let said = server.wait_for("serving MCP at ");
        let place = said.split("://").nth(1).and_then(|rest| rest.split('/').next());
        server.address = place.expect("an address").parse().expect("an address");
        server
    }

    /// The first line of the log from here on that has `words`.
    pub fn wait_for(&self, words: &str) -> String {
        loop {
            let line = self.log.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|error| panic!("nothing says `{words}`: {error}"));
            if line.contains(words) {
                return line;
            }
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.pid().cast_signed());
        nix::sys::signal::kill(pid, signal).expect("the server is there");
    }

    /// Waits until it has ended by itself.
    pub fn ended(&mut self) -> ExitStatus {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("the server can be asked") {
                return status;
            }
            assert!(Instant::now() < end, "the server does not end");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends a request and reads the whole answer.
    pub fn send(&self, request: &Request) -> Answer {
        send_to(self.address, request)
    }

    /// A message for `/mcp`.
    pub fn post(&self, token: &str, message: &Value) -> Answer {
        self.send(&Request::post(token, message))
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a request to whoever listens there, and reads the whole answer.
pub fn send_to(address: SocketAddr, request: &Request) -> Answer {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    // A server may answer and close before it has read everything.
    let _ = stream.write_all(&request.bytes());
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    Answer::parse(&bytes)
}

/// A request as it will be written.
#[derive(Clone)]
pub struct Request {
    line: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn new(method: &str, path: &str) -> Self {
        let line = format!("{method} {path} HTTP/1.1");
        let headers = [("Host", "localhost"), ("Connection", "close")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        Self { line, headers, body: Vec::new() }
    }

    pub fn get(path: &str) -> Self {
        Self::new("GET", path)
    }

    /// A message for `/mcp`, as a good client sends it.
    pub fn post(token: &str, message: &Value) -> Self {
        let mut request = Self::new("POST", "/mcp")
            .with("Content-Type", "application/json")
            .with("Accept", "application/json, text/event-stream");
        if !token.is_empty() {
            request = request.with("Authorization", &format!("Bearer {token}"));
        }
        request.body = message.to_string().into_bytes();
        request
    }

    /// Adds a header, also a second one of the same name.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Takes a header out.
    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut text = format!("{}\r\n", self.line);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if !self.body.is_empty()
            && !self.headers.iter().any(|(name, _)| name == "Transfer-Encoding")
        {
            text.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        text.push_str("\r\n");
        [text.into_bytes(), self.body.clone()].concat()
    }
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        let chunked = head.to_lowercase().contains("transfer-encoding: chunked");
        let body = if chunked { unchunk(body) } else { body.to_owned() };
        Self { status, head: head.to_owned(), body }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The last JSON message, as a body or in a stream of events.
    pub fn message(&self) -> Value {
        let mut events = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
        let text = events.rfind(|data| !data.is_empty()).unwrap_or(&self.body);
        serde_json::from_str(text).unwrap_or_else(|_| panic!("no message in {self:?}"))
    }
}

fn unchunk(mut rest: &str) -> String {
    let mut whole = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        if size == 0 || after.len() < size {
            break;
        }
        whole.push_str(&after[..size]);
        rest = after[size..].trim_start_matches("\r\n");
    }
    whole
}

/// The handshake of 2025-11-25.
pub fn initialize() -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "test", "version": "0" },
    } })
}

/// A request of 2026-07-28, which says everything by itself.
pub fn modern(id: u64, method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "0" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// The same with the headers that belong to it.
pub fn modern_post(token: &str, id: u64, method: &str, params: Value) -> Request {
    let name = params["name"].as_str().map(str::to_owned);
    let request = Request::post(token, &modern(id, method, params))
        .with("MCP-Protocol-Version", "2026-07-28")
        .with("Mcp-Method", method);
    match name {
        Some(name) => request.with("Mcp-Name", &name),
        None => request,
    }
}

impl TestContext {
    /// Makes a token.
    pub fn token(&self, caller: &str) -> String {
        let output = self.run(["token", "new", caller]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    }

    /// `adjutant serve --http`, at a port that is free.
    pub fn serve_http<const N: usize>(&self, more: [&str; N]) -> HttpServer {
        let mut command = self.adjutant(["serve", "--http", "127.0.0.1:0"]);
        command.args(more);
        HttpServer::start(command)
    }
}
