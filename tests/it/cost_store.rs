//! Kill tests of the cost ledger: no acknowledged cost is lost and none is counted twice.
//!
//! Costs are written by separate processes: this test binary, started again as [`cost_writer`], and real servers.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

use adjutant::costs::{CostEntry, CostLedger};
use adjutant::util::{RunId, now};
use serde_json::json;
use test_case::test_case;

use crate::support::TestContext;
use crate::support::claude_context::report;
use crate::support::fake_claude::fake_claude;
use crate::support::mcp::McpClient;

const DATA_VARIABLE: &str = "COST_PAYER_DATA";
const SESSION_VARIABLE: &str = "COST_PAYER_SESSION";
/// A power of two, so that sums are exact.
const COST_PER_ENTRY: f64 = 0.25;

fn cost_entry(session: &str) -> CostEntry {
    let (agent, session) = ("payer".to_owned(), session.to_owned());
    CostEntry { time: now(), run: RunId::new(), agent, session, cost_usd: COST_PER_ENTRY, ended: 1 }
}

/// Child process: writes costs, and prints `paid` for each one that is committed. Does nothing by itself.
#[test]
#[ignore = "started by other tests as a process of its own"]
fn cost_writer() {
    let (Some(data), Ok(session)) = (env::var_os(DATA_VARIABLE), env::var(SESSION_VARIABLE)) else {
        return;
    };
    let ledger = CostLedger::at(Path::new(&data));
    for _ in 0..10_000 {
        ledger.post(cost_entry(&session));
        let mut stdout = std::io::stdout();
        writeln!(stdout, "\npaid").unwrap();
        stdout.flush().unwrap();
        // The lock is not fair: without a pause one writer would starve the other. A server pauses too.
        thread::sleep(Duration::from_millis(3));
    }
}

/// Fills the journal to `kept` lines below its compaction threshold, so that some kills hit the compaction.
fn fill_journal(data: &Path, kept: usize) {
    let mut names = fs::read_dir(data).unwrap().flatten().map(|entry| entry.path());
    let journal = names.find(|path| path.extension().is_some_and(|ending| ending == "journal"));
    let journal = journal.unwrap_or_else(|| data.join("costs-0.journal"));
    let lines = fs::read_to_string(&journal).map_or(0, |text| text.matches('\n').count());
    let line = serde_json::to_string(&CostEntry { cost_usd: 0.0, ..cost_entry("filler") }).unwrap();
    let mut file = fs::OpenOptions::new().append(true).create(true).open(&journal).unwrap();
    let text = format!("{line}\n").repeat(1_000_usize.saturating_sub(lines + kept));
    file.write_all(text.as_bytes()).unwrap();
}

/// F4: an acknowledged cost is in the ledger; an unacknowledged one is there at most once. 100 rounds, two kills each.
#[test]
fn f4_no_kill_loses_a_cost_or_counts_it_twice() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir_all(&data).unwrap();
    let mut told: BTreeMap<String, u32> = BTreeMap::new();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for number in 0..100_u64 {
        if !has_torn_line(&data) {
            fill_journal(&data, 4);
        }
        // Two writers at once: one of them continues after the other's torn line.
        let sessions = [format!("a{number}"), format!("b{number}")];
        let mut cost_writers = sessions.clone().map(|session| {
            let mut program = Command::new(env::current_exe().unwrap());
            let program = program.args([
                "--exact",
                "cost_store::cost_writer",
                "--ignored",
                "--nocapture",
                "--test-threads=1",
            ]);
            let program = program.env(DATA_VARIABLE, &data).env(SESSION_VARIABLE, session);
            program.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
        });
        let mut outputs = cost_writers
            .each_mut()
            .map(|cost_writer| BufReader::new(cost_writer.stdout.take().unwrap()));
        let mut texts = [String::new(), String::new()];
        for (output, text) in outputs.iter_mut().zip(&mut texts) {
            while !text.contains("\npaid\n") && output.read_line(text).unwrap() > 0 {}
        }
        for cost_writer in &mut cost_writers {
            thread::sleep(Duration::from_micros(random.next() % 5_000));
            cost_writer.kill().unwrap();
        }
        for ((cost_writer, output), (text, session)) in
            cost_writers.iter_mut().zip(&mut outputs).zip(texts.iter_mut().zip(sessions))
        {
            output.read_to_string(text).unwrap();
            cost_writer.wait().unwrap();
            told.insert(session, u32::try_from(text.matches("\npaid\n").count()).unwrap());
        }
        let ledger = CostLedger::at(&data);
        for (session, paid) in &told {
            let found = ledger.spent_by_session(session).unwrap() / COST_PER_ENTRY;
            let most = f64::from(paid + 1);
            assert!(found >= f64::from(*paid), "kill {number}: {session} lost {paid} - {found}");
            assert!(found <= most, "kill {number}: {session} has {found} of {paid}");
        }
    }
    assert!(told.values().sum::<u32>() >= 50, "the payers did work: {told:?}");
    assert!(data.join("costs.json").exists(), "some kills fell into the folding");
}

/// Returns whether a kill left a torn line. The next writer overwrites it; the test must not append behind it.
fn has_torn_line(data: &Path) -> bool {
    let mut names = fs::read_dir(data).unwrap().flatten().map(|entry| entry.path());
    names.any(|path| fs::read(path).is_ok_and(|text| !text.is_empty() && !text.ends_with(b"\n")))
}

/// F4: a server is killed in the middle of its runs, 12 times.
#[test]
fn f4_a_killed_server_has_recorded_each_answered_run_exactly_once() {
    let context = TestContext::new();
    context.agent("helper", "---\nname: helper\ndescription: Helps\n---\nHelp.\n");
    let mut random = Random(7);
    let mut told = BTreeMap::new();
    for number in 0..12_u32 {
        let session = format!("session-{number}");
        let mut command = context.adjutant(["serve"]);
        command.env("ADJUTANT_CLAUDE", fake_claude()).env("CLAUDE_CODE_SESSION_ID", &session);
        let mut server = McpClient::connect(command);
        let call = json!({ "agent_name": "helper", "prompt": "FAKE result hello" });
        let ids = [(); 4].map(|()| {
            server.send_request("tools/call", json!({ "name": "run_subagent", "arguments": call }))
        });
        // The first answer shows that all runs are at work; the kill hits while the others end.
        server.answer(ids[0]);
        thread::sleep(Duration::from_micros(random.next() % 30_000));
        server.child().kill().unwrap();
        server.child().wait().unwrap();
        told.insert(session, 1 + server.count_responses_after_exit(&ids[1..]));
    }
    let costs = report(&context.run(["costs", "--by", "session", "--json"]));
    let rows = costs.as_array().unwrap();
    for (session, answered) in told {
        let row = rows.iter().find(|row| row["session_id"] == session.as_str());
        let cents = row.and_then(|row| row["cost_usd"].as_f64()).unwrap_or_default() * 100.0;
        let answered = f64::from(u32::try_from(answered).unwrap());
        assert!(cents > answered - 1e-6, "{session}: {cents} cents for {answered} answers");
        assert!(cents < 4.0 + 1e-6, "{session}: {cents} cents for four calls");
        assert!((cents - cents.round()).abs() < 1e-6, "{session}: no part of a call: {cents}");
    }
}

/// The ledger is read as soon as the answer is there: what it lacks then would be lost if the server were killed now.
#[test_case("", "FAKE result hello", 0.01; "an answer")]
#[test_case("session: true\n", "FAKE result hello", 0.01; "an answer in a session")]
#[test_case("", "FAKE crash", 0.0; "a failure")]
#[test_case("idle_timeout_ms: 1500\n", "FAKE hang-mid-turn", 0.0; "a timeout")]
fn the_costs_of_a_run_are_settled_before_its_answer_is_sent(
    settings: &str,
    prompt: &str,
    cost_usd: f64,
) {
    let context = TestContext::new();
    let file = format!("---\nname: helper\ndescription: Helps\n{settings}---\nHelp.\n");
    context.agent("helper", &file);
    let mut command = context.adjutant(["serve"]);
    command.env("ADJUTANT_CLAUDE", fake_claude());
    let mut server = McpClient::connect(command);
    for _ in 0..3 {
        let arguments = json!({ "agent_name": "helper", "prompt": prompt });
        let answer = server.call_tool("run_subagent", arguments);
        let journal = fs::read_to_string(context.root().join("data/costs-0.journal"));
        let report = match answer["isError"] == true {
            true => &answer["_meta"]["adjutant/error"],
            false => &answer["structuredContent"],
        };
        let run: RunId = report["run_id"].as_str().unwrap().parse().unwrap();
        let journal = journal.unwrap_or_else(|error| panic!("{error}: {answer}"));
        let payments = journal.lines().map(|line| serde_json::from_str::<CostEntry>(line).unwrap());
        let payments: Vec<CostEntry> = payments.filter(|payment| payment.run == run).collect();
        let paid: f64 = payments.iter().map(|payment| payment.cost_usd).sum();
        let ends = payments.iter().map(|payment| payment.ended).sum::<u64>();
        assert!((paid - cost_usd).abs() < 1e-9, "{answer}: {payments:?}");
        assert_eq!(ends, 1, "{answer}: {payments:?}");
    }
}

/// Deterministic pseudo-random numbers (linear congruential generator).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}
