//! Connections that never send a complete request do not keep other clients out.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::json;

use super::project;
use crate::gateway::faulty;
use crate::support::TestContext;
use crate::support::http::{HttpServer, initialize_request, send_to, stateless_post};
use crate::support::skip::skip;
use crate::support::wait::wait_until;

/// Open files of the test process besides the connections of a test.
const OTHER_FILES: u64 = 500;

#[test]
fn s5_ten_thousand_half_open_connections_do_not_delay_a_client() {
    if !raise_open_file_limit(10_000 + OTHER_FILES) {
        return;
    }
    let context = project_with_a_server();
    let token = context.create_token("bot");
    let server = context.serve_http([]);
    let address = server.address;
    // The oldest connection has a call in progress.
    let request = stateless_post(
        &token,
        1,
        "tools/call",
        json!({ "name": "execute_tool",
        "arguments": { "server": "good", "tool": "late_log" } }),
    );
    let call = std::thread::spawn(move || send_to(address, &request).message());
    wait_until("the call", || {
        let asked = std::fs::read_to_string(context.root().join("asked-server")).ok()?;
        asked.contains("tools/call").then_some(())
    });
    let _half_open = open_half_requests(address, 10_000);
    assert_served_within_a_second(&server, &token);
    assert!(open_file_count(&server) < 8_192 + 200, "{} open files", open_file_count(&server));
    context.write("log-now", "");
    let answer = call.join().unwrap();
    assert_eq!(answer["result"]["content"][0]["text"], "logged late", "{answer}");
}

#[test]
fn s5_connections_use_at_most_half_of_the_open_file_limit() {
    let context = project();
    let token = context.create_token("bot");
    let serve = context.adjutant(["serve", "--http", "127.0.0.1:0"]);
    let mut limited = std::process::Command::new("/bin/sh");
    limited.args(["-c", "ulimit -n 256 && exec \"$0\" \"$@\""]);
    limited.arg(serve.get_program()).args(serve.get_args());
    limited.current_dir(serve.get_current_dir().unwrap());
    for (name, value) in serve.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    let server = HttpServer::start(limited);
    let _half_open = open_half_requests(server.address, 300);
    assert_served_within_a_second(&server, &token);
    assert!(open_file_count(&server) < 200, "{} open files", open_file_count(&server));
}

fn assert_served_within_a_second(server: &HttpServer, token: &str) {
    let begun = Instant::now();
    assert_eq!(server.post(token, &initialize_request()).status, 200);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

fn project_with_a_server() -> TestContext {
    let context = project();
    let entry = json!({ "command": faulty(), "args": ["records", "server"] });
    context.write(".mcp.json", json!({ "mcpServers": { "good": entry } }).to_string());
    context.write(".mcp-gateway-rules.json", r#"{"agents":{"bot":{"allow":{"servers":["*"]}}}}"#);
    context
}

/// Opens connections that have sent half of a request header.
fn open_half_requests(server: SocketAddr, count: usize) -> Vec<TcpStream> {
    let connect = |number: usize| {
        let mut stream = TcpStream::connect_timeout(&server, Duration::from_secs(10))
            .unwrap_or_else(|error| panic!("connection {number} is not accepted: {error}"));
        stream.write_all(b"POST /mcp HTTP/1.1\r\nHost: local").unwrap();
        stream
    };
    (0..count).map(connect).collect()
}

/// Raises the limit of open files; returns `false`, with a message, if the hard limit is lower.
fn raise_open_file_limit(wanted: u64) -> bool {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    if hard < wanted {
        skip(format!("{wanted} open files needed, {hard} allowed (`ulimit -Hn`)"));
        return false;
    }
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    true
}

fn open_file_count(server: &HttpServer) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count()
}
