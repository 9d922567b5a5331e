//! The transport of a benchmark's client: pipes, or one HTTP connection with MCP revision 2026-07-28 (without sessions).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use super::http_gateway::HttpGateway;

pub enum Wire {
    Pipe(ChildStdin, BufReader<ChildStdout>),
    Http { stream: BufReader<TcpStream>, token: String },
}

impl Wire {
    /// Starts a server and connects by its pipes.
    pub fn start(command: &mut Command) -> (Child, Self) {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("it starts");
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stdin = child.stdin.take().unwrap();
        (child, Self::Pipe(stdin, stdout))
    }

    /// Connects to a server that is up.
    pub fn connect(gateway: &HttpGateway) -> Self {
        let stream = TcpStream::connect(&gateway.address).unwrap();
        stream.set_nodelay(true).unwrap();
        Self::Http { stream: BufReader::new(stream), token: gateway.token.clone() }
    }

    /// A message, ready to be sent again and again.
    pub fn prepare(&self, message: &Value) -> Prepared {
        let bytes = match self {
            Self::Pipe(..) => format!("{message}\n"),
            Self::Http { token, .. } => http_request(token, message.clone()),
        };
        Prepared::new(bytes)
    }

    pub fn send(&mut self, bytes: &[u8]) {
        match self {
            Self::Pipe(stdin, _) => stdin.write_all(bytes).unwrap(),
            Self::Http { stream, .. } => stream.get_mut().write_all(bytes).unwrap(),
        }
    }

    /// Reads the next message.
    pub fn receive(&mut self, message: &mut Vec<u8>) {
        message.clear();
        match self {
            Self::Pipe(_, stdout) => read_line(stdout, message),
            Self::Http { stream, .. } => {
                let mut length = 0;
                let mut header = Vec::new();
                loop {
                    header.clear();
                    read_line(stream, &mut header);
                    let text = str::from_utf8(&header).unwrap().trim();
                    if let Some(stated) = text.strip_prefix("content-length:") {
                        length = stated.trim().parse().unwrap();
                    }
                    if text.is_empty() {
                        break;
                    }
                }
                message.resize(length, 0);
                stream.read_exact(message).unwrap();
            }
        }
    }
}

fn read_line(from: &mut impl BufRead, line: &mut Vec<u8>) {
    assert!(from.read_until(b'\n', line).unwrap() > 0, "the server went away");
}

/// The first id; all have as many digits, so that a message keeps its length.
pub const FIRST_ID: u64 = 1_000_000_000;

/// A message in which only the id changes.
pub struct Prepared {
    bytes: Vec<u8>,
    id: Range<usize>,
}

impl Prepared {
    fn new(text: String) -> Self {
        let digits = FIRST_ID.to_string();
        // A notification has none.
        let at = text.find(&digits).unwrap_or(0);
        let length = if text.contains(&digits) { digits.len() } else { 0 };
        Self { bytes: text.into_bytes(), id: at..at + length }
    }

    /// The message with this id.
    pub fn with(&mut self, id: u64) -> &[u8] {
        let digits = id.to_string();
        self.bytes[self.id.clone()].copy_from_slice(&digits.as_bytes()[..self.id.len()]);
        &self.bytes
    }
}

/// A message of 2026-07-28, which says everything by itself.
fn http_request(token: &str, mut message: Value) -> String {
    let name = message["params"]["name"].as_str().map(|name| format!("Mcp-Name: {name}\r\n"));
    let method = message["method"].as_str().unwrap().to_owned();
    message["params"]["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "bench", "version": "0" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let body = message.to_string();
    format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n{}\
         Content-Length: {}\r\n\r\n{body}",
        name.unwrap_or_default(),
        body.len(),
    )
}
