//! The proxy to the model, driven by raw bytes on its socket.

use std::time::{Duration, Instant};

use adjutant::scripted_model::ScriptedModel;
use test_case::test_case;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::{REAL_KEY, SandboxContext, shell_context};

const BODY: &str =
    r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"SAY hello"}]}"#;

async fn connect(context: &SandboxContext) -> UnixStream {
    UnixStream::connect(context.proxy.socket()).await.unwrap()
}

fn post(extra: &str, body: &str) -> String {
    format!(
        "POST /v1/messages?beta=true HTTP/1.1\r\nHost: 127.0.0.1:8080\r\ncontent-type: application/json\r\n\
         x-api-key: dummy\r\nauthorization: Bearer dummy\r\n{extra}\r\n{body}"
    )
}

fn counted(body: &str) -> String {
    post(&format!("content-length: {}\r\n", body.len()), body)
}

/// Sends bytes and reads until `end` is in the answer or the proxy closes the connection.
async fn exchange(stream: &mut UnixStream, request: &str, end: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let reading = async {
        while !String::from_utf8_lossy(&answer).contains(end) {
            if stream.read_buf(&mut answer).await.unwrap_or(0) == 0 {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), reading).await.expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}

const END: &str = "\r\n0\r\n\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn the_real_key_and_headers_are_added_outside() {
    let Some(context) = shell_context() else { return };
    let mut stream = connect(&context).await;
    for _ in 0..2 {
        // The same connection twice.
        let answer = exchange(&mut stream, &counted(BODY), END).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("hello"), "{answer}");
    }
    let chunked = format!("{:x}\r\n{BODY}\r\n0\r\n\r\n", BODY.len());
    let answer =
        exchange(&mut stream, &post("Transfer-Encoding: chunked\r\n", &chunked), END).await;
    assert!(answer.contains("hello"), "{answer}");
    let requests = context.model.requests();
    assert_eq!(requests.len(), 3);
    for request in requests {
        assert_eq!(request.headers["x-api-key"], REAL_KEY);
        assert_eq!(request.headers["x-team"], "secret-team");
        assert!(!request.headers.contains_key("authorization"));
        assert_eq!(request.path, "/v1/messages?beta=true");
    }
}

#[test_case("GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n" => "403"; "other endpoint")]
#[test_case("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n" => "403"; "probe")]
#[test_case("POST /v1/../v1/messages HTTP/1.1\r\nHost: x\r\n\r\n" => "403"; "dots")]
#[test_case("POST http://evil/v1/messages HTTP/1.1\r\nHost: x\r\n\r\n" => "400"; "absolute")]
#[test_case("POST /v1/messages HTTP/1.1\nHost: x\n\n" => "400"; "bare line feeds")]
#[test_case("POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n" => "400"; "two lengths")]
#[test_case("POST /v1/messages HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;x=\n\r\na\r\n0\r\n\r\n" => "400"; "extension")]
#[test_case("POST /v1/messages HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n" => "400"; "chunk too long")]
#[test_case("POST /v1/messages HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n\r\n" => "400"; "trailers")]
#[test_case("POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n" => "400"; "huge")]
#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_not_for_the_model_are_refused(request: &'static str) -> String {
    let Some(context) = shell_context() else { return request_status(request) };
    let mut stream = connect(&context).await;
    let answer = exchange(&mut stream, request, "\r\n\r\n").await;
    assert!(context.model.all_requests().is_empty(), "nothing reached the model");
    answer.split(' ').nth(1).unwrap_or("nothing").to_owned()
}

/// Without a sandbox the test is skipped: it expects what it would see.
fn request_status(request: &str) -> String {
    let is_forbidden =
        ["GET /v1/models", "HEAD / ", "POST /v1/.."].iter().any(|p| request.starts_with(p));
    if is_forbidden { "403" } else { "400" }.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipelined_second_request_is_judged_like_the_first() {
    let Some(context) = shell_context() else { return };
    let mut stream = connect(&context).await;
    let both = format!("{}GET /v1/files HTTP/1.1\r\nHost: x\r\n\r\n", counted(BODY));
    let answer = exchange(&mut stream, &both, "403 Forbidden").await;
    assert!(answer.contains("200 OK") && answer.contains("403 Forbidden"), "{answer}");
    assert_eq!(context.model.all_requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_run_nothing_is_sent() {
    let Some(context) = shell_context() else { return };
    context.proxy.set_bound(false);
    let mut stream = connect(&context).await;
    let answer = exchange(&mut stream, &counted(BODY), "no run is active").await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    context.proxy.set_bound(true);
    let answer = exchange(&mut stream, &counted(BODY), END).await;
    assert!(answer.contains("hello"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn releasing_the_run_cuts_off_a_request() {
    let Some(context) = shell_context() else { return };
    context.model.set_delay(Duration::from_secs(30));
    let mut stream = connect(&context).await;
    stream.write_all(counted(BODY).as_bytes()).await.unwrap();
    wait_for_request(&context.model).await;
    let started = Instant::now();
    context.proxy.set_bound(false);
    assert_eq!(stream.read_u8().await.ok(), None);
    assert!(started.elapsed() < Duration::from_secs(5));
}

async fn wait_for_request(model: &ScriptedModel) {
    while model.all_requests().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
