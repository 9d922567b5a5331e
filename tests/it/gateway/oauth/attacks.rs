//! Hostile authorization servers, and third parties that interfere with an honest one.

use test_case::test_case;

use super::super::mock_http_server::{MockHttpServer, respond_streamable};
use super::*;
use crate::support::http::stateless_post;
use crate::support::text::mask;

/// Tries to sign in; asserts that nothing is opened, requested or stored. Returns the message.
fn refused_login(deviations: OAuthDeviations) -> String {
    let oauth = OAuthContext::new(OAuthDeviations { token_lifetimes: (HOUR, HOUR), ..deviations });
    let ended = oauth.start_login(["auth", "login", "far"]).wait_for_exit();
    assert_eq!(ended.status.code(), Some(1), "{}", stderr_of(&ended));
    assert!(ended.stdout.is_empty(), "no page is shown");
    assert_eq!(oauth.browser_arguments(), None, "nothing is handed to a browser");
    assert_eq!(
        (oauth.server.request_count("/register"), oauth.server.request_count("/token")),
        (0, 0)
    );
    assert!(oauth.credential_files().is_empty());
    let said = stderr_of(&ended);
    said.lines().find(|line| line.starts_with("error: ")).unwrap_or_default().to_owned()
}

#[test_case(&json!({ "authorization_endpoint": "file:///etc/passwd" }), "its `authorization_endpoint` is neither `http` nor `https`"; "a file")]
#[test_case(&json!({ "authorization_endpoint": "javascript:alert(1)" }), "its `authorization_endpoint` is neither `http` nor `https`"; "a script")]
#[test_case(&json!({ "authorization_endpoint": "http://169.254.169.254/" }), "its `authorization_endpoint` points into a network that the server itself is not in"; "link local")]
#[test_case(&json!({ "token_endpoint": "http://169.254.169.254/token" }), "its `token_endpoint` points into a network that the server itself is not in"; "token endpoint link local")]
#[test_case(&json!({ "token_endpoint": "http://10.0.0.1/token" }), "its `token_endpoint` points into a network that the server itself is not in"; "a private address")]
#[test_case(&json!({ "registration_endpoint": "http://192.168.0.1/" }), "its `registration_endpoint` points into a network that the server itself is not in"; "registration")]
#[test_case(&json!({ "token_endpoint": "http://login.example.com/token" }), "its `token_endpoint` is `http`: codes and tokens would go unprotected"; "plain http")]
#[test_case(&json!({ "code_challenge_methods_supported": ["plain"] }), "it does not say that it supports PKCE with S256, which MCP requires"; "no s256")]
#[test_case(&json!({ "code_challenge_methods_supported": null }), "it does not say that it supports PKCE with S256, which MCP requires"; "no challenge methods")]
#[test_case(&json!({ "issuer": "https://somebody.example" }), "it should come from `http://127.0.0.1:[PORT]/` and comes from `https://somebody.example`"; "another issuer")]
#[test_case(&json!({ "issuer": null }), "what it publishes about it has no `issuer`"; "no issuer")]
fn j5_metadata_that_points_elsewhere_is_refused(metadata: &Value, expected: &str) {
    let said =
        refused_login(OAuthDeviations { metadata: metadata.clone(), ..OAuthDeviations::default() });
    assert_eq!(mask(&said), format!("error: the sign-in of `far` is refused: {expected}"));
}

#[test_case("http://169.254.169.254/"; "link local")]
#[test_case("http://10.0.0.1/"; "private")]
#[test_case("file:///etc/"; "a file")]
fn j5_an_authorization_server_in_a_private_network_is_not_contacted(address: &str) {
    let begun = Instant::now();
    let said = refused_login(OAuthDeviations {
        resource: json!({ "authorization_servers": [address] }),
        ..OAuthDeviations::default()
    });
    let expected = format!(
        "error: the sign-in of `far` is refused: protected resource metadata at \
         http://127.0.0.1:[PORT]/.well-known/oauth-protected-resource/mcp names authorization servers {address}, \
         but none published usable metadata"
    );
    assert_eq!(mask(&said), expected);
    assert!(begun.elapsed() < Duration::from_secs(20), "nobody waited for it");
}

#[test]
fn j5_resource_metadata_of_another_server_is_rejected() {
    let resource = json!({ "resource": "https://mcp.example.com/mcp" });
    let said = refused_login(OAuthDeviations { resource, ..OAuthDeviations::default() });
    assert_eq!(
        mask(&said),
        "error: the sign-in of `far` is refused: Protected resource metadata resource mismatch: \
         reference 'http://127.0.0.1:[PORT]/mcp', permitted 'https://mcp.example.com/mcp'"
    );
}

#[test]
fn j5_a_code_of_another_issuer_is_refused() {
    let deviations = OAuthDeviations {
        issuer: Some("https://evil.example".to_owned()),
        token_lifetimes: (HOUR, HOUR),
        ..OAuthDeviations::default()
    };
    let oauth = OAuthContext::new(deviations);
    let mut login = oauth.start_login(["auth", "login", "far", "--no-browser"]);
    browse(&browse(&login.authorization_url()).1.unwrap());
    let ended = login.wait_for_exit();
    assert_eq!(ended.status.code(), Some(1));
    insta::assert_snapshot!(mask(&stderr_of(&ended)), @r"
    To sign in to `far`, open this page:
    If the browser runs on another machine, it ends on a page that cannot be opened: paste the address of that page here.
    error: the sign-in of `far` is refused: it should come from `http://127.0.0.1:[PORT]` and comes from `https://evil.example`
    ");
    assert_eq!(oauth.server.request_count("/token"), 0);
    assert!(oauth.credential_files().is_empty());
}

#[test]
fn j5_a_foreign_or_replayed_state_is_rejected() {
    let oauth = OAuthContext::new(OAuthDeviations {
        token_lifetimes: (HOUR, HOUR),
        ..OAuthDeviations::default()
    });
    let mut first = oauth.start_login(["auth", "login", "far", "--no-browser"]);
    let old = browse(&first.authorization_url()).1.unwrap();
    assert_eq!(browse(&old).0, 200);
    assert!(first.wait_for_exit().status.success());

    let mut login = oauth.start_login(["auth", "login", "far", "--no-browser"]);
    let back = browse(&login.authorization_url()).1.unwrap();
    let port = back.split_once("/callback").unwrap().0;
    let replayed = format!("{port}/callback{}", old.split_once("/callback").unwrap().1);
    assert_eq!(browse(&replayed).0, 400, "the state of an earlier sign-in");
    assert_eq!(browse(&format!("{port}/callback?code=x&state=guessed")).0, 400);
    assert_eq!(browse(&format!("{port}/callback?code=x")).0, 400);
    assert_eq!(browse(&format!("{port}/callback?error=access_denied&state=guessed")).0, 400);
    login.paste(&old);
    login.wait_for_output("belongs to another sign-in");
    assert_eq!(oauth.server.request_count("/token"), 1, "none of them was traded");
    // The honest answer is still accepted.
    assert_eq!(browse(&back).0, 200);
    let ended = login.wait_for_exit();
    assert!(ended.status.success(), "{}", stderr_of(&ended));
    assert_ne!(browse(&back).0, 200, "the port is closed");
}

#[test]
fn denying_the_sign_in_ends_the_login() {
    let oauth = OAuthContext::new(OAuthDeviations {
        token_lifetimes: (HOUR, HOUR),
        ..OAuthDeviations::default()
    });
    let mut login = oauth.start_login(["auth", "login", "far", "--no-browser"]);
    let back = browse(&login.authorization_url()).1.unwrap();
    let (port, state) =
        (back.split_once("/callback").unwrap().0, back.split("state=").nth(1).unwrap());
    browse(&format!("{port}/callback?error=access_denied&state={state}"));
    let ended = login.wait_for_exit();
    assert_eq!(ended.status.code(), Some(1));
    insta::assert_snapshot!(stderr_of(&ended), @r"
    To sign in to `far`, open this page:
    If the browser runs on another machine, it ends on a page that cannot be opened: paste the address of that page here.
    error: `far` did not grant the sign-in: access_denied
    ");
}

#[test]
fn j6_a_token_does_not_follow_a_redirect_to_another_origin() {
    let elsewhere = MockHttpServer::start(respond_streamable);
    let honest = OAuthContext::new(OAuthDeviations {
        token_lifetimes: (HOUR, HOUR),
        ..OAuthDeviations::default()
    });
    honest.sign_in();
    // Another server now has the same address: it gets the token, but must not be able to redirect it.
    let kept = honest.server.url();
    let OAuthContext { fixture, server } = honest;
    let address = kept.strip_prefix("http://").unwrap().split('/').next().unwrap().parse().unwrap();
    drop(server);
    let location = format!("location: {}\r\n", elsewhere.url("/mcp"));
    let moved = MockHttpServer::start_at(address, move |_, stream| {
        super::super::mock_http_server::respond(stream, "307 Temporary Redirect", &location, "");
    });
    let result = execute(&mut fixture.connect(), "far", "who", json!({}));
    assert_eq!(error_code(&result), "SERVER_UNAVAILABLE");
    assert!(!moved.requests().is_empty());
    assert!(elsewhere.requests().is_empty(), "{:?}", elsewhere.requests());
}

#[test]
fn j6_a_token_is_only_sent_to_the_address_it_was_issued_for() {
    let oauth = OAuthContext::new(OAuthDeviations {
        token_lifetimes: (HOUR, HOUR),
        ..OAuthDeviations::default()
    });
    oauth.sign_in();
    let other = MockHttpServer::start(respond_streamable);
    oauth.fixture.servers(&json!({ "far": { "url": other.url("/mcp") } }));
    let mut client = oauth.connect();
    assert_works(&mut client);
    assert!(other.requests().iter().all(|request| !request.headers.contains_key("authorization")));
}

#[test]
fn g3_a_server_that_rejects_every_token_gets_a_bounded_number_of_requests() {
    let oauth = OAuthContext::new(OAuthDeviations {
        token_lifetimes: (HOUR, HOUR),
        reject_all_tokens: true,
        ..OAuthDeviations::default()
    });
    let mut login = oauth.start_login(["auth", "login", "far", "--no-browser"]);
    assert_eq!(browse(&browse(&login.authorization_url()).1.unwrap()).0, 200);
    let ended = login.wait_for_exit();
    assert_eq!(ended.status.code(), Some(1), "a token that is not taken is no success");
    let mut client = oauth.connect();
    let before = oauth.server.requests().len();
    for _ in 0..20 {
        let result = execute(&mut client, "far", "who", json!({}));
        assert_eq!(
            result_text(&result),
            "SERVER_UNAVAILABLE: server `far` is unavailable: it refuses its sign-in. A person \
             must run `adjutant auth login far`."
        );
    }
    let asked = oauth.server.requests().len() - before;
    assert!(asked < 40, "{asked} requests for twenty calls");
}

#[test]
fn j6_the_token_of_a_client_is_never_forwarded() {
    let far = MockHttpServer::start(respond_streamable);
    let fixture = GatewayContext::new(&json!({ "far": { "url": far.url("/mcp") } }));
    let token = fixture.create_token("dev");
    let front = fixture.serve_http([]);
    let call = json!({ "name": "execute_tool", "arguments": { "server": "far", "tool": "who", "args": {} } });
    let answer = front.send(&stateless_post(&token, 1, "tools/call", call)).message();
    assert_eq!(result_text(&answer["result"]), "far {}", "{answer}");
    for request in far.requests() {
        assert!(!request.headers.contains_key("authorization"), "{request:?}");
        assert!(!format!("{request:?}").contains(&token), "{request:?}");
    }
}
