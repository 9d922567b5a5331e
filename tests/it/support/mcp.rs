//! A minimal MCP client over a child's stdin and stdout: raw JSON, no interpretation.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const RESPONSE_TIMEOUT: Duration = Duration::from_mins(1);

pub struct McpClient {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
    next_id: u64,
    /// All received messages that are not responses.
    pub notifications: Vec<Value>,
}

impl McpClient {
    /// Starts the server without a handshake.
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

    /// Starts the server and performs the handshake.
    pub fn connect(command: Command) -> Self {
        let mut client = Self::start(command);
        client.initialize();
        client
    }

    /// Like [`connect`](Self::connect), with the server's log in a file.
    pub fn connect_logging(command: Command, log: File) -> Self {
        let mut client = Self::start_logging(command, log.into());
        client.initialize();
        client
    }

    /// Like [`connect`](Self::connect), for a client that supports elicitation.
    pub fn connect_with_elicitation(command: Command) -> Self {
        let mut client = Self::start(command);
        client.initialize_with(json!({ "elicitation": {} }));
        client
    }

    /// The handshake of revision 2025-11-25.
    pub fn initialize(&mut self) -> Value {
        self.initialize_with(json!({}))
    }

    fn initialize_with(&mut self, capabilities: Value) -> Value {
        let wait_for_response = self.request(
            "initialize",
            json!({
                "protocolVersion": "2025-11-25", "capabilities": capabilities,
                "clientInfo": { "name": "test", "version": "0" },
            }),
        );
        self.notify("notifications/initialized", json!({}));
        wait_for_response
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Closes the server's stdin, as a client that disconnects.
    pub fn disconnect(&mut self) {
        self.stdin = None;
    }

    pub fn send(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().expect("not hung up");
        writeln!(stdin, "{message}").expect("the server reads");
    }

    pub fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// Sends a raw line.
    pub fn send_line(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().expect("not hung up"), "{line}").expect("the server reads");
    }

    /// A new id for a hand-written request.
    pub fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Sends a request without waiting for its response. Returns its id.
    pub fn send_request(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// Waits for the response to a request: its `result`, or an object with its `error`.
    pub fn answer(&mut self, id: u64) -> Value {
        let is_meant = |message: &Value| message["id"] == id && message.get("method").is_none();
        // Responses may arrive in any order.
        if let Some(at) = self.notifications.iter().position(is_meant) {
            let message = self.notifications.remove(at);
            return message.get("result").cloned().unwrap_or(message);
        }
        let deadline = Instant::now() + RESPONSE_TIMEOUT;
        loop {
            let message =
                self.next_message(deadline).unwrap_or_else(|| panic!("no answer to request {id}"));
            if is_meant(&message) {
                return message.get("result").cloned().unwrap_or(message);
            }
            self.notifications.push(message);
        }
    }

    /// Waits for the server to exit, then returns how many of these requests were answered.
    pub fn count_responses_after_exit(&mut self, ids: &[u64]) -> usize {
        while let Some(message) = self.next_message(Instant::now() + RESPONSE_TIMEOUT) {
            self.notifications.push(message);
        }
        let is_answer = |message: &&Value| {
            message.get("method").is_none() && ids.iter().any(|id| message["id"] == *id)
        };
        self.notifications.iter().filter(is_answer).count()
    }

    /// Waits for a notification that matches.
    pub fn wait_for_notification(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.notifications.iter().position(&fits) {
            return self.notifications.remove(at);
        }
        let deadline = Instant::now() + RESPONSE_TIMEOUT;
        loop {
            let message = self.next_message(deadline).expect("the notification comes");
            if fits(&message) {
                return message;
            }
            self.notifications.push(message);
        }
    }

    pub fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send_request(method, params);
        self.answer(id)
    }

    pub fn call_tool(&mut self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    /// Waits for the next elicitation request whose text contains `about`.
    pub fn wait_for_elicitation(&mut self, about: &str) -> Value {
        self.wait_for_notification(|message| {
            message["method"] == "elicitation/create"
                && message["params"]["message"].as_str().is_some_and(|text| text.contains(about))
        })
    }

    /// Answers an elicitation: `accept` with this decision, or `decline` or `cancel`.
    pub fn answer_elicitation(&mut self, question: &Value, decision: &str) {
        let result = match decision {
            "decline" | "cancel" => json!({ "action": decision }),
            decision => json!({ "action": "accept", "content": { "decision": decision } }),
        };
        self.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": result }));
    }

    /// Waits at most 1 min for the server to exit by itself.
    pub fn wait_for_exit(&mut self) -> std::process::ExitStatus {
        let deadline = Instant::now() + RESPONSE_TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                return status;
            }
            assert!(Instant::now() < deadline, "the server does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Closes the server's stdin and waits for its exit: everything that the server queued is written then.
    pub fn stop(mut self) {
        self.disconnect();
        self.wait_for_exit();
    }

    fn next_message(&mut self, deadline: Instant) -> Option<Value> {
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
pub fn result_text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_default()
}
