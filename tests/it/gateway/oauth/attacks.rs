//! Sign-in servers that mean harm, and strangers that meddle with an honest one.

use test_case::test_case;

use super::super::http_server::{HttpServer, streamable};
use super::*;
use crate::support::http::modern_post;

/// Tries to sign in; nothing may be opened, asked for or kept.
fn refused(ways: Ways) -> String {
    let desk = Desk::new(Ways { lives: (HOUR, HOUR), ..ways });
    let ended = desk.begin(["auth", "login", "far"]).end();
    assert_eq!(ended.status.code(), Some(1), "{}", said(&ended));
    assert!(ended.stdout.is_empty(), "no page is shown");
    assert_eq!(desk.opened(), None, "nothing is handed to a browser");
    assert_eq!((desk.server.asked("/register"), desk.server.asked("/token")), (0, 0));
    assert!(desk.kept().is_empty());
    let said = said(&ended);
    said.lines().find(|line| line.starts_with("error: ")).unwrap_or_default().to_owned()
}

#[test_case(&json!({ "authorization_endpoint": "file:///etc/passwd" }), "is neither `http` nor `https`"; "a file")]
#[test_case(&json!({ "authorization_endpoint": "javascript:alert(1)" }), "is neither `http` nor `https`"; "a script")]
#[test_case(&json!({ "authorization_endpoint": "http://169.254.169.254/" }), "points into a network"; "link local")]
#[test_case(&json!({ "token_endpoint": "http://169.254.169.254/token" }), "its `token_endpoint` points into a network"; "a token to the link")]
#[test_case(&json!({ "token_endpoint": "http://10.0.0.1/token" }), "points into a network"; "a private address")]
#[test_case(&json!({ "registration_endpoint": "http://192.168.0.1/" }), "points into a network"; "registration")]
#[test_case(&json!({ "token_endpoint": "http://login.example.com/token" }), "is `http`"; "unprotected")]
#[test_case(&json!({ "code_challenge_methods_supported": ["plain"] }), "PKCE with S256"; "no s256")]
#[test_case(&json!({ "code_challenge_methods_supported": null }), "PKCE with S256"; "silent about s256")]
#[test_case(&json!({ "issuer": "https://somebody.example" }), "somebody.example"; "another issuer")]
#[test_case(&json!({ "issuer": null }), "has no `issuer`"; "no issuer")]
fn j5_metadata_that_points_elsewhere_is_refused(metadata: &Value, expected: &str) {
    let said = refused(Ways { metadata: metadata.clone(), ..Ways::default() });
    assert!(said.contains(expected), "{said}");
}

#[test_case("http://169.254.169.254/"; "link local")]
#[test_case("http://10.0.0.1/"; "private")]
#[test_case("file:///etc/"; "a file")]
fn j5_an_authorization_server_inside_is_not_even_asked(address: &str) {
    let begun = Instant::now();
    let said = refused(Ways {
        resource: json!({ "authorization_servers": [address] }),
        ..Ways::default()
    });
    assert!(said.contains("the sign-in of `far` is refused"), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(20), "nobody waited for it");
}

#[test]
fn j5_a_server_cannot_speak_for_another() {
    let resource = json!({ "resource": "https://mcp.example.com/mcp" });
    let said = refused(Ways { resource, ..Ways::default() });
    assert!(said.contains("mismatch"), "{said}");
}

#[test]
fn j5_a_code_of_another_issuer_is_refused() {
    let ways = Ways {
        issuer: Some("https://evil.example".to_owned()),
        lives: (HOUR, HOUR),
        ..Ways::default()
    };
    let desk = Desk::new(ways);
    let mut login = desk.begin(["auth", "login", "far", "--no-browser"]);
    visit(&visit(&login.page()).1.unwrap());
    let ended = login.end();
    assert_eq!(ended.status.code(), Some(1));
    assert!(said(&ended).contains("comes from `https://evil.example`"), "{}", said(&ended));
    assert_eq!(desk.server.asked("/token"), 0);
    assert!(desk.kept().is_empty());
}

#[test]
fn j5_a_foreign_or_replayed_state_is_no_answer() {
    let desk = Desk::new(Ways { lives: (HOUR, HOUR), ..Ways::default() });
    let mut first = desk.begin(["auth", "login", "far", "--no-browser"]);
    let old = visit(&first.page()).1.unwrap();
    assert_eq!(visit(&old).0, 200);
    assert!(first.end().status.success());

    let mut login = desk.begin(["auth", "login", "far", "--no-browser"]);
    let back = visit(&login.page()).1.unwrap();
    let port = back.split_once("/callback").unwrap().0;
    let replayed = format!("{port}/callback{}", old.split_once("/callback").unwrap().1);
    assert_eq!(visit(&replayed).0, 400, "the state of an earlier sign-in");
    assert_eq!(visit(&format!("{port}/callback?code=x&state=guessed")).0, 400);
    assert_eq!(visit(&format!("{port}/callback?code=x")).0, 400);
    assert_eq!(visit(&format!("{port}/callback?error=access_denied&state=guessed")).0, 400);
    login.paste(&old);
    login.hear("belongs to another sign-in");
    assert_eq!(desk.server.asked("/token"), 1, "none of them was traded");
    // The honest answer still counts.
    assert_eq!(visit(&back).0, 200);
    let ended = login.end();
    assert!(ended.status.success(), "{}", said(&ended));
    assert_ne!(visit(&back).0, 200, "the port is closed");
}

#[test]
fn a_person_who_says_no_is_believed() {
    let desk = Desk::new(Ways { lives: (HOUR, HOUR), ..Ways::default() });
    let mut login = desk.begin(["auth", "login", "far", "--no-browser"]);
    let back = visit(&login.page()).1.unwrap();
    let (port, state) =
        (back.split_once("/callback").unwrap().0, back.split("state=").nth(1).unwrap());
    visit(&format!("{port}/callback?error=access_denied&state={state}"));
    let ended = login.end();
    assert_eq!(ended.status.code(), Some(1));
    assert!(
        said(&ended).contains("`far` did not grant the sign-in: access_denied"),
        "{}",
        said(&ended)
    );
}

#[test]
fn j6_a_token_does_not_follow_a_redirect_to_another_origin() {
    let elsewhere = HttpServer::start(streamable);
    let honest = Desk::new(Ways { lives: (HOUR, HOUR), ..Ways::default() });
    honest.sign_in();
    // The same address, now in other hands: whoever holds it gets the token, but nobody else.
    let kept = honest.server.url();
    let Desk { stage, server } = honest;
    let address = kept.strip_prefix("http://").unwrap().split('/').next().unwrap().parse().unwrap();
    drop(server);
    let location = format!("location: {}\r\n", elsewhere.url("/mcp"));
    let moved = HttpServer::start_at(address, move |_, stream| {
        super::super::http_server::respond(stream, "307 Temporary Redirect", &location, "");
    });
    let result = execute(&mut stage.connect(), "far", "who", json!({}));
    assert_eq!(code(&result), "SERVER_UNAVAILABLE");
    assert!(!moved.requests().is_empty());
    assert!(elsewhere.requests().is_empty(), "{:?}", elsewhere.requests());
}

#[test]
fn j6_a_token_belongs_to_one_address() {
    let desk = Desk::new(Ways { lives: (HOUR, HOUR), ..Ways::default() });
    desk.sign_in();
    let other = HttpServer::start(streamable);
    desk.stage.servers(&json!({ "far": { "url": other.url("/mcp") } }));
    let mut client = desk.connect();
    works(&mut client);
    assert!(other.requests().iter().all(|request| !request.headers.contains_key("authorization")));
}

#[test]
fn g3_a_server_that_is_never_content_is_asked_a_few_times_and_no_more() {
    let desk = Desk::new(Ways { lives: (HOUR, HOUR), never_content: true, ..Ways::default() });
    let mut login = desk.begin(["auth", "login", "far", "--no-browser"]);
    assert_eq!(visit(&visit(&login.page()).1.unwrap()).0, 200);
    let ended = login.end();
    assert_eq!(ended.status.code(), Some(1), "a token that is not taken is no success");
    let mut client = desk.connect();
    let before = desk.server.requests().len();
    for _ in 0..20 {
        let result = execute(&mut client, "far", "who", json!({}));
        assert!(text(&result).contains("it refuses its sign-in"), "{result}");
    }
    let asked = desk.server.requests().len() - before;
    assert!(asked < 40, "{asked} requests for twenty calls");
}

#[test]
fn j6_the_token_of_a_client_is_never_sent_on() {
    let far = HttpServer::start(streamable);
    let stage = Stage::new(&json!({ "far": { "url": far.url("/mcp") } }));
    let token = stage.context.token("dev");
    let front = stage.context.serve_http([]);
    let call = json!({ "name": "execute_tool", "arguments": { "server": "far", "tool": "who", "args": {} } });
    let answer = front.send(&modern_post(&token, 1, "tools/call", call)).message();
    assert_eq!(text(&answer["result"]), "far {}", "{answer}");
    for request in far.requests() {
        assert!(!request.headers.contains_key("authorization"), "{request:?}");
        assert!(!format!("{request:?}").contains(&token), "{request:?}");
    }
}
