//! Clients that ask too much at once, read nothing, stop half-way, or use an id twice: nobody waits for ever, nothing piles up.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value, json};

use crate::gateway::faulty;
use crate::support::TestContext;
use crate::support::fake::fake_claude;
use crate::support::waiting::{events, wait_for};

const PATIENCE_MS: u16 = 30_000;

/// A project with a server that echoes, and an agent that does what it is told.
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

fn call(id: u64, tool: &str, arguments: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": { "name": tool, "arguments": arguments } })
    .to_string()
}

fn echo(id: u64, text: &str) -> String {
    let arguments =
        json!({ "agent_id": "main", "server": "good", "tool": "echo", "args": { "text": text } });
    call(id, "execute_tool", &arguments)
}

/// A client that reads only when it wants to.
struct LazyClient {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl LazyClient {
    fn connect(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut client = Self { stdin: child.stdin.take(), stdout, child };
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "lazy", "version": "0" } });
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello });
        client.send(&hello.to_string());
        assert_eq!(client.read()["id"], 0);
        client.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        client
    }

    fn send(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn read(&mut self) -> Value {
        if self.stdout.buffer().is_empty() {
            let mut polled = [PollFd::new(self.stdout.get_ref().as_fd(), PollFlags::POLLIN)];
            assert_ne!(poll(&mut polled, PATIENCE_MS), Ok(0), "nothing comes any more");
        }
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line:?}"))
    }

    /// The next message that is no notification.
    fn answer(&mut self) -> Value {
        loop {
            let message = self.read();
            if message.get("id").is_some() {
                return message;
            }
        }
    }
}

impl Drop for LazyClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The most memory that the process has had, in megabytes.
fn peak_of(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

#[test]
fn f5_who_stops_reading_is_not_read_from_and_gets_everything_when_it_reads_again() {
    let context = project();
    let mut client = LazyClient::connect(serve(&context));
    let before = peak_of(client.child.id());
    let text = "x".repeat(64 << 10);
    let stdin = client.stdin.as_ref().unwrap().as_fd();
    fcntl(stdin, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    // 256 MB would go in if nobody looked at how much waits.
    let (mut asked, mut rest) = (0, Vec::new());
    while asked < 4_000 {
        if rest.is_empty() {
            asked += 1;
            rest = format!("{}\n", echo(asked, &text)).into_bytes();
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
    let peak = peak_of(client.child.id());
    assert!(asked < 4_000, "it takes more and more, and has {peak} MB");
    assert!(peak < before + 100, "{before} MB, then {peak} MB after {asked} requests");

    // It reads again, and what was asked is answered, each once.
    let stdin = client.stdin.take().unwrap();
    fcntl(stdin.as_fd(), FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    let writing = thread::spawn(move || {
        let mut stdin = stdin;
        stdin.write_all(&rest).unwrap();
        stdin
    });
    let mut open: BTreeSet<u64> = (1..=asked).collect();
    while !open.is_empty() {
        let answer = client.answer();
        assert!(open.remove(&answer["id"].as_u64().unwrap()), "asked for: {answer}");
        assert_eq!(answer["result"]["isError"], Value::Null, "{answer}");
    }
    drop(writing.join().unwrap());
    assert!(client.child.wait().unwrap().success(), "and it ends when its client goes");
}

#[test]
fn f5_half_a_line_holds_up_nobody() {
    let context = project();
    let mut client = LazyClient::connect(serve(&context));
    let task = json!({ "agent_name": "echo", "prompt": "FAKE say on it\nFAKE result done" });
    client.send(&call(1, "run_subagent", &task));
    let line = echo(2, "whole");
    let (first, second) = line.split_at(line.len() / 2);
    client.stdin.as_mut().unwrap().write_all(first.as_bytes()).unwrap();
    // What was asked before is answered while the rest is missing.
    assert_eq!(client.answer()["result"]["structuredContent"]["result"], "done");
    client.send(second);
    let answer = client.answer();
    assert!(answer["id"] == 2 && answer.to_string().contains("whole"), "{answer}");
    client.stdin.as_mut().unwrap().write_all(first.as_bytes()).unwrap();
    client.stdin = None;
    assert!(client.child.wait().unwrap().success(), "half a line and gone is gone");
}

#[test]
fn f5_ten_thousand_requests_at_once_are_all_answered_once() {
    let context = project();
    let mut client = LazyClient::connect(serve(&context));
    let mut stdin = client.stdin.take().unwrap();
    let writing = thread::spawn(move || {
        let mut lines = String::new();
        for id in 1..=10_000 {
            match id % 20 {
                0 => lines.push_str(&echo(id, "x")),
                1 => lines.push_str(&call(id, "list_servers", &json!({ "agent_id": "main" }))),
                _ => lines.push_str(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)),
            }
            lines.push('\n');
        }
        stdin.write_all(lines.as_bytes()).unwrap();
        stdin
    });
    let mut open: BTreeSet<u64> = (1..=10_000).collect();
    while !open.is_empty() {
        let answer = client.answer();
        assert!(open.remove(&answer["id"].as_u64().unwrap()), "asked for: {answer}");
        assert!(answer["error"].is_null() && answer["result"]["isError"] != true, "{answer}");
    }
    drop(writing.join().unwrap());
    let peak = peak_of(client.child.id());
    assert!(peak < 200, "{peak} MB");
}

/// Nobody could tell two answers to one id apart: one is enough. Both runs end, and the next request is answered.
#[test]
fn f5_an_id_used_twice_costs_nobody_an_answer_but_its_user() {
    let context = project();
    let mut client = LazyClient::connect(serve(&context));
    for prompt in ["FAKE result one", "FAKE result two"] {
        let task = json!({ "agent_name": "echo", "prompt": prompt });
        client.send(&call(7, "run_subagent", &task));
    }
    for text in ["three", "four"] {
        client.send(&echo(8, text));
    }
    client.send(&echo(9, "five"));
    let mut open = BTreeSet::from([7, 8, 9]);
    while !open.is_empty() {
        let answer = client.answer();
        open.remove(&answer["id"].as_u64().unwrap());
    }
    wait_for("the end of both runs", || {
        (events(&context.root(), "RunEnded").len() == 2).then_some(())
    });
    client.send(&echo(10, "six"));
    while client.answer()["id"] != 10 {}
    client.stdin = None;
    assert!(client.child.wait().unwrap().success());
}
