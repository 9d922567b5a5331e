//! OAuth sign-in to servers on the network, against an authorization server on 127.0.0.1.

mod attacks;
mod golden_stores;
mod oauth_server;
mod real_keyring;
mod tokens;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::oauth_server::{OAuthDeviations, OAuthServer, browse};
use super::{GatewayContext, error_code, execute};
use crate::support::fake_claude::fake_claude;
use crate::support::mcp::{McpClient, result_text};
use crate::support::wait::wait_until;

const HOUR: Option<u64> = Some(3_600);

/// A project whose gateway has one server, `far`, that requires a sign-in.
struct OAuthContext {
    fixture: GatewayContext,
    server: OAuthServer,
}

impl Deref for OAuthContext {
    type Target = GatewayContext;

    fn deref(&self) -> &Self::Target {
        &self.fixture
    }
}

impl OAuthContext {
    fn new(deviations: OAuthDeviations) -> Self {
        Self::with(deviations, &json!({}))
    }

    /// A project with more fields in the server's entry.
    fn with(deviations: OAuthDeviations, more: &Value) -> Self {
        let server = OAuthServer::start(deviations);
        let mut entry = json!({ "url": server.url() });
        for (key, value) in more.as_object().unwrap() {
            entry[key] = value.clone();
        }
        let fixture = GatewayContext::new(&json!({ "far": entry }));
        // A browser that logs its arguments; tests with `--no-browser` check that it was not started.
        let browser = "#!/bin/sh\nprintf '%s\\n' \"$#\" \"$@\" >> \"$HOME/browser\"\n";
        Self { fixture, server }.add_program("xdg-open", browser)
    }

    /// Adds a program that precedes those of the system in `PATH`.
    fn add_program(self, name: &str, text: &str) -> Self {
        let folder = self.bin_dir();
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(name), text).unwrap();
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        self
    }

    fn bin_dir(&self) -> PathBuf {
        self.fixture.context.home().join("bin")
    }

    fn path(&self) -> String {
        format!("{}:{}", self.bin_dir().display(), std::env::var("PATH").unwrap())
    }

    fn home(&self, file: &str) -> PathBuf {
        self.fixture.context.home().join(file)
    }

    /// Arguments of the browser: their count, then the arguments.
    fn browser_arguments(&self) -> Option<Vec<String>> {
        let text = fs::read_to_string(self.home("browser")).ok()?;
        Some(text.lines().map(str::to_owned).collect())
    }

    fn start_login<const N: usize>(&self, arguments: [&str; N]) -> Login {
        let mut command = self.fixture.context.adjutant(arguments);
        command.env("PATH", self.path()).env("RUST_LOG", "trace");
        Login::start(command)
    }

    /// Signs in without a browser: requests the authorization page and follows its redirect to the callback.
    fn sign_in(&self) {
        self.sign_in_as(["auth", "login", "far", "--no-browser"]);
    }

    fn sign_in_as<const N: usize>(&self, arguments: [&str; N]) {
        let mut login = self.start_login(arguments);
        let (_, back) = browse(&login.authorization_url());
        assert_eq!(browse(&back.unwrap()).0, 200);
        let ended = login.wait_for_exit();
        assert!(ended.status.success(), "{}", stderr_of(&ended));
    }

    /// Connects to the gateway, which logs at level `trace` into a file.
    fn connect(&self) -> McpClient {
        let log = File::options().append(true).create(true).open(self.home("log")).unwrap();
        let mut command = self.fixture.command();
        command.env("PATH", self.path()).env("RUST_LOG", "trace");
        McpClient::connect_logging(command, log)
    }

    /// Files of the credential store.
    fn credential_files(&self) -> Vec<PathBuf> {
        let folder = self.home(".local/share/adjutant/sign-in");
        let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        files.filter(|path| path.extension().is_some_and(|end| end == "json")).collect()
    }

    /// Asserts that no token and no code is in the project, the log or the audit log.
    fn assert_no_secret_leaked(&self) {
        let mut places = files_below(&self.fixture.root());
        places.push(self.home("log"));
        for file in places {
            let text = String::from_utf8_lossy(&fs::read(&file).unwrap_or_default()).into_owned();
            for secret in self.server.secrets() {
                // A client id is not secret.
                let told = !secret.starts_with("client") && text.contains(&secret);
                assert!(!told, "{} tells {secret}", file.display());
            }
        }
    }

    fn status(&self) -> Value {
        let output = self.fixture.context.run(["auth", "status", "--json"]);
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

fn assert_works(client: &mut McpClient) {
    let result = execute(client, "far", "who", json!({}));
    assert_eq!(result_text(&result), "far {}", "{result}");
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// A running `adjutant auth login`.
struct Login {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
    stderr_text: String,
}

impl Login {
    fn start(mut command: std::process::Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { child, stdin, stdout, stderr, stderr_text: String::new() }
    }

    /// URL of the page that a person must open.
    fn authorization_url(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        if line.is_empty() {
            self.stderr.read_to_string(&mut self.stderr_text).unwrap();
            panic!("no page: {}", self.stderr_text);
        }
        line.trim().to_owned()
    }

    /// Waits until the output contains these words.
    fn wait_for_output(&mut self, words: &str) {
        while !self.stderr_text.contains(words) {
            assert_ne!(
                self.stderr.read_line(&mut self.stderr_text).unwrap(),
                0,
                "{}",
                self.stderr_text
            );
        }
    }

    fn paste(&mut self, text: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{text}").unwrap();
    }

    /// Waits for the exit; kills a login that still waits, which fails the test.
    fn wait_for_exit(mut self) -> Output {
        drop(self.stdin.take());
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.child.try_wait().unwrap().is_none() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        let late = self.child.try_wait().unwrap().is_none();
        self.child.kill().unwrap();
        assert!(!late, "the sign-in still waits");
        let mut stdout = Vec::new();
        self.stdout.read_to_end(&mut stdout).unwrap();
        self.stderr.read_to_string(&mut self.stderr_text).unwrap();
        let stderr = self.stderr_text.into_bytes();
        Output { status: self.child.wait().unwrap(), stdout, stderr }
    }
}

fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_server_that_needs_a_sign_in_reports_it_at_once_and_works_after_login() {
    let oauth = OAuthContext::new(OAuthDeviations {
        token_lifetimes: (HOUR, HOUR),
        ..OAuthDeviations::default()
    });
    let mut client = oauth.connect();
    let begun = Instant::now();
    let result = execute(&mut client, "far", "who", json!({}));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(
        result_text(&result),
        "SERVER_UNAVAILABLE: server `far` is unavailable: it asks for a sign-in. A person must run `adjutant auth login far`."
    );
    // The back-off between tries grows, but the answer stays the same however often the server is called.
    for _ in 0..5 {
        assert_eq!(
            result_text(&execute(&mut client, "far", "who", json!({}))),
            "SERVER_UNAVAILABLE: server `far` is unavailable: it asks for a sign-in. A person \
             must run `adjutant auth login far`."
        );
    }
    assert_eq!(oauth.status()[0]["sign_in"]["state"], "not_signed_in");

    oauth.sign_in();
    assert_works(&mut client);
    assert_eq!(oauth.browser_arguments(), None, "no browser was wanted");
    let status = oauth.status();
    let sign_in = &status[0]["sign_in"];
    assert_eq!((&sign_in["state"], &sign_in["kept_in"]), (&json!("signed_in"), &json!("file")));

    // A new process does not need a new sign-in.
    drop(client);
    assert_works(&mut oauth.connect());
    assert_eq!(
        (oauth.server.request_count("/authorize"), oauth.server.request_count("/token")),
        (1, 1)
    );
    oauth.assert_no_secret_leaked();
}

#[test]
fn j6_stored_tokens_are_private_and_outside_the_project() {
    let oauth = OAuthContext::new(OAuthDeviations {
        token_lifetimes: (HOUR, HOUR),
        ..OAuthDeviations::default()
    });
    oauth.sign_in();
    let kept = oauth.credential_files();
    assert_eq!(kept.len(), 1);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&kept[0]), mode(kept[0].parent().unwrap())), (0o600, 0o700));
    oauth.assert_no_secret_leaked();
    let status = String::from_utf8(oauth.fixture.context.run(["auth", "status"]).stdout).unwrap();
    assert_eq!(
        status,
        "far: signed in; renews itself; scopes tools offline_access; kept in the file\n"
    );
    let forgotten = oauth.fixture.context.run(["auth", "logout", "far"]);
    assert!(forgotten.status.success(), "{}", stderr_of(&forgotten));
    assert!(oauth.credential_files().is_empty());
    let again = oauth.fixture.context.run(["auth", "logout", "far"]);
    assert_eq!(again.status.code(), Some(3));
}

#[test]
fn the_browser_gets_one_url_and_is_started_without_a_shell() {
    let oauth = OAuthContext::new(OAuthDeviations {
        token_lifetimes: (HOUR, HOUR),
        ..OAuthDeviations::default()
    });
    let mut login = oauth.start_login(["auth", "login", "far"]);
    let page = login.authorization_url();
    let opened =
        wait_until("the browser", || oauth.browser_arguments().filter(|words| words.len() == 2));
    assert_eq!(opened, ["1".to_owned(), page.clone()]);
    assert_eq!(browse(&browse(&page).1.unwrap()).0, 200);
    let ended = login.wait_for_exit();
    assert!(ended.status.success());
    insta::assert_snapshot!(stderr_of(&ended), @r"
    To sign in to `far`, open this page:
    Signed in to `far`, which offers 1 tool.
    ");
}

#[test]
fn the_code_can_be_pasted_without_a_browser() {
    let oauth = OAuthContext::new(OAuthDeviations {
        token_lifetimes: (HOUR, HOUR),
        ..OAuthDeviations::default()
    });
    for whole in [true, false] {
        let mut login = oauth.start_login(["auth", "login", "far", "--no-browser"]);
        let back = browse(&login.authorization_url()).1.unwrap();
        let code = back.split("code=").nth(1).unwrap().split('&').next().unwrap();
        login.paste(if whole { &back } else { code });
        let ended = login.wait_for_exit();
        assert!(ended.status.success(), "{}", stderr_of(&ended));
    }
    assert_works(&mut oauth.connect());
}

#[test]
fn agents_sign_in_separately_if_the_entry_says_so() {
    let more = json!({ "auth": { "isolation": "agent" } });
    let oauth = OAuthContext::with(
        OAuthDeviations { token_lifetimes: (HOUR, HOUR), ..OAuthDeviations::default() },
        &more,
    );
    let everything = json!({ "allow": { "servers": ["*"] } });
    oauth.fixture.rules(&json!({ "agents": { "dev": everything, "ops": everything } }).to_string());
    let without_agent = oauth.fixture.context.run(["auth", "login", "far", "--no-browser"]);
    assert_eq!(without_agent.status.code(), Some(2));
    assert_eq!(
        stderr_of(&without_agent),
        "error: every agent signs in to `far` by itself: say which with `--agent AGENT`\n"
    );
    oauth.sign_in_as(["auth", "login", "far", "--no-browser", "--agent", "dev"]);
    let mut client = oauth.connect();
    assert_works(&mut client);
    let other = json!({ "agent_id": "ops", "server": "far", "tool": "who", "args": {} });
    let result = client.call_tool("execute_tool", other.clone());
    assert!(result_text(&result).ends_with("`adjutant auth login far --agent ops`."), "{result}");
    oauth.sign_in_as(["auth", "login", "far", "--no-browser", "--agent", "ops"]);
    assert_eq!(result_text(&client.call_tool("execute_tool", other)), "far {}");
    let tokens = oauth
        .server
        .requests()
        .into_iter()
        .filter(|request| request.body["method"] == "tools/call");
    let mut tokens: Vec<String> = tokens.map(|r| r.headers["authorization"].clone()).collect();
    tokens.dedup();
    assert_eq!(tokens.len(), 2, "each with its own: {tokens:?}");
}

#[test]
fn a_preregistered_client_is_used_and_its_secret_is_never_stored() {
    let client = ("by-hand".to_owned(), "s3cret-of-the-client".to_owned());
    let auth = json!({ "client_id": "${CLIENT}", "client_secret": "${CLIENT_SECRET}", "scopes": ["a", "b"] });
    let deviations = OAuthDeviations {
        client: Some(client),
        token_lifetimes: (Some(0), HOUR),
        ..OAuthDeviations::default()
    };
    let oauth = OAuthContext::with(deviations, &json!({ "auth": auth }));
    let mut command = oauth.fixture.context.adjutant(["auth", "login", "far", "--no-browser"]);
    command.env("CLIENT", "by-hand").env("CLIENT_SECRET", "s3cret-of-the-client");
    let mut login = Login::start(command);
    let page = login.authorization_url();
    let asked = oauth_server::decode_form(page.split_once('?').unwrap().1);
    assert_eq!(
        (asked["client_id"].as_str(), asked["scope"].as_str()),
        ("by-hand", "a b offline_access")
    );
    assert_eq!(browse(&browse(&page).1.unwrap()).0, 200);
    let ended = login.wait_for_exit();
    assert!(ended.status.success(), "{}", stderr_of(&ended));
    assert_eq!(oauth.server.request_count("/register"), 0);
    // The first token expires at once, so the client secret is also needed for the refresh.
    assert_eq!(oauth.server.renewals(), 1);
    for file in oauth.credential_files() {
        assert!(!fs::read_to_string(file).unwrap().contains("s3cret-of-the-client"));
    }
}

#[test]
fn an_agents_own_server_uses_the_sign_in_of_that_agent() {
    let oauth = OAuthContext::new(OAuthDeviations {
        token_lifetimes: (HOUR, HOUR),
        ..OAuthDeviations::default()
    });
    let server = format!("mcp_servers:\n  - name: own\n    url: {}\n", oauth.server.url());
    let agent =
        format!("---\nname: clerk\ndescription: Files things\n{server}---\nYou file things.\n");
    oauth.agent("clerk", &agent);
    let mut run = oauth.fixture.context.adjutant(["run", "clerk", "file it"]);
    let ran = run.env("ADJUTANT_CLAUDE", fake_claude()).output().unwrap();
    let told = stderr_of(&ran);
    assert!(told.contains("adjutant auth login own --agent clerk"), "{told}");
    oauth.sign_in_as(["auth", "login", "own", "--no-browser", "--agent", "clerk"]);
    let status = oauth.status();
    let own = status.as_array().unwrap().iter().find(|line| line["server"] == "own").unwrap();
    assert_eq!((&own["agent"], &own["sign_in"]["state"]), (&json!("clerk"), &json!("signed_in")));
}

#[test]
fn a_server_that_needs_no_sign_in_says_so() {
    let open =
        super::mock_http_server::MockHttpServer::start(super::mock_http_server::respond_streamable);
    let fixture = GatewayContext::new(
        &json!({ "open": { "url": open.url("/mcp") }, "here": { "command": "x" },
        "keyed": { "url": open.url("/mcp"), "headers": { "authorization": "Bearer x" } } }),
    );
    for (server, expected) in [
        ("open", "`open` asks for no sign-in: it lets us in as we are"),
        ("here", "`here` asks for no sign-in: it is a program on this machine"),
        (
            "keyed",
            "`keyed` asks for no sign-in: its entry has an `Authorization` header of its own",
        ),
        ("oppen", "`.mcp.json` has no server `oppen`: did you mean `open`?"),
    ] {
        let ended = fixture.context.run(["auth", "login", server, "--no-browser"]);
        assert_eq!(stderr_of(&ended).trim(), format!("error: {expected}"));
    }
}
