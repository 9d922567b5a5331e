//! `adjutant … --http`, and a raw HTTP client that sends exactly the bytes it is given.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::TestContext;

const RESPONSE_TIMEOUT: Duration = Duration::from_mins(1);

/// A running HTTP server, killed when dropped.
pub struct HttpServer {
    child: Child,
    pub address: SocketAddr,
    log: Receiver<String>,
}

impl HttpServer {
    /// Starts the command and waits until it logs the address that it serves.
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

    /// Waits for a new log line that contains `words` and returns it.
    pub fn wait_for(&self, words: &str) -> String {
        loop {
            let line = self.log.recv_timeout(RESPONSE_TIMEOUT);
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

    /// Waits until the server exits by itself.
    pub fn wait_for_exit(&mut self) -> ExitStatus {
        let end = Instant::now() + RESPONSE_TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().expect("the server can be asked") {
                return status;
            }
            assert!(Instant::now() < end, "the server does not end");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends a request and reads the whole response.
    pub fn send(&self, request: &HttpRequest) -> HttpResponse {
        send_to(self.address, request)
    }

    /// Sends a JSON-RPC message to `/mcp`.
    pub fn post(&self, token: &str, message: &Value) -> HttpResponse {
        self.send(&HttpRequest::post(token, message))
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a request to this address and reads the whole response.
pub fn send_to(address: SocketAddr, request: &HttpRequest) -> HttpResponse {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(RESPONSE_TIMEOUT)).expect("a timeout");
    // A server may respond and close the connection before it has read the whole request.
    let _ = stream.write_all(&request.to_bytes());
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    HttpResponse::parse(&bytes)
}

/// An HTTP request as it is written to the socket.
#[derive(Clone)]
pub struct HttpRequest {
    line: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl HttpRequest {
    pub fn new(method: &str, path: &str) -> Self {
        let line = format!("{method} {path} HTTP/1.1");
        let headers = [("Host", "localhost"), ("Connection", "close")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        Self { line, headers, body: Vec::new() }
    }

    pub fn get(path: &str) -> Self {
        Self::new("GET", path)
    }

    /// A valid POST of a JSON-RPC message to `/mcp`.
    pub fn post(token: &str, message: &Value) -> Self {
        let mut request = Self::new("POST", "/mcp")
            .with_header("Content-Type", "application/json")
            .with_header("Accept", "application/json, text/event-stream");
        if !token.is_empty() {
            request = request.with_header("Authorization", &format!("Bearer {token}"));
        }
        request.body = message.to_string().into_bytes();
        request
    }

    /// Adds a header, even if one of this name exists.
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Removes a header.
    pub fn without_header(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self
    }

    pub fn to_bytes(&self) -> Vec<u8> {
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

#[derive(Debug)]
pub struct HttpResponse {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl HttpResponse {
    fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        let chunked = head.to_lowercase().contains("transfer-encoding: chunked");
        let body = if chunked { decode_chunked(body) } else { body.to_owned() };
        Self { status, head: head.to_owned(), body }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The last JSON-RPC message, from the body or from an event stream.
    pub fn message(&self) -> Value {
        let mut events = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
        let text = events.rfind(|data| !data.is_empty()).unwrap_or(&self.body);
        serde_json::from_str(text).unwrap_or_else(|_| panic!("no message in {self:?}"))
    }
}

fn decode_chunked(mut rest: &str) -> String {
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

/// The `initialize` request of revision 2025-11-25.
pub fn initialize_request() -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "test", "version": "0" },
    } })
}

/// A request of revision 2026-07-28, which needs no session.
pub fn stateless_request(id: u64, method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "0" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// A POST of a 2026-07-28 request with its required headers.
pub fn stateless_post(token: &str, id: u64, method: &str, params: Value) -> HttpRequest {
    let name = params["name"].as_str().map(str::to_owned);
    let request = HttpRequest::post(token, &stateless_request(id, method, params))
        .with_header("MCP-Protocol-Version", "2026-07-28")
        .with_header("Mcp-Method", method);
    match name {
        Some(name) => request.with_header("Mcp-Name", &name),
        None => request,
    }
}

impl TestContext {
    /// Creates a token for this caller.
    pub fn create_token(&self, caller: &str) -> String {
        let output = self.run(["token", "new", caller]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    }

    /// Starts `adjutant serve --http` on a free port.
    pub fn serve_http<const N: usize>(&self, more: [&str; N]) -> HttpServer {
        let mut command = self.adjutant(["serve", "--http", "127.0.0.1:0"]);
        command.args(more);
        HttpServer::start(command)
    }
}
