//! A small MCP client over a child's pipes: what is on the wire, nothing interpreted.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_mins(1);

/// A client of one server.
pub struct McpClient {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
    next_id: u64,
    /// Everything that came and was no answer to a request.
    pub notifications: Vec<Value>,
}

impl McpClient {
    /// Starts the server; nothing is said yet.
    pub fn start(command: Command) -> Self {
        Self::start_logging(command, Stdio::inherit())
    }

    fn start_logging(mut command: Command, log: Stdio) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the server starts");
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("its stdout");
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let Ok(line) = line else { return };
                let value = serde_json::from_str(&line)
                    .unwrap_or_else(|_| panic!("stdout carries nothing but protocol: {line}"));
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        Self { child, stdin, lines, next_id: 0, notifications: Vec::new() }
    }

    /// Starts the server and shakes hands.
    pub fn connect(command: Command) -> Self {
        let mut client = Self::start(command);
        client.initialize();
        client
    }

    /// The same, with what it logs in a file.
    pub fn connect_logging(command: Command, log: File) -> Self {
        let mut client = Self::start_logging(command, log.into());
        client.initialize();
        client
    }

    /// Starts the server for a client whose person can be asked.
    pub fn connect_asking(command: Command) -> Self {
        let mut client = Self::start(command);
        client.initialize_with(json!({ "elicitation": {} }));
        client
    }

    /// The handshake of 2025-11-25.
    pub fn initialize(&mut self) -> Value {
        self.initialize_with(json!({}))
    }

    fn initialize_with(&mut self, capabilities: Value) -> Value {
        let answer = self.request(
            "initialize",
            json!({
                "protocolVersion": "2025-11-25", "capabilities": capabilities,
                "clientInfo": { "name": "test", "version": "0" },
            }),
        );
        self.notify("notifications/initialized", json!({}));
        answer
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Closes the server's stdin: the client is gone.
    pub fn hang_up(&mut self) {
        self.stdin = None;
    }

    pub fn send(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().expect("not hung up");
        writeln!(stdin, "{message}").expect("the server reads");
    }

    pub fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// Sends a line as it stands, whatever it is.
    pub fn send_line(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().expect("not hung up"), "{line}").expect("the server reads");
    }

    /// An id for a request that is written by hand.
    pub fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Sends a request and does not wait.
    pub fn begin(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// The answer to an earlier request: its `result`, or its `error` under that name.
    pub fn answer(&mut self, id: u64) -> Value {
        let is_meant = |message: &Value| message["id"] == id && message.get("method").is_none();
        // Answers to several requests come in any order.
        if let Some(at) = self.notifications.iter().position(is_meant) {
            let message = self.notifications.remove(at);
            return message.get("result").cloned().unwrap_or(message);
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            let message =
                self.next(deadline).unwrap_or_else(|| panic!("no answer to request {id}"));
            if is_meant(&message) {
                return message.get("result").cloned().unwrap_or(message);
            }
            self.notifications.push(message);
        }
    }

    /// How many of these requests have been answered, once the server is gone.
    pub fn answers_so_far(&mut self, ids: &[u64]) -> usize {
        while let Some(message) = self.next(Instant::now() + PATIENCE) {
            self.notifications.push(message);
        }
        let is_answer = |message: &&Value| {
            message.get("method").is_none() && ids.iter().any(|id| message["id"] == *id)
        };
        self.notifications.iter().filter(is_answer).count()
    }

    /// Waits for a notification that fits.
    pub fn await_notification(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.notifications.iter().position(&fits) {
            return self.notifications.remove(at);
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            let message = self.next(deadline).expect("the notification comes");
            if fits(&message) {
                return message;
            }
            self.notifications.push(message);
        }
    }

    pub fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        self.answer(id)
    }

    pub fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    /// The next question to the person whose text contains `about`.
    pub fn question(&mut self, about: &str) -> Value {
        self.await_notification(|message| {
            message["method"] == "elicitation/create"
                && message["params"]["message"].as_str().is_some_and(|text| text.contains(about))
        })
    }

    /// The person's answer to a question: `accept` with a decision, or an action alone.
    pub fn reply(&mut self, question: &Value, decision: &str) {
        let result = match decision {
            "decline" | "cancel" => json!({ "action": decision }),
            decision => json!({ "action": "accept", "content": { "decision": decision } }),
        };
        self.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": result }));
    }

    /// Whether the server has ended by itself, waiting for it.
    pub fn ends(&mut self) -> std::process::ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                return status;
            }
            assert!(Instant::now() < deadline, "the server does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn next(&mut self, deadline: Instant) -> Option<Value> {
        self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
    }
}

impl Drop for McpClient {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The text of a tool result.
pub fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_default()
}
