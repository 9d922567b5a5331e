//! Misbehaving stdio clients: floods, unread output, incomplete lines, reused ids. Memory stays bounded and no other
//! request is blocked.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::{fs, thread};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value, json};

use crate::gateway::faulty;
use crate::support::TestContext;
use crate::support::fake_claude::fake_claude;
use crate::support::wait::wait_until;

const READ_TIMEOUT_MS: u16 = 30_000;

/// A project with an echo server and an agent for the fake `claude`.
fn project() -> TestContext {
    let context = TestContext::new();
    let servers = json!({ "mcpServers": { "good": { "command": faulty() } } });
    context.write(".mcp.json", servers.to_string());
    context
        .write(".mcp-gateway-rules.json", r#"{"agents": {"main": {"allow": {"servers": ["*"]}}}}"#);
    context.agent("echo", "---\nname: echo\ndescription: Echoes\n---\nYou echo.\n");
    context
}

fn serve(context: &TestContext) -> Command {
    let mut command = context.adjutant(["serve"]);
    command.env("ADJUTANT_CLAUDE", fake_claude()).env("RUST_LOG", "error");
    command
}

fn tool_call_line(id: u64, tool: &str, arguments: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": { "name": tool, "arguments": arguments } })
    .to_string()
}

fn echo_call_line(id: u64, text: &str) -> String {
    let arguments =
        json!({ "agent_id": "main", "server": "good", "tool": "echo", "args": { "text": text } });
    tool_call_line(id, "execute_tool", &arguments)
}

/// A client that reads output only on request.
struct ManualReadClient {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl ManualReadClient {
    fn connect(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut client = Self { stdin: child.stdin.take(), stdout, child };
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "lazy", "version": "0" } });
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello });
        client.send(&hello.to_string());
        assert_eq!(client.read_message()["id"], 0);
        client.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        client
    }

    fn send(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn read_message(&mut self) -> Value {
        if self.stdout.buffer().is_empty() {
            let mut polled = [PollFd::new(self.stdout.get_ref().as_fd(), PollFlags::POLLIN)];
            assert_ne!(poll(&mut polled, READ_TIMEOUT_MS), Ok(0), "nothing comes any more");
        }
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line:?}"))
    }

    /// Returns the next message that is not a notification.
    fn read_response(&mut self) -> Value {
        loop {
            let message = self.read_message();
            if message.get("id").is_some() {
                return message;
            }
        }
    }
}

impl Drop for ManualReadClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Peak resident memory of the process in MiB.
fn peak_memory_mib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

#[test]
fn f5_a_client_that_stops_reading_gets_backpressure_and_later_every_response() {
    let context = project();
    let mut client = ManualReadClient::connect(serve(&context));
    let before = peak_memory_mib(client.child.id());
    let text = "x".repeat(64 << 10);
    let stdin = client.stdin.as_ref().unwrap().as_fd();
    fcntl(stdin, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    // 4,000 requests of 64 KiB: without backpressure the server would buffer 256 MB.
    let (mut asked, mut rest) = (0, Vec::new());
    while asked < 4_000 {
        if rest.is_empty() {
            asked += 1;
            rest = format!("{}\n", echo_call_line(asked, &text)).into_bytes();
        }
        match client.stdin.as_mut().unwrap().write(&rest) {
            Ok(written) => drop(rest.drain(..written)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let stdin = client.stdin.as_ref().unwrap().as_fd();
                let mut polled = [PollFd::new(stdin, PollFlags::POLLOUT)];
                if poll(&mut polled, PollTimeout::from(500_u16)).unwrap() == 0 {
                    break;
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
    let peak = peak_memory_mib(client.child.id());
    assert!(asked < 4_000, "it takes more and more, and has {peak} MB");
    assert!(peak < before + 100, "{before} MB, then {peak} MB after {asked} requests");

    // The client reads again: every request is answered exactly once.
    let stdin = client.stdin.take().unwrap();
    fcntl(stdin.as_fd(), FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    let writing = thread::spawn(move || {
        let mut stdin = stdin;
        stdin.write_all(&rest).unwrap();
        stdin
    });
    let mut open: BTreeSet<u64> = (1..=asked).collect();
    while !open.is_empty() {
        let answer = client.read_response();
        assert!(open.remove(&answer["id"].as_u64().unwrap()), "asked for: {answer}");
        assert_eq!(answer["result"]["isError"], Value::Null, "{answer}");
    }
    drop(writing.join().unwrap());
    assert!(client.child.wait().unwrap().success(), "and it ends when its client goes");
}

#[test]
fn f5_an_incomplete_line_does_not_block_other_requests() {
    let context = project();
    let mut client = ManualReadClient::connect(serve(&context));
    let task = json!({ "agent_name": "echo", "prompt": "FAKE say on it\nFAKE result done" });
    client.send(&tool_call_line(1, "run_subagent", &task));
    let line = echo_call_line(2, "whole");
    let (first, second) = line.split_at(line.len() / 2);
    client.stdin.as_mut().unwrap().write_all(first.as_bytes()).unwrap();
    // The earlier request is answered while the rest of the line is missing.
    assert_eq!(client.read_response()["result"]["structuredContent"]["result"], "done");
    client.send(second);
    let answer = client.read_response();
    assert!(answer["id"] == 2 && answer.to_string().contains("whole"), "{answer}");
    client.stdin.as_mut().unwrap().write_all(first.as_bytes()).unwrap();
    client.stdin = None;
    assert!(client.child.wait().unwrap().success(), "half a line and gone is gone");
}

#[test]
fn f5_ten_thousand_concurrent_requests_get_one_response_each() {
    let context = project();
    let mut client = ManualReadClient::connect(serve(&context));
    let mut stdin = client.stdin.take().unwrap();
    let writing = thread::spawn(move || {
        let mut lines = String::new();
        for id in 1..=10_000 {
            match id % 20 {
                0 => lines.push_str(&echo_call_line(id, "x")),
                1 => lines.push_str(&tool_call_line(
                    id,
                    "list_servers",
                    &json!({ "agent_id": "main" }),
                )),
                _ => lines.push_str(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)),
            }
            lines.push('\n');
        }
        stdin.write_all(lines.as_bytes()).unwrap();
        stdin
    });
    let mut open: BTreeSet<u64> = (1..=10_000).collect();
    while !open.is_empty() {
        let answer = client.read_response();
        assert!(open.remove(&answer["id"].as_u64().unwrap()), "asked for: {answer}");
        assert!(answer["error"].is_null() && answer["result"]["isError"] != true, "{answer}");
    }
    drop(writing.join().unwrap());
    let peak = peak_memory_mib(client.child.id());
    assert!(peak < 200, "{peak} MB");
}

/// Of two requests with one id the second gets an error; the first and all later requests are answered.
#[test]
fn f5_a_second_request_with_an_id_in_use_is_rejected() {
    let context = project();
    let mut client = ManualReadClient::connect(serve(&context));
    for prompt in ["FAKE result one", "FAKE result two"] {
        let task = json!({ "agent_name": "echo", "prompt": prompt });
        client.send(&tool_call_line(7, "run_subagent", &task));
    }
    for text in ["three", "four"] {
        client.send(&echo_call_line(8, text));
    }
    client.send(&echo_call_line(9, "five"));
    let mut open = BTreeSet::from([7, 8, 9]);
    let mut refused = 0;
    while !open.is_empty() || refused == 0 {
        let answer = client.read_response();
        if answer["error"]["code"] == -32600 {
            refused += 1;
            continue;
        }
        open.remove(&answer["id"].as_u64().unwrap());
    }
    wait_until("the end of the run", || {
        (context.events_named("RunEnded").len() == 1).then_some(())
    });
    client.send(&echo_call_line(10, "six"));
    while client.read_response()["id"] != 10 {}
    client.stdin = None;
    assert!(client.child.wait().unwrap().success());
}
