//! The ledger of costs under fire: whoever is killed while writing, no cost is lost and none counts twice.
//!
//! The payers are processes of their own: this test program, started again as [`payer`], and real servers.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use adjutant::base::{RunId, now};
use adjutant::record::{CostLedger, Payment};
use serde_json::json;

use crate::support::TestContext;
use crate::support::fake::fake_claude;
use crate::support::mcp::McpClient;
use crate::support::stage::report;

const DATA: &str = "COST_PAYER_DATA";
const SESSION: &str = "COST_PAYER_SESSION";
/// A power of two, so that sums are exact.
const EACH: f64 = 0.25;

fn payment(session: &str) -> Payment {
    let (agent, session) = ("payer".to_owned(), session.to_owned());
    Payment { time: now(), run: RunId::new(), agent, session, cost_usd: EACH, ended: 1 }
}

/// The child: pays, and says on stdout what is paid for good.
#[test]
fn payer() {
    let (Some(data), Ok(session)) = (env::var_os(DATA), env::var(SESSION)) else { return };
    let ledger = CostLedger::at(Path::new(&data));
    for _ in 0..10_000 {
        ledger.pay(payment(&session));
        let mut stdout = std::io::stdout();
        writeln!(stdout, "\npaid").unwrap();
        stdout.flush().unwrap();
        // A server does other things between two payments; the lock is not fair to whoever waits.
        thread::sleep(Duration::from_millis(3));
    }
}

/// The journal a few lines before it is folded into the store, so that kills fall into the folding too.
fn fill_journal(data: &Path, kept: usize) {
    let mut names = fs::read_dir(data).unwrap().flatten().map(|entry| entry.path());
    let journal = names.find(|path| path.extension().is_some_and(|ending| ending == "journal"));
    let journal = journal.unwrap_or_else(|| data.join("costs-0.journal"));
    let lines = fs::read_to_string(&journal).map_or(0, |text| text.matches('\n').count());
    let line = serde_json::to_string(&Payment { cost_usd: 0.0, ..payment("filler") }).unwrap();
    let mut file = fs::OpenOptions::new().append(true).create(true).open(&journal).unwrap();
    let text = format!("{line}\n").repeat(1_000_usize.saturating_sub(lines + kept));
    file.write_all(text.as_bytes()).unwrap();
}

/// F4: what was told as paid is there, what was not told is there once at most.
#[test]
fn f4_no_kill_loses_a_cost_or_counts_it_twice() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir_all(&data).unwrap();
    let mut told: BTreeMap<String, u32> = BTreeMap::new();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for number in 0..30_u64 {
        if !has_torn_line(&data) {
            fill_journal(&data, 4);
        }
        // Two at once: the other one goes on where this one was torn away.
        let sessions = [format!("a{number}"), format!("b{number}")];
        let mut payers = sessions.clone().map(|session| {
            let mut program = Command::new(env::current_exe().unwrap());
            let program =
                program.args(["--exact", "cost_store::payer", "--nocapture", "--test-threads=1"]);
            let program = program.env(DATA, &data).env(SESSION, session);
            program.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
        });
        let mut outputs =
            payers.each_mut().map(|payer| BufReader::new(payer.stdout.take().unwrap()));
        let mut texts = [String::new(), String::new()];
        for (output, text) in outputs.iter_mut().zip(&mut texts) {
            while !text.contains("\npaid\n") && output.read_line(text).unwrap() > 0 {}
        }
        for payer in &mut payers {
            thread::sleep(Duration::from_micros(random.next() % 5_000));
            payer.kill().unwrap();
        }
        for ((payer, output), (text, session)) in
            payers.iter_mut().zip(&mut outputs).zip(texts.iter_mut().zip(sessions))
        {
            output.read_to_string(text).unwrap();
            payer.wait().unwrap();
            told.insert(session, u32::try_from(text.matches("\npaid\n").count()).unwrap());
        }
        let ledger = CostLedger::at(&data);
        for (session, paid) in &told {
            let found = ledger.spent_by_session(session) / EACH;
            let most = f64::from(paid + 1);
            assert!(found >= f64::from(*paid), "kill {number}: {session} lost {paid} - {found}");
            assert!(found <= most, "kill {number}: {session} has {found} of {paid}");
        }
    }
    assert!(told.values().sum::<u32>() >= 50, "the payers did work: {told:?}");
    assert!(data.join("costs.json").exists(), "some kills fell into the folding");
}

/// A line that a kill has torn is written over by the next payment; nobody else may put something behind it.
fn has_torn_line(data: &Path) -> bool {
    let mut names = fs::read_dir(data).unwrap().flatten().map(|entry| entry.path());
    names.any(|path| fs::read(path).is_ok_and(|text| !text.is_empty() && !text.ends_with(b"\n")))
}

/// F4: a server that is killed in the middle of its runs, again and again.
#[test]
fn f4_a_killed_server_has_paid_for_what_it_answered_and_for_nothing_twice() {
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
            server.begin("tools/call", json!({ "name": "run_subagent", "arguments": call }))
        });
        // The first answer says that they are at work; the kill comes while the others end.
        server.answer(ids[0]);
        thread::sleep(Duration::from_micros(random.next() % 30_000));
        server.child().kill().unwrap();
        server.child().wait().unwrap();
        told.insert(session, 1 + server.answers_so_far(&ids[1..]));
    }
    let costs = report(&context.run(["costs", "--by", "session", "--json"]));
    let rows = costs["rows"].as_array().unwrap();
    for (session, answered) in told {
        let row = rows.iter().find(|row| row["session"] == session.as_str());
        let cents = row.and_then(|row| row["cost_usd"].as_f64()).unwrap_or_default() * 100.0;
        let answered = f64::from(u32::try_from(answered).unwrap());
        assert!(cents > answered - 1e-6, "{session}: {cents} cents for {answered} answers");
        assert!(cents < 4.0 + 1e-6, "{session}: {cents} cents for four calls");
        assert!((cents - cents.round()).abs() < 1e-6, "{session}: no part of a call: {cents}");
    }
}

/// Numbers that look like chance and are the same every time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}
