//! Floods of `initialize`: without a token they use no sessions; with `--insecure-local` sessions are limited.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::{project, refused_request_codes};
use crate::support::http::{HttpRequest, HttpServer, initialize_request};

/// Pipelined requests per write.
const PIPELINED_REQUESTS: usize = 25;

#[test]
fn j4_five_thousand_unauthenticated_requests_use_no_session_and_few_audit_entries() {
    check_unauthenticated_requests(5_000);
}

#[test]
#[ignore = "takes a minute of a whole machine"]
fn j4_a_hundred_thousand_unauthenticated_requests_use_no_session_and_few_audit_entries() {
    check_unauthenticated_requests(100_000);
}

#[test]
fn j4_sessions_without_tokens_are_limited() {
    check_session_limit(2_000);
}

#[test]
fn defect_23_parallel_initializes_do_not_exceed_the_session_limit() {
    let context = project();
    let server = context.serve_http(["--insecure-local", "--requests-per-second", "0"]);
    send_initializes(server.address, 1_100, "HTTP/1.1 200");
    assert_eq!(session_count(&server), 1_100);
    let address = server.address;
    std::thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(move || send_initializes(address, PIPELINED_REQUESTS, "HTTP/1.1 200"));
        }
    });
    assert_eq!(session_count(&server), 1_100);
}

fn check_unauthenticated_requests(count: usize) {
    let context = project();
    let token = context.create_token("bot");
    let server = context.serve_http([]);
    send_initializes(server.address, PIPELINED_REQUESTS, "HTTP/1.1 401");
    let before = resident_kib(&server);
    send_initializes(server.address, count, "HTTP/1.1 401");
    let grown = resident_kib(&server).saturating_sub(before);
    println!("{count} strangers cost {grown} KiB");
    assert!(grown < 8 << 10, "{grown} KiB for {count} strangers");
    let lines = refused_request_codes(&context);
    assert!(lines.iter().all(|line| line == "NO_TOKEN") && lines.len() < 30, "{lines:?}");
    assert_eq!(session_count(&server), 0);
    assert_eq!(server.post(&token, &initialize_request()).status, 200);
}

fn check_session_limit(count: usize) {
    let context = project();
    let server = context.serve_http(["--insecure-local", "--requests-per-second", "0"]);
    send_initializes(server.address, count, "HTTP/1.1 200");
    let resident = resident_kib(&server);
    println!("{count} sessions were begun, {resident} KiB");
    assert!(resident < 256 << 10, "{resident} KiB after {count} sessions");
    assert!(session_count(&server) <= 1_100, "{}", session_count(&server));
    assert_eq!(
        server.post("", &initialize_request()).status,
        200,
        "a new one is let in for an old one"
    );
}

/// Sends `count` `initialize` requests without a token; asserts that each response contains `expected`.
fn send_initializes(server: SocketAddr, count: usize, expected: &str) {
    let request =
        HttpRequest::post("", &initialize_request()).without_header("Connection").to_bytes();
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    for _ in 0..count / PIPELINED_REQUESTS {
        stream.write_all(&request.repeat(PIPELINED_REQUESTS)).unwrap();
        let mut received = Vec::new();
        let mut part = vec![0; 64 << 10];
        while count_responses(&received, expected) < PIPELINED_REQUESTS {
            match stream.read(&mut part) {
                Ok(0) => panic!("hung up after {}", String::from_utf8_lossy(&received)),
                Ok(read) => received.extend_from_slice(&part[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("{error} after {}", String::from_utf8_lossy(&received)),
            }
        }
    }
}

fn count_responses(received: &[u8], expected: &str) -> usize {
    String::from_utf8_lossy(received).matches(expected).count()
}

fn session_count(server: &HttpServer) -> u64 {
    let page = server.send(&HttpRequest::get("/metrics")).body;
    let line = page.lines().find_map(|line| line.strip_prefix("adjutant_http_sessions "));
    line.unwrap_or_else(|| panic!("no sessions in {page}")).parse().unwrap()
}

fn resident_kib(server: &HttpServer) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
