//! Slow HTTP clients and callers above their run limit do not affect other clients.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::project;
use crate::support::fake_claude::fake_claude;
use crate::support::http::{HttpRequest, HttpServer, initialize_request, send_to, stateless_post};
use crate::support::wait::wait_until;

/// Opens `each` connections with half of the headers, and `each` with the headers and 10 bytes of the body.
fn open_incomplete_requests(server: &HttpServer, token: &str, each: usize) -> Vec<TcpStream> {
    let whole = HttpRequest::post(token, &initialize_request()).to_bytes();
    let body = whole.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    let halves = [&whole[..body / 2], &whole[..body + 10]];
    let begin = |half: &[u8]| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.write_all(half).unwrap();
        stream
    };
    (0..each).flat_map(|_| halves.map(begin)).collect()
}

#[test]
fn j4_slow_headers_and_bodies_do_not_delay_other_clients() {
    let context = project();
    let token = context.create_token("bot");
    let server = context.serve_http([]);
    let mut slow = open_incomplete_requests(&server, &token, 150);
    let begun = Instant::now();
    for _ in 0..20 {
        assert_eq!(server.post(&token, &initialize_request()).status, 200);
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    // A slow client that completes its request in time is served.
    let whole = HttpRequest::post(&token, &initialize_request()).to_bytes();
    let mut late = slow.pop().unwrap();
    let body = whole.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    late.write_all(&whole[body + 10..]).unwrap();
    let mut first = [0; 12];
    late.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
}

#[test]
#[ignore = "takes a minute: that is how long a head may take"]
fn j4_slow_headers_and_bodies_time_out() {
    let context = project();
    let token = context.create_token("bot");
    let server = context.serve_http([]);
    let begun = Instant::now();
    for mut stream in open_incomplete_requests(&server, &token, 1) {
        stream.set_read_timeout(Some(Duration::from_secs(90))).unwrap();
        let mut received = String::new();
        stream.read_to_string(&mut received).unwrap();
        assert!(!received.contains("200 OK"), "{received}");
    }
    assert!(begun.elapsed() > Duration::from_secs(25), "too hasty: {:?}", begun.elapsed());
}

#[test]
fn a_caller_with_too_many_runs_is_told_when_to_retry() {
    let context = project();
    let (bot, agent) = (context.create_token("bot"), "allowed_callers: [bot, ci]\n");
    let ci = context.create_token("ci");
    context.agent("both", &format!("---\nname: both\ndescription: Helps\n{agent}---\nHelp.\n"));
    let mut command = context.adjutant(["serve", "--http", "127.0.0.1:0", "--runs-at-once", "1"]);
    command.env("ADJUTANT_CLAUDE", fake_claude());
    let server = HttpServer::start(command);
    let tasks = |prompts: &[&str]| -> Value {
        prompts.iter().map(|text| json!({ "agent_name": "both", "prompt": text })).collect()
    };
    let address = server.address;
    let run = move |token: &str, prompts: &[&str]| {
        let arguments = json!({ "tasks": tasks(prompts) });
        let params = json!({ "name": "run_subagents", "arguments": arguments });
        let answer = send_to(address, &stateless_post(token, 1, "tools/call", params)).message();
        answer["result"]["structuredContent"]["results"].clone()
    };
    // The first run lasts until the second has been rejected and another caller has been served.
    let held = std::thread::scope(|scope| {
        let held = scope.spawn(|| run(&bot, &["FAKE sleep 2", "one too many"]));
        wait_until("the first run", || context.events_named("RunStarted").pop());
        let other = run(&ci, &["FAKE result for another"]);
        assert_eq!(other[0]["result"], "for another", "{other}");
        held.join().unwrap()
    });
    assert_eq!(held[0].get("error"), None, "{held}");
    assert_eq!(
        held[1]["error"],
        json!({
            "code": "TOO_MANY_RUNS",
            "message": "this caller has 1 run going on, as many as it may have at once",
            "help": "try again as soon as one of them has answered",
        })
    );
    assert_eq!(run(&bot, &["FAKE result again"])[0]["result"], "again", "the place is free");
}
