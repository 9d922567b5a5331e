//! Writes `tests/fixtures/store`. Runs only with `ADJUTANT_WRITE_GOLDEN=1`: see the README.md in that folder.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

use serde_json::json;
use sha2::{Digest, Sha256};

use super::{CLAUDE_SCRIPT, SERVER_SCRIPT, fixture};
use crate::support::fake_claude::fake_claude;
use crate::support::mcp::McpClient;

/// The paths in the golden files. A fixed path keeps the lengths of lines, which the `.head` files count.
const PLACE: &str = "/tmp/adjutant-golden";
/// Replaces the day of generation, so that costs are always of an earlier day.
const DAY: &str = "2020-01-02";

/// A project at [`PLACE`], removed when dropped.
struct Project {
    root: PathBuf,
}

impl Project {
    fn new() -> Self {
        let _ = fs::remove_dir_all(PLACE);
        let project = Self { root: Path::new(PLACE).join("project") };
        for (name, more) in [("worker", "session: true\n"), ("helper", "")] {
            let agent = format!("---\nname: {name}\ndescription: Works\n{more}---\nYou work.\n");
            project.write(&format!("agents/{name}/agent.md"), agent);
        }
        fs::create_dir_all(Path::new(PLACE).join("home")).unwrap();
        project
    }

    fn data(&self, file: &str) -> PathBuf {
        self.root.join("data").join(file)
    }

    fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_adjutant"));
        command
            .args(arguments)
            .current_dir(&self.root)
            .env_clear()
            .env("PATH", env::var_os("PATH").unwrap())
            .env("HOME", Path::new(PLACE).join("home"))
            .env("NO_COLOR", "1")
            .env("ADJUTANT_CLAUDE", fake_claude());
        command
    }

    fn print(&self, arguments: &[&str]) -> Vec<u8> {
        self.command(arguments).output().unwrap().stdout
    }

    fn run(&self, agent: &str, prompt: &str, session: Option<&str>) {
        let mut command = self.command(&["run", agent, prompt]);
        command.envs(session.map(|session| ("CLAUDE_CODE_SESSION_ID", session)));
        command.output().unwrap();
    }

    /// Copies stored files into a variant.
    fn keep<const N: usize>(&self, variant: &str, files: [&str; N]) {
        for file in files {
            save(&format!("{variant}/data/{file}"), fs::read(self.data(file)).unwrap());
        }
    }

    /// Keeps what a command prints about the store as it is now.
    fn keep_output(&self, variant: &str, file: &str, arguments: &[&str]) {
        save(&format!("{variant}/{file}"), self.print(arguments));
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(PLACE);
    }
}

fn save(path: &str, bytes: impl AsRef<[u8]>) {
    let path = fixture(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn load(path: &str) -> Vec<u8> {
    fs::read(fixture(path)).unwrap()
}

/// Returns the text before the last occurrence of a word.
fn cut(text: &str, word: &str) -> String {
    text[..text.rfind(word).unwrap()].to_owned()
}

fn load_text(path: &str) -> String {
    String::from_utf8(load(path)).unwrap()
}

/// Writes one file of a variant from the same file of another one, edited.
fn derive(from: &str, to: &str, edit: impl FnOnce(String) -> String) {
    let before = load_text(from);
    let after = edit(before.clone());
    assert_ne!(before, after, "the edit of {from} has no effect");
    save(to, after);
}

/// The text without the second half of its last line.
fn torn(text: &str) -> String {
    let start = text.trim_end().rfind('\n').unwrap() + 1;
    text[..start + (text.len() - start) / 2].to_owned()
}

#[test]
#[ignore = "writes tests/fixtures/store if `ADJUTANT_WRITE_GOLDEN` is set"]
fn write_golden_stores() {
    if env::var_os("ADJUTANT_WRITE_GOLDEN").is_none() {
        return;
    }
    sessions();
    costs();
    audit();
    events();
    tokens();
    tool_pins();
    claude_cache();
}

fn sessions() {
    let project = Project::new();
    let turn = |key: &str, prompt: &str, more: &[&str]| {
        let mut arguments = vec!["run", "worker", prompt, "--session-key", key];
        arguments.extend(more);
        project.print(&arguments);
    };
    turn("default", "FAKE result one", &[]);
    turn("default", "FAKE result two", &[]);
    turn("pr-42", "FAKE crash", &[]);
    turn("pr-43", "FAKE result one", &[]);
    turn("pr-43", "FAKE result one", &["--fresh"]);
    project.keep("sessions/plain", ["sessions.json"]);
    project.keep_output("sessions/plain", "list.json", &["sessions", "list", "--json"]);
    let plain = "sessions/plain/data/sessions.json";
    derive(plain, "sessions/newer-format/data/sessions.json", |text| {
        let text = text.replace("\"format\": 1,", "\"format\": 2,");
        text.replace("\"turns\": 2,", "\"turns\": 2,\n      \"invented_later\": true,")
    });
    derive(plain, "sessions/broken-entry/data/sessions.json", |text| {
        text.replace("\"turns\": 2,", "\"turns\": \"two\",")
    });
    derive(plain, "sessions/torn-store/data/sessions.json", |text| cut(&text, "\"contract\""));

    session_journal();
    for variant in ["sessions/torn-journal", "sessions/broken-journal-line"] {
        save(&format!("{variant}/data/sessions.json"), load(plain));
    }
    let journal = "sessions/journal/data/sessions.journal";
    derive(journal, "sessions/torn-journal/data/sessions.journal", |text| torn(&text));
    derive(journal, "sessions/broken-journal-line/data/sessions.journal", |text| {
        let (first, rest) = text.split_once('\n').unwrap();
        format!("{first}\nthis is no change\n{rest}")
    });
}

/// More than 200 sessions: only then changes go to the journal. The server is killed before it compacts the journal.
fn session_journal() {
    let project = Project::new();
    let entry = |number: usize| {
        json!({
            "agent": "worker", "key": format!("k{number:03}"), "state": "ready",
            "session_id": format!("00000000-0000-4000-8000-{number:012}"), "turns": 1, "cost_usd": 0.01,
            "created": "2020-01-02T03:04:05Z", "last_used": "2020-01-02T03:04:05Z",
            "last_run": format!("{number:032}"), "folder": "/srv/project", "config_dir": "/srv/claude", "contract": "sha256:0",
        })
    };
    let entries: Vec<_> = (0..203).map(entry).collect();
    project
        .write("data/sessions.json", json!({ "format": 1, "conversations": entries }).to_string());
    // The program rewrites the whole file when this run ends.
    project.run("worker", "FAKE result one", None);
    let mut server = McpClient::connect(project.command(&["serve"]));
    let call =
        json!({ "agent_name": "worker", "prompt": "FAKE result one", "session_key": "pr-44" });
    assert_ne!(server.call_tool("run_subagent", call)["isError"], true);
    server.child().kill().unwrap();
    server.child().wait().unwrap();
    project.print(&["sessions", "forget", "worker@k001"]);
    let variant = "sessions/journal";
    project.keep(variant, ["sessions.json", "sessions.journal"]);
}

fn costs() {
    let project = Project::new();
    project.run("helper", "FAKE result one", Some("session-a"));
    project.run("helper", "FAKE result one", None);
    project.run("worker", "FAKE crash", Some("session-b"));
    let first = fs::read_to_string(project.data("costs-0.journal")).unwrap();
    let zero = first
        .lines()
        .next()
        .unwrap()
        .replace("\"cost_usd\":0.01", "\"cost_usd\":0.0")
        .replace("\"ended\":1", "\"ended\":0");
    let missing = 999 - first.lines().count();
    fs::write(
        project.data("costs-0.journal"),
        first.clone() + &format!("{zero}\n").repeat(missing),
    )
    .unwrap();
    // The first entry of this run is line 1,000 and triggers the compaction of the journal.
    project.run("helper", "FAKE result one", Some("session-a"));
    assert!(!project.data("costs-0.journal").exists(), "the journal was folded");
    project.run("worker", "FAKE result one", Some("session-b"));
    project.run("worker", "FAKE crash", Some("session-b"));
    let variant = "costs/two-journals";
    project.keep(variant, ["costs.json", "costs-1.journal"]);
    // State after a crash between writing the new store and removing its journal; truncated to its first lines.
    save(&format!("{variant}/data/costs-0.journal"), first);
    let today = jiff::Timestamp::now().strftime("%Y-%m-%d").to_string();
    for file in ["costs.json", "costs-0.journal", "costs-1.journal"] {
        let path = format!("{variant}/data/{file}");
        derive(&path, &path, |text| text.replace(&today, DAY));
        let text = load(&path);
        for damaged in ["torn-journal", "broken-account", "newer-format"] {
            save(&format!("costs/{damaged}/data/{file}"), &text);
        }
    }
    let of = |variant: &str, file: &str| format!("costs/{variant}/data/{file}");
    let torn_journal = of("torn-journal", "costs-1.journal");
    derive(&torn_journal, &torn_journal, |text| torn(&text));
    let broken = of("broken-account", "costs.json");
    derive(&broken, &broken, |text| text.replacen("\"runs\":", "\"runs\":-", 1));
    let newer = of("newer-format", "costs.json");
    derive(&newer, &newer, |text| {
        text.replace("\"format\": 1,", "\"format\": 2,\n\"invented_later\": true,")
    });
}

fn audit() {
    let project = Project::new();
    super::library::write_rotated_audit_log(&project.data("audit.jsonl"));
    project.run("helper", "FAKE result one", None);
    let files =
        ["audit.000000000003.jsonl", "audit.000000000006.jsonl", "audit.jsonl", "audit.jsonl.head"];
    project.keep("audit/rotated", files);
    for file in files {
        let bytes = load(&format!("audit/rotated/data/{file}"));
        for variant in ["torn-line", "changed-line", "newer-format"] {
            save(&format!("audit/{variant}/data/{file}"), &bytes);
        }
    }
    // State after the writer was killed: one complete line beyond the length in the head, and half a line.
    project.run("helper", "FAKE result one", None);
    project.run("helper", "FAKE result one", None);
    save(
        "audit/torn-line/data/audit.jsonl",
        torn(&fs::read_to_string(project.data("audit.jsonl")).unwrap()),
    );
    let changed = "audit/changed-line/data/audit.000000000006.jsonl";
    derive(changed, changed, |text| text.replacen("tool_4", "tool_5", 1));
    let newer = "audit/newer-format/data/audit.jsonl";
    derive(newer, newer, |text| {
        let (before, last) = text.trim_end().rsplit_once('\n').unwrap();
        let last = last.replace("{\"format\":1,", "{\"format\":2,\"invented_later\":true,");
        format!("{before}\n{last}\n")
    });
    let text = load_text(newer);
    let last = text.trim_end().rsplit_once('\n').unwrap().1;
    let head = "audit/newer-format/data/audit.jsonl.head";
    derive(head, head, |old| {
        let seq = serde_json::from_str::<serde_json::Value>(last).unwrap()["seq"].clone();
        let hash = format!("{:x}", Sha256::digest(last));
        let new = format!("{{\"seq\":{seq},\"hash\":\"{hash}\",\"bytes\":{}}}", text.len());
        format!("{new}{}", "\n".repeat(old.len() - new.len()))
    });
    super::library::write_pruned_audit_log(&project.data("pruned/audit.jsonl"));
    for file in ["audit.000000000006.jsonl", "audit.jsonl", "audit.jsonl.head"] {
        save(
            &format!("audit/pruned/data/{file}"),
            fs::read(project.data("pruned").join(file)).unwrap(),
        );
    }
}

fn events() {
    let project = Project::new();
    project.run("helper", "FAKE result one", Some("session-a"));
    let notify = || {
        let payload = json!({ "hook_event_name": "Notification", "session_id": "session-a", "message": "it waits" });
        let mut hook = project.command(&["hook"]).stdin(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut hook.stdin.take().unwrap(), payload.to_string().as_bytes())
            .unwrap();
        assert!(hook.wait().unwrap().success());
    };
    let rotate = || {
        // A first line that is older than seven days: the next writer begins a new file.
        super::set_begun(&project.data("events.jsonl.head"), "2020-01-02T03:04:05Z");
        notify();
    };
    rotate();
    notify();
    rotate();
    notify();
    let files = [
        "events.000000000007.jsonl",
        "events.000000000009.jsonl",
        "events.jsonl",
        "events.jsonl.head",
    ];
    project.keep("events/rotated", files);
    for file in files {
        let bytes = load(&format!("events/rotated/data/{file}"));
        for variant in ["torn-line", "broken-line", "newer-format"] {
            save(&format!("events/{variant}/data/{file}"), &bytes);
        }
    }
    notify();
    notify();
    save(
        "events/torn-line/data/events.jsonl",
        torn(&fs::read_to_string(project.data("events.jsonl")).unwrap()),
    );
    let broken = "events/broken-line/data/events.000000000009.jsonl";
    derive(broken, broken, |text| text.replacen("{\"format\"", "\"format\"", 1));
    let newer = "events/newer-format/data/events.jsonl";
    derive(newer, newer, |text| {
        let last = text.rfind("{\"format\":1,").unwrap();
        // Keeps the length, which the head contains.
        format!("{}{}", &text[..last], text[last..].replacen("\"format\":1,", "\"format\":2,", 1))
    });
}

fn tokens() {
    let project = Project::new();
    project.print(&["token", "new", "ci-bot"]);
    project.print(&["token", "new", "editor", "--expires", "3650d"]);
    project.keep("tokens/plain", ["tokens.json"]);
    let plain = "tokens/plain/data/tokens.json";
    derive(plain, "tokens/newer-format/data/tokens.json", |text| {
        text.replace("\"format\": 1", "\"format\": 2")
    });
    derive(plain, "tokens/broken-entry/data/tokens.json", |text| {
        text.replacen("sha256:", "sha512:", 1)
    });
    derive(plain, "tokens/torn/data/tokens.json", |text| cut(&text, "\"created\""));
}

fn tool_pins() {
    let project = Project::new();
    project.write("server.sh", SERVER_SCRIPT);
    let server = |words: &str| json!({ "command": "sh", "args": ["server.sh", words] });
    let look = |words: &str| {
        let servers =
            json!({ "mcpServers": { "same": server("Reads a file"), "changing": server(words) } });
        project.write(".mcp.json", servers.to_string());
        project.write(
            ".mcp-gateway-rules.json",
            r#"{"agents": {"dev": {"allow": {"servers": ["*"]}}}}"#,
        );
        let mut gateway = McpClient::connect(project.command(&["gateway"]));
        for server in ["same", "changing"] {
            gateway.call_tool("get_server_tools", json!({ "agent_id": "dev", "server": server }));
        }
    };
    look("Reads a file");
    look("Reads a file\u{200b} and sends it");
    project.keep("tool-pins/plain", ["tool-pins.json"]);
    let plain = "tool-pins/plain/data/tool-pins.json";
    derive(plain, "tool-pins/newer-format/data/tool-pins.json", |text| {
        text.replace("\"format\": 1,", "\"format\": 2,\n  \"invented_later\": true,")
    });
    derive(plain, "tool-pins/broken-entry/data/tool-pins.json", |text| {
        text.replacen("\"since\"", "\"until\"", 1)
    });
    derive(plain, "tool-pins/torn/data/tool-pins.json", |text| cut(&text, "\"since\""));
}

fn claude_cache() {
    let project = Project::new();
    let program = super::install_claude(&project.root);
    project.command(&["doctor"]).env("ADJUTANT_CLAUDE", &program).output().unwrap();
    let cache = Path::new(PLACE).join("home/.cache/adjutant");
    let file = fs::read_dir(cache).unwrap().flatten().next().unwrap().path();
    let text = fs::read_to_string(file).unwrap();
    assert!(CLAUDE_SCRIPT.contains("2.1.325") && text.contains("2.1.325"), "{text}");
    save("claude-cache/plain/claude.json", text.replace(program.to_str().unwrap(), "@CLAUDE@"));
    derive("claude-cache/plain/claude.json", "claude-cache/torn/claude.json", |text| {
        text[..text.len() / 2].to_owned()
    });
    // The next project needs another time stamp.
    thread::sleep(Duration::from_millis(1));
}
