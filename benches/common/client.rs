//! A minimal MCP client, which adds as little as possible to the measured time.

use std::fs;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use memchr::memmem;
use serde_json::{Value, json};

use super::execute_tool::IN_FLIGHT;
use super::http_gateway::HttpGateway;
use super::statistics::timed;
use super::wire::{FIRST_ID, Prepared, Wire};

/// An MCP client that searches messages for bytes instead of parsing them.
pub struct Client {
    /// The server, if this client started it.
    child: Option<Child>,
    wire: Wire,
    next: u64,
    /// The last received message.
    message: Vec<u8>,
}

impl Client {
    /// Starts a server on stdio and initializes the session.
    pub fn start(command: &mut Command) -> Self {
        let (child, wire) = Wire::start(command);
        let mut client = Self::over(wire);
        client.child = Some(child);
        let hello = json!({
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "bench", "version": "0" },
        });
        let mut hello = client.prepare("initialize", &hello);
        client.request(&mut hello);
        client.wire.send(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
        client
    }

    /// Connects to a running server over HTTP.
    pub fn connect(gateway: &HttpGateway) -> Self {
        Self::over(Wire::connect(gateway))
    }

    fn over(wire: Wire) -> Self {
        Self { child: None, wire, next: 0, message: Vec::new() }
    }

    pub fn prepare(&self, method: &str, params: &Value) -> Prepared {
        let message =
            json!({ "jsonrpc": "2.0", "id": FIRST_ID, "method": method, "params": params });
        self.wire.prepare(&message)
    }

    fn send(&mut self, message: &mut Prepared) {
        self.next += 1;
        self.wire.send(message.with(FIRST_ID + self.next));
    }

    /// Reads the next response; notifications are skipped.
    fn receive(&mut self) {
        loop {
            self.wire.receive(&mut self.message);
            if self.says(b"\"id\":") && !self.says(b"\"method\":") {
                return;
            }
        }
    }

    fn says(&self, words: &[u8]) -> bool {
        memmem::find(&self.message, words).is_some()
    }

    /// Sends a request and reads up to its response. Responses to earlier requests would shorten the time.
    pub fn request(&mut self, message: &mut Prepared) {
        self.send(message);
        let id = (FIRST_ID + self.next).to_string();
        loop {
            self.receive();
            if self.says(id.as_bytes()) {
                return;
            }
        }
    }

    fn call(&mut self, call: &mut Prepared, expected: &str) {
        self.request(call);
        let answer = String::from_utf8_lossy(&self.message);
        assert!(answer.contains(expected), "{answer}");
    }

    /// The durations of `calls` sequential calls; each answer must contain `expected`.
    pub fn one_by_one(&mut self, call: &Value, expected: &str, calls: usize) -> Vec<Duration> {
        let mut call = self.prepare("tools/call", call);
        (0..calls).map(|_| timed(|| self.call(&mut call, expected))).collect()
    }

    /// Calls per second with [`IN_FLIGHT`] concurrent requests.
    pub fn at_once(&mut self, call: &Value, calls: usize) -> f64 {
        let mut call = self.prepare("tools/call", call);
        let begun = Instant::now();
        for _ in 0..IN_FLIGHT {
            self.send(&mut call);
        }
        for _ in IN_FLIGHT..calls {
            self.receive();
            self.send(&mut call);
        }
        for _ in 0..IN_FLIGHT {
            self.receive();
        }
        calls as f64 / begun.elapsed().as_secs_f64()
    }

    /// Resident memory in MB.
    pub fn memory(&self) -> Option<f64> {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.child.as_ref()?.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        Some(line.trim().trim_end_matches(" kB").parse::<f64>().ok()? / 1024.0)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
