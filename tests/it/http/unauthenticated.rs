//! Many who begin a session: without a token they cost nothing, with the door open they are bounded.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::{project, refusals};
use crate::support::http::{HttpServer, Request, initialize};

/// How many requests are on their way at once.
const AT_ONCE: usize = 25;

#[test]
fn j4_five_thousand_strangers_cost_no_session_and_few_lines() {
    strangers(5_000);
}

#[test]
#[ignore = "takes a minute of a whole machine"]
fn j4_a_hundred_thousand_strangers_cost_no_session_and_few_lines() {
    strangers(100_000);
}

#[test]
fn j4_sessions_of_an_open_door_are_bounded() {
    sessions(2_000);
}

fn strangers(count: usize) {
    let context = project();
    let token = context.token("bot");
    let server = context.serve_http([]);
    knock(&server, AT_ONCE, "HTTP/1.1 401");
    let before = resident_kib(&server);
    knock(&server, count, "HTTP/1.1 401");
    let grown = resident_kib(&server).saturating_sub(before);
    println!("{count} strangers cost {grown} KiB");
    assert!(grown < 8 << 10, "{grown} KiB for {count} strangers");
    let lines = refusals(&context);
    assert!(lines.iter().all(|line| line == "NO_TOKEN") && lines.len() < 30, "{lines:?}");
    assert_eq!(sessions_of(&server), 0);
    assert_eq!(server.post(&token, &initialize()).status, 200);
}

fn sessions(count: usize) {
    let context = project();
    let server = context.serve_http(["--insecure-local", "--requests-per-second", "0"]);
    knock(&server, count, "HTTP/1.1 200");
    let resident = resident_kib(&server);
    println!("{count} sessions were begun, {resident} KiB");
    assert!(resident < 256 << 10, "{resident} KiB after {count} sessions");
    assert!(sessions_of(&server) <= 1_100, "{}", sessions_of(&server));
    assert_eq!(server.post("", &initialize()).status, 200, "a new one is let in for an old one");
}

/// Begins so many sessions without a token; each is answered with `expected`.
fn knock(server: &HttpServer, count: usize, expected: &str) {
    let request = Request::post("", &initialize()).without("Connection").bytes();
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    for _ in 0..count / AT_ONCE {
        stream.write_all(&request.repeat(AT_ONCE)).unwrap();
        let mut heard = Vec::new();
        let mut part = vec![0; 64 << 10];
        while seen(&heard, expected) < AT_ONCE {
            match stream.read(&mut part) {
                Ok(0) => panic!("hung up after {}", String::from_utf8_lossy(&heard)),
                Ok(read) => heard.extend_from_slice(&part[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("{error} after {}", String::from_utf8_lossy(&heard)),
            }
        }
    }
}

fn seen(heard: &[u8], expected: &str) -> usize {
    String::from_utf8_lossy(heard).matches(expected).count()
}

fn sessions_of(server: &HttpServer) -> u64 {
    let page = server.send(&Request::get("/metrics")).body;
    let line = page.lines().find_map(|line| line.strip_prefix("adjutant_http_sessions "));
    line.unwrap_or_else(|| panic!("no sessions in {page}")).parse().unwrap()
}

fn resident_kib(server: &HttpServer) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
