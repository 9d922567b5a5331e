//! Golden files of `tests/fixtures/store`: each is read to the same values, and the next write keeps its bytes.

mod library;
mod write;

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use test_case::test_case;

use crate::support::TestContext;
use crate::support::fake_claude::fake_claude;
use crate::support::mcp::McpClient;

/// Writes a `claude` with the required options, which records its starts in `asked`.
const CLAUDE_SCRIPT: &str = "#!/bin/sh
echo \"$1\" >> \"$(dirname \"$0\")/asked\"
case $1 in
--version) echo '2.1.325 (Claude Code)' ;;
--help) for flag in input-format mcp-config setting-sources settings strict-mcp-config tools; do
  echo \"  --$flag <value>  An option\"
done ;;
esac
";

/// An MCP server with one tool, whose description is the argument.
const SERVER_SCRIPT: &str = r#"while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case $line in
  *'"initialize"'*) result='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"golden","version":"1"}}' ;;
  *'"tools/list"'*) result='{"tools":[{"name":"read","description":"'$1'","inputSchema":{"type":"object"}}]}' ;;
  *) result='{}' ;;
  esac
  [ -n "$id" ] && printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
"#;

/// A path below the folder of golden files.
fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/store").join(path)
}

/// A project whose `data/` is a copy of the variant's, and the agent `helper`.
fn project(variant: &str) -> TestContext {
    let context = TestContext::new();
    context.agent("helper", "---\nname: helper\ndescription: Helps\n---\nYou help.\n");
    for (name, bytes) in files(&fixture(&format!("{variant}/data"))) {
        context.write(format!("data/{name}"), bytes);
    }
    context
}

/// The files of a folder by name.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().flatten().filter(|entry| entry.path().is_file());
    entries
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect()
}

fn has_extension(name: &str, extension: &str) -> bool {
    Path::new(name).extension().is_some_and(|found| found == extension)
}

/// The stored files of a project, by name, without locks.
fn stored(context: &TestContext, store: &str) -> BTreeMap<String, Vec<u8>> {
    let mut files = files(&context.root().join("data"));
    files.retain(|name, _| name.starts_with(store) && !has_extension(name, "lock"));
    files
}

/// Returns the stored files; a damaged copy has its name without the time.
fn with_damaged(mut files: BTreeMap<String, Vec<u8>>) -> BTreeMap<String, Vec<u8>> {
    let damaged: Vec<String> =
        files.keys().filter(|name| name.contains(".damaged-")).cloned().collect();
    for name in damaged {
        let bytes = files.remove(&name).unwrap();
        let (short, _) = name.split_once("damaged-").unwrap();
        assert_eq!(files.insert(format!("{short}damaged"), bytes), None, "one copy: {files:?}");
    }
    files
}

fn golden(path: &str) -> Vec<u8> {
    fs::read(fixture(path)).unwrap()
}

fn golden_text(path: &str) -> String {
    String::from_utf8(golden(path)).unwrap()
}

fn golden_json(path: &str) -> Value {
    serde_json::from_slice(&golden(path)).unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn printed(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn lines(bytes: &[u8]) -> Vec<Value> {
    text(bytes).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Runs `helper` in the session `session-now`: appends to ledger, audit log and event log, and compacts the session journal.
fn run_helper(context: &TestContext) {
    let mut command = context.adjutant(["run", "helper", "FAKE result done"]);
    command.env("ADJUTANT_CLAUDE", fake_claude()).env("CLAUDE_CODE_SESSION_ID", "session-now");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Asserts that `after` is `before` with whole lines appended, and returns these.
fn appended(before: &[u8], after: &[u8]) -> Vec<Value> {
    assert!(after.starts_with(before), "what was stored is unchanged");
    assert!(after.ends_with(b"\n"));
    lines(&after[before.len()..])
}

// Sessions

fn list(context: &TestContext) -> (Value, String) {
    let output = context.run(["sessions", "list", "--json"]);
    assert!(output.status.success(), "{output:?}");
    (printed(&output), without_time(text(&output.stderr)))
}

/// Stored sessions as `sessions list --json` prints them.
fn printed_sessions(list: &Value) -> Value {
    let names =
        [("created", "created_at"), ("last_used", "last_used_at"), ("last_run", "last_run_id")];
    let mut list = list.clone();
    for session in list.as_array_mut().unwrap() {
        let session = session.as_object_mut().unwrap();
        session.retain(|_, value| !value.is_null());
        for (stored, printed) in names {
            let value = session.shift_remove(stored).unwrap();
            let value =
                if stored == "last_run" { hyphenated(&value) } else { milliseconds(&value) };
            session.insert(printed.to_owned(), value);
        }
    }
    list
}

fn hyphenated(id: &Value) -> Value {
    id.as_str().unwrap().parse::<uuid::Uuid>().unwrap().hyphenated().to_string().into()
}

fn milliseconds(time: &Value) -> Value {
    let time: jiff::Timestamp = time.as_str().unwrap().parse().unwrap();
    time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string().into()
}

/// Lines of a log as `events --json` and `audit --json` print them: those of format 1 in format 2.
fn printed_lines(log: &str) -> Vec<Value> {
    lines(log.as_bytes()).iter().map(printed_line).collect()
}

fn printed_line(line: &Value) -> Value {
    if line["format"] != 1 {
        return line.clone();
    }
    let mut line = line.as_object().unwrap().clone();
    let is_event = line.contains_key("hook_event_name");
    line["format"] = json!(2);
    line["time"] = milliseconds(&line["time"]);
    for key in ["run_id", "agent_id"] {
        if let Some(id) = line.get_mut(key) {
            *id = hyphenated(id);
        }
    }
    if let Some(Value::Object(timing)) = line.shift_remove("timing_ms") {
        let whole = |(name, time): (String, Value)| {
            (
                format!("{name}_ms"),
                json!(format!("{:.0}", time.as_f64().unwrap()).parse::<u64>().unwrap()),
            )
        };
        line.insert("timing".to_owned(), timing.into_iter().map(whole).collect());
    }
    if let Some(name) = line.shift_remove("agent") {
        let known_by = line.shift_remove("known_by").unwrap();
        line.insert("caller".to_owned(), json!({ "name": name, "known_by": known_by }));
    }
    if let Some(micros) = line.shift_remove("latency_us") {
        line.insert("duration_ms".to_owned(), json!(micros.as_u64().unwrap() / 1_000));
    }
    if let (false, Some(code)) = (is_event, line.shift_remove("error")) {
        line.insert("code".to_owned(), code);
    }
    line.into()
}

/// The time in the name of a copy of a damaged file.
fn without_time(text: &str) -> String {
    let mut rest = text;
    let mut out = String::new();
    while let Some((before, after)) = rest.split_once(".damaged-") {
        out += &format!("{before}.damaged-TIME");
        rest = &after["2026-01-01T00-00-00.000Z".len()..];
    }
    out + rest
}

/// `sessions.json` for these sessions, as it is documented: indented, in the order of the list, with a line feed at its end.
fn session_file(list: &Value) -> Vec<u8> {
    let mut entries = list.as_array().unwrap().clone();
    for entry in &mut entries {
        entry.as_object_mut().unwrap().shift_remove("in_use_by");
    }
    let mut text =
        serde_json::to_vec_pretty(&json!({ "format": 1, "conversations": entries })).unwrap();
    text.push(b'\n');
    text
}

/// The list without one session.
fn without(list: &Value, agent: &str, key: &str) -> Value {
    let kept =
        list.as_array().unwrap().iter().filter(|one| one["agent"] != agent || one["key"] != key);
    kept.cloned().collect::<Vec<_>>().into()
}

fn forget(context: &TestContext, name: &str) -> Output {
    context.run(["sessions", "forget", name])
}

#[test]
fn stored_sessions_are_read_and_rewritten_byte_for_byte() {
    let context = project("sessions/plain");
    let expected = golden_json("sessions/plain/list.json");
    assert_eq!(list(&context), (printed_sessions(&expected), String::new()));
    assert_eq!(forget(&context, "nobody").status.code(), Some(3));
    let file = golden("sessions/plain/data/sessions.json");
    assert_eq!(text(&session_file(&expected)), text(&file), "the documented form");
    assert_eq!(stored(&context, "sessions"), [("sessions.json".to_owned(), file)].into());
    assert!(forget(&context, "worker@pr-42").status.success());
    let left = session_file(&without(&expected, "worker", "pr-42"));
    assert_eq!(text(&stored(&context, "sessions")["sessions.json"]), text(&left));
}

#[test]
fn a_journal_of_sessions_is_read_appended_to_and_folded() {
    let context = project("sessions/journal");
    let expected = with_journal(&golden_json("sessions/journal/data/sessions.json"));
    let before = stored(&context, "sessions");
    assert!(!before["sessions.journal"].is_empty());
    assert_eq!(list(&context), (printed_sessions(&expected), String::new()));
    assert_eq!(stored(&context, "sessions"), before);
    assert!(forget(&context, "worker@k100").status.success());
    let after = stored(&context, "sessions");
    assert_eq!(after["sessions.json"], before["sessions.json"]);
    let line = "{\"forget\":{\"agent\":\"worker\",\"key\":\"k100\"}}\n";
    assert_eq!(
        text(&after["sessions.journal"]),
        text(&before["sessions.journal"]).to_owned() + line
    );
    run_helper(&context);
    let folded = session_file(&without(&expected, "worker", "k100"));
    let expected =
        [("sessions.journal".to_owned(), Vec::new()), ("sessions.json".to_owned(), folded)];
    assert_eq!(stored(&context, "sessions"), expected.into());
}

#[test]
fn the_torn_last_line_of_a_journal_of_sessions_is_ignored_and_removed_by_the_next_write() {
    let context = project("sessions/torn-journal");
    let before = stored(&context, "sessions");
    let expected = with_journal(&golden_json("sessions/plain/data/sessions.json"));
    assert_eq!(list(&context), (printed_sessions(&expected), String::new()));
    assert_eq!(stored(&context, "sessions"), before);
    assert!(forget(&context, "worker@pr-42").status.success());
    let left = session_file(&without(&expected, "worker", "pr-42"));
    let expected =
        [("sessions.journal".to_owned(), Vec::new()), ("sessions.json".to_owned(), left)];
    assert_eq!(stored(&context, "sessions"), expected.into());
}

/// The list for a `sessions.json` and the journal of the variant `journal`, which puts `pr-44` and forgets `k001`.
fn with_journal(file: &Value) -> Value {
    let mut list = file["conversations"].as_array().unwrap().clone();
    for change in lines(&golden("sessions/journal/data/sessions.journal")) {
        let named = change.get("put").unwrap_or(&change["forget"]);
        list.retain(|one| one["agent"] != named["agent"] || one["key"] != named["key"]);
        list.extend(change.get("put").cloned());
    }
    for one in &mut list {
        one["in_use_by"] = Value::Null;
    }
    list.sort_by_key(|one| one["key"].to_string());
    list.into()
}

#[test]
fn a_broken_journal_line_of_sessions_is_skipped() {
    let context = project("sessions/broken-journal-line");
    let journal = golden("sessions/broken-journal-line/data/sessions.journal");
    let warning = "warning: `data/sessions.journal` was damaged (1 of its lines cannot be read); it was set aside as \
                   `data/sessions.journal.damaged-TIME`, and 4 sound conversations were kept\n";
    let expected = with_journal(&golden_json("sessions/plain/data/sessions.json"));
    assert_eq!(list(&context), (printed_sessions(&expected), warning.to_owned()));
    let files = [
        ("sessions.journal".to_owned(), Vec::new()),
        ("sessions.journal.damaged".to_owned(), journal),
        ("sessions.json".to_owned(), session_file(&expected)),
    ];
    assert_eq!(with_damaged(stored(&context, "sessions")), files.into());
    assert_eq!(list(&context), (printed_sessions(&expected), String::new()), "it is said once");
}

#[test_case("broken-entry", "invalid type: string \"two\", expected u64 at line 9 column 20"; "one entry is broken")]
#[test_case("torn-store", "EOF while parsing a value at line 44 column 6"; "the file is torn")]
fn valid_sessions_of_a_damaged_file_are_kept_and_the_file_is_copied(variant: &str, why: &str) {
    let context = project(&format!("sessions/{variant}"));
    let plain = golden_json("sessions/plain/list.json");
    let lost = if variant == "torn-store" { "pr-43" } else { "default" };
    let expected = without(&plain, "worker", lost);
    let warning = format!(
        "warning: `data/sessions.json` was damaged ({why}); it was set aside as `data/sessions.json.damaged-TIME`, \
         and 2 sound conversations were kept\n"
    );
    assert_eq!(list(&context), (printed_sessions(&expected), warning));
    let damaged = golden(&format!("sessions/{variant}/data/sessions.json"));
    let files = [
        ("sessions.json".to_owned(), session_file(&expected)),
        ("sessions.json.damaged".to_owned(), damaged),
    ];
    assert_eq!(with_damaged(stored(&context, "sessions")), files.into());
}

#[test]
fn sessions_of_a_newer_format_are_read_and_never_written() {
    let context = project("sessions/newer-format");
    let before = stored(&context, "sessions");
    let expected = golden_json("sessions/plain/list.json");
    assert_eq!(list(&context), (printed_sessions(&expected), String::new()));
    let refused = forget(&context, "worker@pr-42");
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    run_helper(&context);
    assert_eq!(stored(&context, "sessions"), before);
}

// Costs

/// Output of `adjutant costs` by agent, day and session: name, finished runs, dollars.
fn costs(context: &TestContext) -> [Vec<(String, u64, f64)>; 3] {
    ["agent", "day", "session"].map(|by| costs_by(context, by))
}

fn costs_by(context: &TestContext, by: &str) -> Vec<(String, u64, f64)> {
    let report = printed(&context.run(["costs", "--by", by, "--json"]));
    let key = if by == "session" { "session_id" } else { by };
    let row = |row: &Value| {
        (
            row[key].as_str().unwrap_or("outside of a session").to_owned(),
            row["runs"].as_u64().unwrap(),
            row["cost_usd"].as_f64().unwrap(),
        )
    };
    report.as_array().unwrap().iter().map(row).collect()
}

fn rows(rows: &[(&str, u64, f64)]) -> Vec<(String, u64, f64)> {
    rows.iter().map(|(name, runs, cost)| ((*name).to_owned(), *runs, *cost)).collect()
}

const OUTSIDE: &str = "outside of a session";
const GOLDEN_DAY: &str = "2020-01-02";

#[test]
fn costs_are_read_from_the_store_and_its_current_journal() {
    let context = project("costs/two-journals");
    let before = stored(&context, "costs");
    let expected = [
        rows(&[("helper", 3, 0.03), ("worker", 3, 0.01)]),
        rows(&[(GOLDEN_DAY, 6, 0.04)]),
        rows(&[("session-a", 2, 0.02), (OUTSIDE, 1, 0.01), ("session-b", 3, 0.01)]),
    ];
    assert_eq!(costs(&context), expected);
    assert_eq!(stored(&context, "costs"), before, "reading writes nothing");
    run_helper(&context);
    let mut after = stored(&context, "costs");
    let journal =
        after.insert("costs-1.journal".to_owned(), before["costs-1.journal"].clone()).unwrap();
    assert_payments(&appended(&before["costs-1.journal"], &journal));
    assert_eq!(after, before, "only the journal that counts was written to");
}

/// The cost entries of one run of `helper`.
fn assert_payments(payments: &[Value]) {
    let keys = ["time", "run", "agent", "session", "cost_usd", "ended"];
    for payment in payments {
        let found: Vec<&str> = payment.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(found, keys);
    }
    let told = |key: &str| payments.iter().map(|payment| payment[key].clone()).collect::<Vec<_>>();
    assert!(told("agent").iter().all(|agent| agent == "helper"), "{payments:?}");
    assert!(told("session").iter().all(|session| session == "session-now"), "{payments:?}");
    // Costs are posted during the run or at its end, whichever comes first.
    let paid: f64 = told("cost_usd").iter().filter_map(Value::as_f64).sum();
    assert!((paid - 0.01).abs() < 1e-9, "{payments:?}");
    let ended = told("ended");
    assert_eq!(ended.iter().filter_map(Value::as_u64).sum::<u64>(), 1);
    assert_eq!(ended.last(), Some(&json!(1)));
}

#[test]
fn a_long_journal_of_costs_is_folded_into_the_store_as_documented() {
    let context = project("costs/two-journals");
    let before = stored(&context, "costs");
    let journal = text(&before["costs-1.journal"]);
    let first = journal.lines().next().unwrap();
    let padding = first
        .replace("\"cost_usd\":0.01", "\"cost_usd\":0.0")
        .replace("\"ended\":1", "\"ended\":0");
    let missing = 999 - journal.lines().count();
    context.write(
        "data/costs-1.journal",
        journal.to_owned() + &format!("{padding}\n").repeat(missing),
    );
    run_helper(&context);
    let after = stored(&context, "costs");
    assert!(!after.contains_key("costs-1.journal"), "it is in the store");
    assert_eq!(after["costs-0.journal"], before["costs-0.journal"], "a leftover is left alone");
    // The entry that filled the journal was the last of its run, or the next journal has the end of the run.
    let has_ended = !after.contains_key("costs-2.journal");
    let line = |day: &str, agent: &str, session: &str, cost: f64, runs: u64| {
        format!(
            r#"  {{"day":"{day}","agent":"{agent}","session":"{session}","cost_usd":{cost:?},"runs":{runs}}}"#
        )
    };
    let now = text(&after["costs.json"]).lines().find(|line| line.contains("session-now")).unwrap();
    let day = now.split('"').nth(3).unwrap();
    let accounts = [
        // The processes of earlier days are merged into one account.
        line(GOLDEN_DAY, "helper", "process", 0.01, 1),
        line(GOLDEN_DAY, "helper", "session-a", 0.02, 2),
        line(GOLDEN_DAY, "worker", "session-b", 0.01, 3),
        line(day, "helper", "session-now", 0.01, has_ended.into()),
    ];
    let expected = format!(
        "{{\n\"format\": 1,\n\"journal\": 2,\n\"accounts\": [\n{}\n]\n}}\n",
        accounts.join(",\n")
    );
    assert_eq!(text(&after["costs.json"]), expected);
}

#[test]
fn the_torn_last_line_of_a_journal_of_costs_is_ignored_and_overwritten() {
    let context = project("costs/torn-journal");
    let before = stored(&context, "costs");
    let torn = text(&before["costs-1.journal"]);
    let whole = &torn[..=torn.rfind('\n').unwrap()];
    assert_ne!(whole, torn);
    // The torn line is the end of the last run in `session-b`.
    let by_session = rows(&[("session-a", 2, 0.02), (OUTSIDE, 1, 0.01), ("session-b", 2, 0.01)]);
    assert_eq!(costs(&context)[2], by_session);
    assert_eq!(stored(&context, "costs"), before);
    run_helper(&context);
    assert_payments(&appended(whole.as_bytes(), &stored(&context, "costs")["costs-1.journal"]));
}

#[test]
fn valid_accounts_of_a_damaged_cost_store_count_and_the_store_stays_until_compaction() {
    let context = project("costs/broken-account");
    let before = stored(&context, "costs");
    // The broken entry belongs to `helper` outside of a session.
    let by_session = rows(&[("session-a", 2, 0.02), ("session-b", 3, 0.01)]);
    assert_eq!(costs_by(&context, "session"), by_session);
    let mut expected = before.clone();
    expected.insert("costs.json.damaged".to_owned(), before["costs.json"].clone());
    assert_eq!(with_damaged(stored(&context, "costs")), expected);
}

#[test]
fn costs_of_a_newer_format_are_read_and_never_written() {
    let context = project("costs/newer-format");
    let before = stored(&context, "costs");
    assert_eq!(costs(&context), costs(&project("costs/two-journals")));
    run_helper(&context);
    assert_eq!(stored(&context, "costs"), before);
}

// Audit log

fn verified(context: &TestContext) -> Value {
    printed(&context.run(["audit", "--verify", "--json"]))
}

fn hash_of(line: &str) -> String {
    format!("{:x}", Sha256::digest(line))
}

/// The head of a log: padded with line feeds to 192 bytes.
fn head(files: &BTreeMap<String, Vec<u8>>, log: &str) -> Value {
    let note = text(&files[&format!("{log}.head")]);
    assert_eq!(note.len(), 192);
    serde_json::from_str(note.trim_end_matches('\n')).unwrap()
}

/// All entries of a log, oldest file first.
fn whole_log(files: &BTreeMap<String, Vec<u8>>) -> String {
    let logs = files.iter().filter(|(name, _)| has_extension(name, "jsonl"));
    logs.map(|(_, bytes)| text(bytes)).collect()
}

/// Asserts that an audit log ends with an entry for a run of `helper`, and that the head names it.
fn assert_audited(files: &BTreeMap<String, Vec<u8>>) {
    let log = text(&files["audit.jsonl"]);
    let mut newest = log.trim_end().lines().rev();
    let (last, before) = (newest.next().unwrap(), newest.next().unwrap());
    let before_seq = serde_json::from_str::<Value>(before).unwrap()["seq"].as_u64().unwrap();
    let mut entry: Value = serde_json::from_str(last).unwrap();
    for key in ["time", "run_id"] {
        assert!(
            entry.as_object_mut().unwrap().shift_remove(key).is_some_and(|value| value.is_string())
        );
    }
    let expected = json!({
        "format": 2, "seq": before_seq + 1, "caller": { "name": "main", "known_by": "fallback", "session_id": "session-now" },
        "operation": "run_subagent",
        "tool": "helper", "decision": "allow", "rule": "allowed_callers[0]",
        "reason": "`main` (as nothing says otherwise) may call `helper`; its allowed_callers name it",
        "prev": hash_of(before),
    });
    assert_eq!(entry, expected);
    let expected = json!({ "seq": before_seq + 1, "hash": hash_of(last), "bytes": log.len() });
    assert_eq!(head(files, "audit.jsonl"), expected);
}

#[test_case("rotated", 8, 1; "rotated files")]
#[test_case("pruned", 6, 4; "the oldest file was removed")]
#[test_case("newer-format", 8, 1; "an entry of a newer format")]
fn a_stored_audit_log_is_read_verified_and_continued(variant: &str, entries: usize, first: u64) {
    let context = project(&format!("audit/{variant}"));
    let before = stored(&context, "audit");
    let log = whole_log(&before);
    assert_eq!(log.lines().count(), entries);
    let shown = context.run(["audit", "--json"]);
    assert_eq!((lines(&shown.stdout), text(&shown.stderr)), (printed_lines(&log), ""));
    let newest = hash_of(log.lines().next_back().unwrap());
    let expected = json!({ "ok": true, "lines": entries, "newest_hash": newest, "problems": [] });
    assert_eq!(verified(&context), expected);
    assert_eq!(head(&before, "audit.jsonl")["seq"], first + entries as u64 - 1);
    assert_eq!(stored(&context, "audit"), before, "reading writes nothing");

    run_helper(&context);
    let after = stored(&context, "audit");
    assert_eq!(appended(&before["audit.jsonl"], &after["audit.jsonl"]).len(), 1);
    assert_audited(&after);
    let unchanged = |files: &BTreeMap<String, Vec<u8>>| {
        files
            .clone()
            .into_iter()
            .filter(|(name, _)| !name.starts_with("audit.jsonl"))
            .collect::<Vec<_>>()
    };
    assert_eq!(unchanged(&after), unchanged(&before), "rotated files");
    let verified = verified(&context);
    assert_eq!((&verified["lines"], &verified["problems"]), (&json!(entries + 1), &json!([])));
}

#[test]
fn the_torn_last_entry_of_an_audit_log_is_removed_and_the_whole_one_before_it_is_kept() {
    let context = project("audit/torn-line");
    let before = stored(&context, "audit");
    let log = text(&before["audit.jsonl"]);
    let whole = &log[..=log.rfind('\n').unwrap()];
    let torn = log.len() - whole.len();
    assert_eq!((whole.lines().count(), head(&before, "audit.jsonl")["seq"].as_u64()), (3, Some(8)));
    let problems = &verified(&context)["problems"];
    let kinds: Vec<(&str, u64)> = problems
        .as_array()
        .unwrap()
        .iter()
        .map(|problem| (problem["code"].as_str().unwrap(), problem["line"].as_u64().unwrap()))
        .collect();
    assert_eq!(kinds, [("unreadable", 4), ("unreadable", 4)]);
    run_helper(&context);
    let after = stored(&context, "audit");
    let new = appended(whole.as_bytes(), &after["audit.jsonl"]);
    assert_eq!(new.len(), 2);
    let mut repaired = new[0].clone();
    repaired.as_object_mut().unwrap().shift_remove("time");
    let expected = json!({
        "format": 2, "seq": 10, "operation": "log_repaired",
        "reason": format!("{torn} bytes of a line that was never finished were removed"),
        "prev": hash_of(whole.lines().next_back().unwrap()),
    });
    assert_eq!(repaired, expected);
    assert_audited(&after);
    let verified = verified(&context);
    assert_eq!((&verified["lines"], &verified["problems"]), (&json!(11), &json!([])));
}

#[test]
fn verify_finds_a_changed_audit_entry_and_appending_continues() {
    let context = project("audit/changed-line");
    let before = stored(&context, "audit");
    let problem = json!({
        "file": context.root().join("data/audit.000000000006.jsonl"), "line": 2, "code": "changed",
        "message": "number 4 was changed, or the hash of it that number 5 carries",
    });
    assert_eq!(verified(&context)["problems"], json!([problem]));
    run_helper(&context);
    let after = stored(&context, "audit");
    assert_eq!(appended(&before["audit.jsonl"], &after["audit.jsonl"]).len(), 1);
    assert_audited(&after);
    assert_eq!(verified(&context)["problems"], json!([problem]));
}

// Event log

/// Replaces the time of the first event of the current file; the length in the head stays correct.
fn set_begun(head: &Path, time: &str) {
    let text = fs::read_to_string(head).unwrap();
    let mut note: Value = serde_json::from_str(text.trim_end_matches('\n')).unwrap();
    note["begun"] = time.into();
    let note = note.to_string();
    let padding = "\n".repeat(192 - note.len());
    fs::write(head, note + &padding).unwrap();
}

/// A project whose current event file is not old enough to be rotated, whenever the test runs.
fn recent_events(variant: &str) -> TestContext {
    let context = project(&format!("events/{variant}"));
    set_begun(&context.root().join("data/events.jsonl.head"), "9999-01-02T03:04:05Z");
    context
}

/// One event from a hook of the main agent.
fn notify(context: &TestContext) {
    let payload = json!({ "hook_event_name": "Notification", "session_id": "session-b", "message": "it waits" });
    let mut hook = context.adjutant(["hook"]).stdin(Stdio::piped()).spawn().unwrap();
    hook.stdin.take().unwrap().write_all(payload.to_string().as_bytes()).unwrap();
    assert!(hook.wait().unwrap().success());
}

/// Asserts that these are the event of [`notify`] alone, and returns its number.
fn assert_notified(events: &[Value]) -> u64 {
    let [event] = events else { panic!("one event: {events:?}") };
    let mut event = event.clone();
    let seq = event["seq"].as_u64().unwrap();
    for key in ["time", "seq"] {
        event.as_object_mut().unwrap().shift_remove(key);
    }
    let expected = json!({
        "format": 2, "hook_event_name": "Notification", "session_id": "session-b", "message": "it waits",
    });
    assert_eq!(event, expected);
    seq
}

fn shown_events(context: &TestContext) -> Vec<Value> {
    lines(&context.run(["events", "--json"]).stdout)
}

#[test_case("rotated"; "rotated files")]
#[test_case("newer-format"; "an event of a newer format")]
fn a_stored_event_log_is_read_and_continued(variant: &str) {
    let context = recent_events(variant);
    let before = stored(&context, "events");
    assert_eq!(before.len(), 4, "two rotated files, the current one and its head");
    let log = whole_log(&before);
    assert_eq!(shown_events(&context), printed_lines(&log));
    let numbers: Vec<u64> =
        lines(log.as_bytes()).iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=11).collect::<Vec<_>>());
    assert_eq!(stored(&context, "events"), before, "reading writes nothing");

    notify(&context);
    let mut after = stored(&context, "events");
    let new = appended(&before["events.jsonl"], &after["events.jsonl"]);
    assert_eq!(assert_notified(&new), 12);
    let expected =
        json!({ "seq": 12, "bytes": after["events.jsonl"].len(), "begun": "9999-01-02T03:04:05Z" });
    assert_eq!(head(&after, "events.jsonl"), expected);
    for name in ["events.jsonl", "events.jsonl.head"] {
        after.insert(name.to_owned(), before[name].clone());
    }
    assert_eq!(after, before, "rotated files");
}

#[test]
fn an_event_file_older_than_seven_days_is_rotated_with_its_bytes_unchanged() {
    let context = project("events/rotated");
    set_begun(&context.root().join("data/events.jsonl.head"), "2020-01-02T03:04:05Z");
    let before = stored(&context, "events");
    notify(&context);
    let mut after = stored(&context, "events");
    assert_eq!(after.remove("events.000000000011.jsonl"), Some(before["events.jsonl"].clone()));
    assert_eq!(assert_notified(&lines(&after["events.jsonl"])), 12);
    assert_eq!(head(&after, "events.jsonl")["bytes"], after["events.jsonl"].len());
}

#[test]
fn a_torn_event_is_ended_with_a_line_feed_and_the_whole_one_before_it_is_kept() {
    let context = recent_events("torn-line");
    let before = stored(&context, "events");
    let log = whole_log(&before);
    let whole = &log[..=log.rfind('\n').unwrap()];
    assert_eq!(
        (whole.lines().count(), head(&before, "events.jsonl")["seq"].as_u64()),
        (12, Some(11))
    );
    assert_eq!(shown_events(&context), printed_lines(whole));
    notify(&context);
    let after = stored(&context, "events");
    let ended = [&before["events.jsonl"][..], b"\n"].concat();
    assert_eq!(assert_notified(&appended(&ended, &after["events.jsonl"])), 13);
    assert_eq!(head(&after, "events.jsonl")["seq"], 13);
}

#[test]
fn a_broken_event_is_skipped_and_not_removed() {
    let context = recent_events("broken-line");
    let before = stored(&context, "events");
    let log = whole_log(&before);
    let sound: String = log.split_inclusive('\n').filter(|line| line.starts_with('{')).collect();
    assert_eq!(sound.lines().count(), 10);
    assert_eq!(shown_events(&context), printed_lines(&sound));
    notify(&context);
    let after = stored(&context, "events");
    assert_eq!(assert_notified(&appended(&before["events.jsonl"], &after["events.jsonl"])), 12);
    assert_eq!(after["events.000000000009.jsonl"], before["events.000000000009.jsonl"]);
}

// Tokens

/// A stored time as the output has it; null if there is none.
fn with_millis(time: &Value) -> Value {
    time.as_str().map_or(Value::Null, |time| {
        let time: jiff::Timestamp = time.parse().unwrap();
        format!("{time:.3}").into()
    })
}

#[test]
fn stored_tokens_are_listed_and_rewritten_byte_for_byte() {
    let context = project("tokens/plain");
    let before = stored(&context, "tokens");
    let file: Value = golden_json("tokens/plain/data/tokens.json");
    let [ci, editor] = [0, 1].map(|at| file["tokens"][at].clone());
    assert_eq!((&ci["caller"], &editor["caller"]), (&json!("ci-bot"), &json!("editor")));
    let listed = |token: &Value| {
        json!({
            "token_id": token["id"], "caller": token["caller"], "expired": false,
            "created_at": with_millis(&token["created"]), "expires_at": with_millis(&token["expires"]),
        })
    };
    let mut expected = json!([listed(&ci), listed(&editor)]);
    for token in expected.as_array_mut().unwrap() {
        token.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    }
    assert_eq!(printed(&context.run(["token", "list", "--json"])), expected);
    // No token matches, but the file is still rewritten.
    let inode = |context: &TestContext| {
        std::os::unix::fs::MetadataExt::ino(
            &fs::metadata(context.root().join("data/tokens.json")).unwrap(),
        )
    };
    let first = inode(&context);
    assert_eq!(context.run(["token", "revoke", "nobody"]).status.code(), Some(3));
    assert_ne!(inode(&context), first);
    assert_eq!(stored(&context, "tokens"), before);
    assert!(context.run(["token", "revoke", "ci-bot"]).status.success());
    let mut left =
        serde_json::to_string_pretty(&json!({ "format": 1, "tokens": [editor] })).unwrap();
    left.push('\n');
    assert_eq!(text(&stored(&context, "tokens")["tokens.json"]), left);
}

#[test_case("newer-format", "it has format 2"; "a newer format")]
#[test_case("broken-entry", "a hash must be `sha256:` and 64 hex digits at line 7 column 87"; "a broken entry")]
#[test_case("torn", "EOF while parsing a value at line 14 column 6"; "a torn file")]
fn tokens_that_cannot_be_read_are_an_error_and_are_never_overwritten(variant: &str, why: &str) {
    let context = project(&format!("tokens/{variant}"));
    let before = stored(&context, "tokens");
    let path = context.root().join("data/tokens.json");
    let expected = format!(
        "error: `{}` cannot be read: {why}; nobody is let in until it can (move it away to start over)\n",
        path.display()
    );
    for arguments in
        [["token", "list"].as_slice(), &["token", "new", "x"], &["token", "revoke", "ci-bot"]]
    {
        let output = context.adjutant([]).args(arguments).output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(4), expected.as_str()));
    }
    assert_eq!(stored(&context, "tokens"), before);
}

// Tool pins

/// A gateway with the two pinned servers; the tool of the second one has the description `words`.
fn gateway(context: &TestContext, words: &str) -> McpClient {
    context.write("server.sh", SERVER_SCRIPT);
    let server = |words: &str| json!({ "command": "sh", "args": ["server.sh", words] });
    let servers =
        json!({ "mcpServers": { "same": server("Reads a file"), "changing": server(words) } });
    context.write(".mcp.json", servers.to_string());
    context
        .write(".mcp-gateway-rules.json", r#"{"agents": {"dev": {"allow": {"servers": ["*"]}}}}"#);
    let mut command = context.adjutant(["gateway"]);
    command.env("GATEWAY_DEBUG", "1");
    let mut client = McpClient::connect(command);
    for server in ["same", "changing"] {
        client.call_tool("get_server_tools", json!({ "agent_id": "dev", "server": server }));
    }
    client
}

fn status(client: &mut McpClient) -> Value {
    client.call_tool("get_gateway_status", json!({ "agent_id": "dev" }))["structuredContent"]
        .clone()
}

#[test]
fn stored_tool_pins_are_compared_with_and_rewritten_byte_for_byte() {
    let context = project("tool-pins/plain");
    let before = stored(&context, "tool-pins");
    let mut client = gateway(&context, "Reads a file\u{200b} and sends it");
    assert_eq!(status(&mut client)["changed_tools"], json!({ "changing": ["read"] }));
    assert_eq!(stored(&context, "tool-pins"), before, "the digests are the same");
    drop(client);
    let trusted = context.run(["trust", "changing"]);
    assert_eq!((trusted.status.code(), text(&trusted.stdout)), (Some(0), "changing: read\n"));
    let mut expected = golden_json("tool-pins/plain/data/tool-pins.json");
    let after = stored(&context, "tool-pins");
    let file: Value = serde_json::from_slice(&after["tool-pins.json"]).unwrap();
    let since = file["servers"]["changing"]["read"]["since"].clone();
    let pin = &mut expected["servers"]["changing"]["read"];
    assert_ne!(pin["since"], since);
    *pin = json!({ "accepted": pin["now"], "since": since });
    assert_eq!(text(&after["tool-pins.json"]), serde_json::to_string_pretty(&expected).unwrap());
}

#[test_case("newer-format", "it was written by a newer Adjutant"; "a newer format")]
#[test_case("broken-entry", "missing field `since` at line 9 column 7"; "a broken entry")]
#[test_case("torn", "EOF while parsing a value at line 14 column 8"; "a torn file")]
fn tool_pins_that_cannot_be_read_are_an_error_and_are_never_overwritten(variant: &str, why: &str) {
    let context = project(&format!("tool-pins/{variant}"));
    let before = stored(&context, "tool-pins");
    let path = context.root().join("data/tool-pins.json");
    let trusted = context.run(["trust", "changing"]);
    let expected = format!("error: `{}` cannot be used: {why}\n", path.display());
    assert_eq!((trusted.status.code(), text(&trusted.stderr)), (Some(4), expected.as_str()));
    let mut client = gateway(&context, "Reads a file\u{200b} and sends it");
    let expected = format!("`{}` cannot be used: {why}", path.display());
    assert_eq!(status(&mut client)["message"], expected);
    assert_eq!(stored(&context, "tool-pins"), before);
}

// Cache of the capabilities of `claude`

/// The `claude` of the cache: always of the same size and age.
fn install_claude(folder: &Path) -> PathBuf {
    let program = folder.join("claude");
    fs::write(&program, CLAUDE_SCRIPT).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let modified = SystemTime::UNIX_EPOCH + Duration::new(1_577_934_245, 123_456_789);
    fs::File::options().append(true).open(&program).unwrap().set_modified(modified).unwrap();
    program.canonicalize().unwrap()
}

/// Path of the cache for a program.
fn cache_file(context: &TestContext, program: &Path) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    program.hash(&mut hasher);
    context.home().join(format!(".cache/adjutant/claude-{:016x}.json", hasher.finish()))
}

#[test_case("plain", ""; "a sound cache")]
#[test_case("torn", "--help\n--version\n"; "a torn cache")]
fn the_stored_features_of_claude_are_used_and_a_torn_file_is_replaced(variant: &str, asked: &str) {
    let context = TestContext::new();
    let program = install_claude(&context.root());
    let cache = cache_file(&context, &program);
    fs::create_dir_all(cache.parent().unwrap()).unwrap();
    let of_program = |text: String| text.replace("@CLAUDE@", program.to_str().unwrap());
    fs::write(&cache, of_program(golden_text(&format!("claude-cache/{variant}/claude.json"))))
        .unwrap();
    let mut command = context.adjutant(["doctor", "--json"]);
    let report = printed(&command.env("ADJUTANT_CLAUDE", &program).output().unwrap());
    let found = report[0]["message"].as_str().unwrap();
    assert!(found.starts_with(&format!("`{}`, version 2.1.325", program.display())), "{found}");
    let mut questions: Vec<String> = fs::read_to_string(context.root().join("asked"))
        .unwrap_or_default()
        .lines()
        .map(|line| format!("{line}\n"))
        .collect();
    questions.sort();
    assert_eq!(questions.concat(), asked);
    let expected = of_program(golden_text("claude-cache/plain/claude.json"));
    assert_eq!(fs::read_to_string(&cache).unwrap(), expected);
}
