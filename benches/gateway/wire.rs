//! How messages come and go: over a pipe, or over one HTTP connection in the newest revision, which has no sessions.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

pub(crate) enum Wire {
    Pipe(ChildStdin, BufReader<ChildStdout>),
    Http { stream: BufReader<TcpStream>, token: String },
}

impl Wire {
    /// Starts a server and connects: by its pipes, or with a token at the address that it says.
    pub(crate) fn open(command: &mut Command, token: Option<&str>) -> (Child, Self) {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(if token.is_some() { Stdio::piped() } else { Stdio::null() });
        let mut child = command.spawn().expect("it starts");
        let wire = match token {
            None => {
                let stdout = BufReader::new(child.stdout.take().unwrap());
                Self::Pipe(child.stdin.take().unwrap(), stdout)
            }
            Some(token) => {
                let said = line(&mut BufReader::new(child.stderr.take().unwrap()));
                let place = said.split("://").nth(1).and_then(|rest| rest.split('/').next());
                let stream = TcpStream::connect(place.expect("an address")).unwrap();
                stream.set_nodelay(true).unwrap();
                Self::Http { stream: BufReader::new(stream), token: token.to_owned() }
            }
        };
        (child, wire)
    }

    pub(crate) fn has_handshake(&self) -> bool {
        matches!(self, Self::Pipe(..))
    }

    pub(crate) fn send(&mut self, message: &Value) {
        match self {
            Self::Pipe(stdin, _) => stdin.write_all(format!("{message}\n").as_bytes()).unwrap(),
            Self::Http { stream, token } => {
                let request = http_request(token, message.clone());
                stream.get_mut().write_all(request.as_bytes()).unwrap();
            }
        }
    }

    pub(crate) fn receive(&mut self) -> Value {
        match self {
            Self::Pipe(_, stdout) => serde_json::from_str(&line(stdout)).unwrap(),
            Self::Http { stream, .. } => {
                let mut length = 0;
                loop {
                    let header = line(stream).to_lowercase();
                    if let Some(stated) = header.strip_prefix("content-length:") {
                        length = stated.trim().parse().unwrap();
                    }
                    if header.trim().is_empty() {
                        break;
                    }
                }
                let mut body = vec![0; length];
                stream.read_exact(&mut body).unwrap();
                serde_json::from_slice(&body).unwrap()
            }
        }
    }
}

fn line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    assert!(from.read_line(&mut line).unwrap() > 0, "the server went away");
    line
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
