//! Signing in to servers on the network, against a sign-in server of our own on the loopback.

#[path = "oauth/attacks.rs"]
mod attacks;
#[path = "oauth/oauth_server.rs"]
mod oauth_server;
#[path = "oauth/real_keyring.rs"]
mod real_keyring;
#[path = "oauth/tokens.rs"]
mod tokens;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::oauth_server::{OAuthServer, Ways, visit};
use super::{Stage, code, execute, until};
use crate::support::fake::fake_claude;
use crate::support::mcp::{McpClient, text};

const HOUR: Option<u64> = Some(3_600);

/// A gateway in front of a server that wants a sign-in, named `far`.
struct Desk {
    stage: Stage,
    server: OAuthServer,
}

impl Desk {
    fn new(ways: Ways) -> Self {
        Self::with(ways, &json!({}))
    }

    /// With more in the server's entry.
    fn with(ways: Ways, more: &Value) -> Self {
        let server = OAuthServer::start(ways);
        let mut entry = json!({ "url": server.url() });
        for (key, value) in more.as_object().unwrap() {
            entry[key] = value.clone();
        }
        let stage = Stage::new(&json!({ "far": entry }));
        // A browser that notes what it is given; where a test wants none, it must stay unused.
        let browser = "#!/bin/sh\nprintf '%s\\n' \"$#\" \"$@\" >> \"$HOME/browser\"\n";
        Self { stage, server }.program("xdg-open", browser)
    }

    /// A program that is found before the system's.
    fn program(self, name: &str, text: &str) -> Self {
        let folder = self.programs();
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(name), text).unwrap();
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        self
    }

    fn programs(&self) -> PathBuf {
        self.stage.context.home().join("bin")
    }

    fn path(&self) -> String {
        format!("{}:{}", self.programs().display(), std::env::var("PATH").unwrap())
    }

    fn home(&self, file: &str) -> PathBuf {
        self.stage.context.home().join(file)
    }

    /// What the browser was given: how many words, and the words.
    fn opened(&self) -> Option<Vec<String>> {
        let text = fs::read_to_string(self.home("browser")).ok()?;
        Some(text.lines().map(str::to_owned).collect())
    }

    fn begin<const N: usize>(&self, arguments: [&str; N]) -> Login {
        let mut command = self.stage.context.adjutant(arguments);
        command.env("PATH", self.path()).env("RUST_LOG", "trace");
        Login::start(command)
    }

    /// Signs in without a browser window: the page is visited, and so is the one it sends us to.
    fn sign_in(&self) {
        self.sign_in_as(["auth", "login", "far", "--no-browser"]);
    }

    fn sign_in_as<const N: usize>(&self, arguments: [&str; N]) {
        let mut login = self.begin(arguments);
        let (_, back) = visit(&login.page());
        assert_eq!(visit(&back.unwrap()).0, 200);
        let ended = login.end();
        assert!(ended.status.success(), "{}", said(&ended));
    }

    /// The gateway, with everything it logs.
    fn connect(&self) -> McpClient {
        let log = File::options().append(true).create(true).open(self.home("log")).unwrap();
        let mut command = self.stage.command();
        command.env("PATH", self.path()).env("RUST_LOG", "trace");
        McpClient::connect_logging(command, log)
    }

    /// The files with sign-ins.
    fn kept(&self) -> Vec<PathBuf> {
        let folder = self.home(".local/share/adjutant/sign-in");
        let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        files.filter(|path| path.extension().is_some_and(|end| end == "json")).collect()
    }

    /// No token and no code is anywhere in the project, the log or the audit.
    fn nothing_told(&self) {
        let mut places = files_below(&self.stage.context.root());
        places.push(self.home("log"));
        for file in places {
            let text = String::from_utf8_lossy(&fs::read(&file).unwrap_or_default()).into_owned();
            for secret in self.server.secrets() {
                // The name of a client is no secret.
                let told = !secret.starts_with("client") && text.contains(&secret);
                assert!(!told, "{} tells {secret}", file.display());
            }
        }
    }

    fn status(&self) -> Value {
        let output = self.stage.context.run(["auth", "status", "--json"]);
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

fn works(client: &mut McpClient) {
    let result = execute(client, "far", "who", json!({}));
    assert_eq!(text(&result), "far {}", "{result}");
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// `adjutant auth login` at work.
struct Login {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
    heard: String,
}

impl Login {
    fn start(mut command: std::process::Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { child, stdin, stdout, stderr, heard: String::new() }
    }

    /// The page that a person is to open.
    fn page(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        if line.is_empty() {
            self.stderr.read_to_string(&mut self.heard).unwrap();
            panic!("no page: {}", self.heard);
        }
        line.trim().to_owned()
    }

    /// Waits until it says something with these words.
    fn hear(&mut self, words: &str) {
        while !self.heard.contains(words) {
            assert_ne!(self.stderr.read_line(&mut self.heard).unwrap(), 0, "{}", self.heard);
        }
    }

    fn paste(&mut self, text: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{text}").unwrap();
    }

    /// Its end, which comes soon: a sign-in that still waits is ended, and the test with it.
    fn end(mut self) -> Output {
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
        self.stderr.read_to_string(&mut self.heard).unwrap();
        let stderr = self.heard.into_bytes();
        Output { status: self.child.wait().unwrap(), stdout, stderr }
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_server_that_wants_a_sign_in_says_so_at_once_and_works_as_soon_as_somebody_did() {
    let desk = Desk::new(Ways { lives: (HOUR, HOUR), ..Ways::default() });
    let mut client = desk.connect();
    let begun = Instant::now();
    let result = execute(&mut client, "far", "who", json!({}));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(
        text(&result),
        "SERVER_UNAVAILABLE: server `far` is unavailable: it asks for a sign-in. A person must run `adjutant auth login far`."
    );
    // However often it is called: the pause between two tries grows, and the answer stays the same.
    for _ in 0..5 {
        assert!(text(&execute(&mut client, "far", "who", json!({}))).contains("auth login far`"));
    }
    assert_eq!(desk.status()[0]["state"], "not signed in");

    desk.sign_in();
    works(&mut client);
    assert_eq!(desk.opened(), None, "no browser was wanted");
    let status = desk.status();
    assert_eq!((&status[0]["state"], &status[0]["kept_in"]), (&json!("signed in"), &json!("file")));

    // A new process needs no new sign-in.
    drop(client);
    works(&mut desk.connect());
    assert_eq!((desk.server.asked("/authorize"), desk.server.asked("/token")), (1, 1));
    desk.nothing_told();
}

#[test]
fn j6_tokens_at_rest_are_private_and_outside_of_the_project() {
    let desk = Desk::new(Ways { lives: (HOUR, HOUR), ..Ways::default() });
    desk.sign_in();
    let kept = desk.kept();
    assert_eq!(kept.len(), 1);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&kept[0]), mode(kept[0].parent().unwrap())), (0o600, 0o700));
    desk.nothing_told();
    let status = String::from_utf8(desk.stage.context.run(["auth", "status"]).stdout).unwrap();
    assert_eq!(
        status,
        "far: signed in; renews itself; scopes tools offline_access; kept in the file\n"
    );
    let forgotten = desk.stage.context.run(["auth", "logout", "far"]);
    assert!(forgotten.status.success(), "{}", said(&forgotten));
    assert!(desk.kept().is_empty());
    let again = desk.stage.context.run(["auth", "logout", "far"]);
    assert_eq!(again.status.code(), Some(1));
}

#[test]
fn the_browser_is_given_one_address_and_no_shell() {
    let desk = Desk::new(Ways { lives: (HOUR, HOUR), ..Ways::default() });
    let mut login = desk.begin(["auth", "login", "far"]);
    let page = login.page();
    let opened = until("the browser", || desk.opened().filter(|words| words.len() == 2));
    assert_eq!(opened, ["1".to_owned(), page.clone()]);
    assert_eq!(visit(&visit(&page).1.unwrap()).0, 200);
    let ended = login.end();
    assert!(ended.status.success());
    assert!(said(&ended).contains("Signed in to `far`, which offers 1 tool."), "{}", said(&ended));
}

#[test]
fn the_code_can_be_pasted_where_there_is_no_browser() {
    let desk = Desk::new(Ways { lives: (HOUR, HOUR), ..Ways::default() });
    for whole in [true, false] {
        let mut login = desk.begin(["auth", "login", "far", "--no-browser"]);
        let back = visit(&login.page()).1.unwrap();
        let code = back.split("code=").nth(1).unwrap().split('&').next().unwrap();
        login.paste(if whole { &back } else { code });
        let ended = login.end();
        assert!(ended.status.success(), "{}", said(&ended));
    }
    works(&mut desk.connect());
}

#[test]
fn every_agent_signs_in_by_itself_where_the_entry_says_so() {
    let more = json!({ "auth": { "isolation": "agent" } });
    let desk = Desk::with(Ways { lives: (HOUR, HOUR), ..Ways::default() }, &more);
    let everything = json!({ "allow": { "servers": ["*"] } });
    desk.stage.rules(&json!({ "agents": { "dev": everything, "ops": everything } }).to_string());
    let unsaid = desk.stage.context.run(["auth", "login", "far", "--no-browser"]);
    assert_eq!(unsaid.status.code(), Some(2));
    assert!(said(&unsaid).contains("--agent AGENT"), "{}", said(&unsaid));
    desk.sign_in_as(["auth", "login", "far", "--no-browser", "--agent", "dev"]);
    let mut client = desk.connect();
    works(&mut client);
    let other = json!({ "agent_id": "ops", "server": "far", "tool": "who", "args": {} });
    let result = client.call("execute_tool", other.clone());
    assert!(text(&result).ends_with("`adjutant auth login far --agent ops`."), "{result}");
    desk.sign_in_as(["auth", "login", "far", "--no-browser", "--agent", "ops"]);
    assert_eq!(text(&client.call("execute_tool", other)), "far {}");
    let tokens =
        desk.server.requests().into_iter().filter(|request| request.body["method"] == "tools/call");
    let mut tokens: Vec<String> = tokens.map(|r| r.headers["authorization"].clone()).collect();
    tokens.dedup();
    assert_eq!(tokens.len(), 2, "each with its own: {tokens:?}");
}

#[test]
fn a_client_that_was_registered_by_hand_is_used_and_its_secret_never_written() {
    let client = ("by-hand".to_owned(), "s3cret-of-the-client".to_owned());
    let auth = json!({ "client_id": "${CLIENT}", "client_secret": "${CLIENT_SECRET}", "scopes": ["a", "b"] });
    let ways = Ways { client: Some(client), lives: (Some(0), HOUR), ..Ways::default() };
    let desk = Desk::with(ways, &json!({ "auth": auth }));
    let mut command = desk.stage.context.adjutant(["auth", "login", "far", "--no-browser"]);
    command.env("CLIENT", "by-hand").env("CLIENT_SECRET", "s3cret-of-the-client");
    let mut login = Login::start(command);
    let page = login.page();
    let asked = oauth_server::form(page.split_once('?').unwrap().1);
    assert_eq!(
        (asked["client_id"].as_str(), asked["scope"].as_str()),
        ("by-hand", "a b offline_access")
    );
    assert_eq!(visit(&visit(&page).1.unwrap()).0, 200);
    let ended = login.end();
    assert!(ended.status.success(), "{}", said(&ended));
    assert_eq!(desk.server.asked("/register"), 0);
    // Its first token was over at once: the renewal proves the secret too.
    assert_eq!(desk.server.renewals(), 1);
    for file in desk.kept() {
        assert!(!fs::read_to_string(file).unwrap().contains("s3cret-of-the-client"));
    }
}

#[test]
fn a_server_of_an_agents_own_is_signed_in_to_by_that_agent() {
    let desk = Desk::new(Ways { lives: (HOUR, HOUR), ..Ways::default() });
    let server = format!("mcp_servers:\n  - name: own\n    url: {}\n", desk.server.url());
    let agent =
        format!("---\nname: clerk\ndescription: Files things\n{server}---\nYou file things.\n");
    desk.stage.context.agent("clerk", &agent);
    let mut run = desk.stage.context.adjutant(["run", "clerk", "file it"]);
    let ran = run.env("ADJUTANT_CLAUDE", fake_claude()).output().unwrap();
    let told = said(&ran);
    assert!(told.contains("adjutant auth login own --agent clerk"), "{told}");
    desk.sign_in_as(["auth", "login", "own", "--no-browser", "--agent", "clerk"]);
    let status = desk.status();
    let own = status.as_array().unwrap().iter().find(|line| line["server"] == "own").unwrap();
    assert_eq!((&own["agent"], &own["state"]), (&json!("clerk"), &json!("signed in")));
}

#[test]
fn a_server_that_needs_no_sign_in_says_so() {
    let open = super::http_server::HttpServer::start(super::http_server::streamable);
    let stage =
        Stage::new(&json!({ "open": { "url": open.url("/mcp") }, "here": { "command": "x" },
        "keyed": { "url": open.url("/mcp"), "headers": { "authorization": "Bearer x" } } }));
    for (server, expected) in [
        ("open", "`open` asks for no sign-in: it lets us in as we are"),
        ("here", "`here` asks for no sign-in: it is a program on this machine"),
        (
            "keyed",
            "`keyed` asks for no sign-in: its entry has an `Authorization` header of its own",
        ),
        ("oppen", "`.mcp.json` has no server `oppen`; is `open` meant?"),
    ] {
        let ended = stage.context.run(["auth", "login", server, "--no-browser"]);
        assert_eq!(said(&ended).trim(), format!("error: {expected}"));
    }
}
