//! Refresh of access tokens: before they expire, once for all processes, with a clear error when it is refused.

use std::process::Command;

use super::*;

#[test]
fn a_token_is_renewed_before_it_is_used_and_only_once() {
    let oauth = OAuthContext::new(OAuthDeviations {
        token_lifetimes: (Some(0), HOUR),
        ..OAuthDeviations::default()
    });
    oauth.sign_in();
    assert_eq!(oauth.server.renewals(), 1, "the first look at the server needed it");
    let mut client = oauth.connect();
    for _ in 0..3 {
        assert_works(&mut client);
    }
    assert_eq!(oauth.server.renewals(), 1);
    oauth.assert_no_secret_leaked();
}

#[test]
fn a_revoked_token_is_renewed_once() {
    let oauth = OAuthContext::new(OAuthDeviations {
        token_lifetimes: (HOUR, HOUR),
        ..OAuthDeviations::default()
    });
    oauth.sign_in();
    let mut client = oauth.connect();
    assert_works(&mut client);
    oauth.server.revoke();
    assert_works(&mut client);
    assert_eq!(oauth.server.renewals(), 1);
}

#[test]
fn a_refused_renewal_says_to_sign_in_again() {
    let oauth = OAuthContext::new(OAuthDeviations {
        token_lifetimes: (HOUR, HOUR),
        ..OAuthDeviations::default()
    });
    oauth.sign_in();
    let mut client = oauth.connect();
    assert_works(&mut client);
    oauth.server.revoke();
    oauth.server.refuse_renewals(true);
    let result = execute(&mut client, "far", "who", json!({}));
    assert_eq!(
        result_text(&result),
        "SERVER_UNAVAILABLE: server `far` is unavailable: its sign-in has ended: the server refused to renew it. \
         A person must run `adjutant auth login far`."
    );
    // The refresh is not tried again, and the tokens are deleted.
    for _ in 0..3 {
        assert_eq!(
            result_text(&execute(&mut client, "far", "who", json!({}))),
            "SERVER_UNAVAILABLE: server `far` is unavailable: its sign-in has ended: the server \
             refused to renew it. A person must run `adjutant auth login far`."
        );
    }
    assert_eq!(oauth.server.renewals(), 1);
    let kept = fs::read_to_string(&oauth.credential_files()[0]).unwrap();
    assert!(
        oauth.server.secrets().iter().all(|s| s.starts_with("client") || !kept.contains(s)),
        "{kept}"
    );
    let status = oauth.status();
    assert_eq!(status[0]["sign_in"]["state"], "ended");
    oauth.server.refuse_renewals(false);
    oauth.sign_in();
    assert_works(&mut client);
    oauth.assert_no_secret_leaked();
}

#[test]
fn j6_concurrent_renewals_by_several_processes_make_one_request() {
    let oauth = OAuthContext::new(OAuthDeviations {
        token_lifetimes: (HOUR, HOUR),
        slow_renewal: true,
        ..OAuthDeviations::default()
    });
    oauth.sign_in();
    let mut clients = [oauth.connect(), oauth.connect(), oauth.connect()];
    for client in &mut clients {
        assert_works(client);
    }
    oauth.server.revoke();
    let call = json!({ "name": "execute_tool",
        "arguments": { "agent_id": "dev", "server": "far", "tool": "who", "args": {} } });
    let begun: Vec<u64> =
        clients.iter_mut().map(|client| client.send_request("tools/call", call.clone())).collect();
    for (client, id) in clients.iter_mut().zip(begun) {
        let result = client.answer(id);
        assert_eq!(result_text(&result), "far {}", "{result}");
    }
    assert_eq!(oauth.server.renewals(), 1);
}

/// A fake `secret-tool`: the secret on stdin and stdout, attributes as arguments.
const FAKE_SECRET_TOOL: &str = "#!/bin/sh\nverb=$1; for id in \"$@\"; do :; done\ncase $verb in\n\
    store) cat > \"$HOME/ring-$id\";;\n\
    lookup) cat \"$HOME/ring-$id\" 2>/dev/null || exit 1;;\n\
    clear) rm -f \"$HOME/ring-$id\";;\nesac\n";

/// Adds the environment of a desktop with that keyring.
fn with_keyring(oauth: &OAuthContext, mut command: Command) -> Command {
    command.env("PATH", oauth.path()).env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere");
    command
}

/// A signed-in project with the tokens in that keyring.
fn signed_in_with_keyring() -> OAuthContext {
    let deviations =
        OAuthDeviations { token_lifetimes: (Some(0), HOUR), ..OAuthDeviations::default() };
    let oauth = OAuthContext::new(deviations).add_program("secret-tool", FAKE_SECRET_TOOL);
    let login = oauth.fixture.context.adjutant(["auth", "login", "far", "--no-browser"]);
    let mut login = Login::start(with_keyring(&oauth, login));
    assert_eq!(browse(&browse(&login.authorization_url()).1.unwrap()).0, 200);
    let ended = login.wait_for_exit();
    assert!(ended.status.success(), "{}", stderr_of(&ended));
    assert!(holds_secrets(&oauth), "the keyring has the tokens");
    oauth
}

/// Returns whether the keyring holds any secret.
fn holds_secrets(oauth: &OAuthContext) -> bool {
    let files = files_below(&oauth.fixture.context.home());
    files.iter().any(|path| path.to_string_lossy().contains("ring-"))
}

#[test]
fn tokens_are_stored_in_the_keyring_if_there_is_one() {
    let oauth = signed_in_with_keyring();
    let record = fs::read_to_string(&oauth.credential_files()[0]).unwrap();
    assert!(record.contains("\"keyring\"") && !record.contains("refresh-"), "{record}");
    let mut client = McpClient::connect(with_keyring(&oauth, oauth.command()));
    assert_works(&mut client);
    assert_eq!(oauth.server.renewals(), 1);
    let logout = oauth.fixture.context.adjutant(["auth", "logout", "far"]);
    assert!(with_keyring(&oauth, logout).status().unwrap().success());
    assert!(!holds_secrets(&oauth));
}

#[test]
fn logout_removes_tokens_from_a_keyring_that_was_disabled_since() {
    let oauth = signed_in_with_keyring();
    let logout = oauth.fixture.context.adjutant(["auth", "logout", "far"]);
    let output = with_keyring(&oauth, logout).env("ADJUTANT_KEYRING", "off").output().unwrap();
    assert!(output.status.success(), "{}", stderr_of(&output));
    assert!(!holds_secrets(&oauth), "the tokens are still in the keyring");
    assert!(oauth.credential_files().is_empty());
}

#[test]
fn logout_fails_if_the_keyring_with_the_tokens_is_unreachable() {
    let oauth = signed_in_with_keyring();
    let output = oauth.fixture.context.run(["auth", "logout", "far"]);
    assert_eq!(output.status.code(), Some(4), "{}", stderr_of(&output));
    assert_eq!(
        stderr_of(&output),
        "error: STORE_UNAVAILABLE: the sign-in is kept in a keyring, and there is none here\n"
    );
    assert_eq!(
        oauth.credential_files().len(),
        1,
        "the sign-in is not forgotten while its tokens remain"
    );
}

#[test]
fn a_keyring_that_prompts_for_input_does_not_block_the_login() {
    let oauth = OAuthContext::new(OAuthDeviations {
        token_lifetimes: (HOUR, HOUR),
        ..OAuthDeviations::default()
    })
    .add_program("secret-tool", "#!/bin/sh\nexec sleep 600\n");
    let mut login = oauth.fixture.context.adjutant(["auth", "login", "far", "--no-browser"]);
    login.env("PATH", oauth.path()).env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere");
    let begun = Instant::now();
    let mut login = Login::start(login);
    assert_eq!(browse(&browse(&login.authorization_url()).1.unwrap()).0, 200);
    let ended = login.wait_for_exit();
    assert!(ended.status.success(), "{}", stderr_of(&ended));
    assert!(begun.elapsed() < Duration::from_mins(1), "{:?}", begun.elapsed());
    assert_eq!(oauth.status()[0]["sign_in"]["kept_in"], "file");
}
