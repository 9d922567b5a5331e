//! Tokens over time: renewed ahead of their end, once for all, and told when they are over for good.

use super::*;

#[test]
fn a_token_is_renewed_before_it_is_used_and_only_once() {
    let desk = Desk::new(Ways { lives: (Some(0), HOUR), ..Ways::default() });
    desk.sign_in();
    assert_eq!(desk.server.renewals(), 1, "the first look at the server needed it");
    let mut client = desk.connect();
    for _ in 0..3 {
        works(&mut client);
    }
    assert_eq!(desk.server.renewals(), 1);
    desk.nothing_told();
}

#[test]
fn a_token_that_the_server_took_back_is_renewed_once() {
    let desk = Desk::new(Ways { lives: (HOUR, HOUR), ..Ways::default() });
    desk.sign_in();
    let mut client = desk.connect();
    works(&mut client);
    desk.server.revoke();
    works(&mut client);
    assert_eq!(desk.server.renewals(), 1);
}

#[test]
fn a_refused_renewal_says_to_sign_in_again() {
    let desk = Desk::new(Ways { lives: (HOUR, HOUR), ..Ways::default() });
    desk.sign_in();
    let mut client = desk.connect();
    works(&mut client);
    desk.server.revoke();
    desk.server.refuse_renewals(true);
    let result = execute(&mut client, "far", "who", json!({}));
    assert_eq!(
        text(&result),
        "SERVER_UNAVAILABLE: server `far` is unavailable: its sign-in has ended: the server refused to renew it. \
         A person must run `adjutant auth login far`."
    );
    // It is not asked again, and the tokens are gone.
    for _ in 0..3 {
        assert!(text(&execute(&mut client, "far", "who", json!({}))).contains("auth login far`"));
    }
    assert_eq!(desk.server.renewals(), 1);
    let kept = fs::read_to_string(&desk.kept()[0]).unwrap();
    assert!(
        desk.server.secrets().iter().all(|s| s.starts_with("client") || !kept.contains(s)),
        "{kept}"
    );
    let status = desk.status();
    assert_eq!(status[0]["state"], "ended");
    desk.server.refuse_renewals(false);
    desk.sign_in();
    works(&mut client);
    desk.nothing_told();
}

#[test]
fn j6_two_processes_that_renew_at_once_make_one_renewal() {
    let desk = Desk::new(Ways { lives: (HOUR, HOUR), slow_renewal: true, ..Ways::default() });
    desk.sign_in();
    let mut clients = [desk.connect(), desk.connect(), desk.connect()];
    for client in &mut clients {
        works(client);
    }
    desk.server.revoke();
    let call = json!({ "name": "execute_tool",
        "arguments": { "agent_id": "dev", "server": "far", "tool": "who", "args": {} } });
    let begun: Vec<u64> =
        clients.iter_mut().map(|client| client.begin("tools/call", call.clone())).collect();
    for (client, id) in clients.iter_mut().zip(begun) {
        let result = client.answer(id);
        assert_eq!(text(&result), "far {}", "{result}");
    }
    assert_eq!(desk.server.renewals(), 1);
}

#[test]
fn tokens_lie_in_the_keyring_where_there_is_one() {
    // As libsecret's own program behaves: the secret on stdin and stdout, attributes as arguments.
    let keyring = "#!/bin/sh\nverb=$1; for id in \"$@\"; do :; done\ncase $verb in\n\
        store) cat > \"$HOME/ring-$id\";;\n\
        lookup) cat \"$HOME/ring-$id\" 2>/dev/null || exit 1;;\n\
        clear) rm -f \"$HOME/ring-$id\";;\nesac\n";
    let desk = Desk::new(Ways { lives: (Some(0), HOUR), ..Ways::default() })
        .program("secret-tool", keyring);
    let with_desktop = |mut command: std::process::Command| {
        command.env("PATH", desk.path()).env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere");
        command
    };
    let login = desk.stage.context.adjutant(["auth", "login", "far", "--no-browser"]);
    let mut login = Login::start(with_desktop(login));
    assert_eq!(visit(&visit(&login.page()).1.unwrap()).0, 200);
    let ended = login.end();
    assert!(ended.status.success(), "{}", said(&ended));
    let record = fs::read_to_string(&desk.kept()[0]).unwrap();
    assert!(record.contains("\"keyring\"") && !record.contains("refresh-"), "{record}");
    let mut client = McpClient::connect(with_desktop(desk.stage.command()));
    works(&mut client);
    assert_eq!(desk.server.renewals(), 1);
    let logout = desk.stage.context.adjutant(["auth", "logout", "far"]);
    assert!(with_desktop(logout).status().unwrap().success());
    let left = files_below(&desk.stage.context.home());
    assert!(!left.iter().any(|path| path.to_string_lossy().contains("ring-")), "{left:?}");
}

#[test]
fn a_keyring_that_waits_for_a_person_holds_nobody_up() {
    let desk = Desk::new(Ways { lives: (HOUR, HOUR), ..Ways::default() })
        .program("secret-tool", "#!/bin/sh\nexec sleep 600\n");
    let mut login = desk.stage.context.adjutant(["auth", "login", "far", "--no-browser"]);
    login.env("PATH", desk.path()).env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere");
    let begun = Instant::now();
    let mut login = Login::start(login);
    assert_eq!(visit(&visit(&login.page()).1.unwrap()).0, 200);
    let ended = login.end();
    assert!(ended.status.success(), "{}", said(&ended));
    assert!(begun.elapsed() < Duration::from_mins(1), "{:?}", begun.elapsed());
    assert_eq!(desk.status()[0]["kept_in"], "file");
}
