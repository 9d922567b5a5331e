//! Every way a run can end, and what the caller is told. `docs/outcomes.md` is made from the same cases.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::TestContext;
use crate::support::fake::fake_claude;
use crate::support::stage::report;

/// A way to end: what the child does at its start and in its turn, and the limits of the agent.
struct Case {
    what: &'static str,
    at_start: &'static str,
    prompt: &'static str,
    limits: &'static str,
    code: &'static str,
    exit: i32,
    says: &'static str,
}

const fn case(
    what: &'static str,
    at_start: &'static str,
    prompt: &'static str,
    limits: &'static str,
    (code, exit, says): (&'static str, i32, &'static str),
) -> Case {
    Case { what, at_start, prompt, limits, code, exit, says }
}

const CASES: &[Case] = &[
    case("it answers", "", "FAKE result hello", "", ("", 0, "hello")),
    case(
        "it never gets ready",
        "hang-at-start",
        "x",
        "timeout_ms: 700\n",
        ("TIMEOUT", 124, "had no answer within 700 ms"),
    ),
    case(
        "it hangs in its turn",
        "",
        "FAKE say half\nFAKE hang-mid-turn",
        "timeout_ms: 1500\n",
        ("TIMEOUT", 124, "had no answer within 1500 ms"),
    ),
    case(
        "it is silent for too long",
        "",
        "FAKE hang-mid-turn",
        "idle_timeout_ms: 600\n",
        ("TIMEOUT", 124, "gave no sign of life for 600 ms"),
    ),
    case(
        "it ends before it is ready",
        "exit-at-start 3 no home",
        "x",
        "",
        ("CLAUDE_FAILED", 1, "no home"),
    ),
    case(
        "it does not know a flag",
        "refuse-flag --tools",
        "x",
        "",
        ("CLAUDE_FAILED", 1, "does not know a flag"),
    ),
    case(
        "its last line is torn",
        "",
        "FAKE torn-line",
        "",
        ("CLAUDE_FAILED", 1, "ended without a result"),
    ),
    case(
        "it ends without a result",
        "",
        "FAKE no-result",
        "",
        ("CLAUDE_FAILED", 1, "ended without a result"),
    ),
    case(
        "it is killed",
        "",
        "FAKE say half\nFAKE crash",
        "",
        ("CLAUDE_FAILED", 1, "ended by signal 9"),
    ),
    case(
        "the API fails",
        "",
        "FAKE is-error Credit balance is too low",
        "",
        ("CLAUDE_FAILED", 1, "Credit balance is too low"),
    ),
    case(
        "it uses up its turns",
        "",
        "FAKE subtype error_max_turns",
        "max_turns: 3\n",
        ("MAX_TURNS", 5, "used up its turns of 3"),
    ),
    case(
        "it uses up its budget",
        "",
        "FAKE subtype error_max_budget_usd",
        "max_budget_usd: 0.01\n",
        ("BUDGET_EXCEEDED", 5, "has cost $0.0100 of $0.01 in this call"),
    ),
    case(
        "its answer does not fit",
        "",
        "FAKE result prose",
        "output_format: json\noutput_retries: 0\n",
        ("OUTPUT_INVALID", 6, "is not what its file asks for"),
    ),
    case(
        "it answers for another session",
        "",
        "FAKE wrong-session",
        "session: true\n",
        ("CLAUDE_FAILED", 1, "worked in session"),
    ),
];

#[test]
fn every_way_to_end_is_told_as_it_was() {
    let mut rows = Vec::new();
    for case in CASES {
        let (report, exit) = play(case);
        let told = told(&report);
        assert_eq!(exit, case.exit, "{}: {report}", case.what);
        assert_eq!(
            report["code"].as_str().unwrap_or_default(),
            case.code,
            "{}: {report}",
            case.what
        );
        assert!(told.contains(case.says), "{}: {told}", case.what);
        if case.prompt.contains("FAKE say half") {
            assert_eq!(report["partial"], "half", "{}: {report}", case.what);
        }
        let code = if case.code.is_empty() { "–".to_owned() } else { format!("`{}`", case.code) };
        rows.push(format!(
            "| {} | {code} | {} | {} |",
            case.what,
            case.exit,
            told.replace('|', "\\|")
        ));
    }
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/outcomes.md"))
        .expect("the page");
    for row in &rows {
        assert!(
            page.contains(row),
            "docs/outcomes.md lacks a row; all of them:\n{}",
            rows.join("\n")
        );
    }
}

fn play(case: &Case) -> (Value, i32) {
    let context = TestContext::new();
    let env = format!("env: {{ FAKE_CLAUDE: \"{}\" }}\n", case.at_start);
    let env = if case.at_start.is_empty() { "" } else { &env };
    context.agent(
        "helper",
        &format!("---\nname: helper\ndescription: Helps\n{}{env}---\nHelp.\n", case.limits),
    );
    let mut command = context.adjutant(["run", "helper", case.prompt, "--json"]);
    let output = command.env("ADJUTANT_CLAUDE", fake_claude()).output().expect("it runs");
    (report(&output), output.status.code().unwrap_or(-1))
}

/// The answer or the error, without what differs from machine to machine.
fn told(report: &Value) -> String {
    let told = report["error"].as_str().or(report["result"].as_str()).unwrap_or_default();
    let words = told.split(' ').map(|word| match word {
        word if word.contains("/agents/helper/agent.md") => {
            word.split_at(word.find("/agents").unwrap()).1.trim_start_matches('/').to_owned()
        }
        word if word.matches('-').count() == 4 && word.len() >= 36 => "…".to_owned(),
        word => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// `adjutant run helper` with a fake `claude` that takes a cent for a turn, in a session of the main agent.
fn spend(context: &TestContext, session: &str) -> Value {
    let mut command = context.adjutant(["run", "helper", "FAKE result hello", "--json"]);
    let command = command.env("ADJUTANT_CLAUDE", fake_claude());
    report(&command.env("CLAUDE_CODE_SESSION_ID", session).output().expect("it runs"))
}

#[test]
fn a_daily_budget_that_is_spent_refuses_the_next_call_and_says_which() {
    let context = TestContext::new();
    context.agent("helper", "---\nname: helper\ndescription: Helps\n---\nHelp.\n");
    context.write("agents/defaults.yaml", "budgets: { helper: { per_day_usd: 0.02 } }\n");
    assert_eq!(spend(&context, "one")["result"], "hello");
    // The ledger is its own: the record of events may be gone.
    let _ = fs::remove_file(context.root().join("data/events.jsonl"));
    assert_eq!(spend(&context, "two")["cost_usd"], 0.01);
    let told = spend(&context, "three")["error"].as_str().unwrap_or_default().to_owned();
    let expected =
        "BUDGET_EXCEEDED: `helper` has cost $0.0200 of $0.02 today (`budgets.helper.per_day_usd`)";
    assert!(told.starts_with(expected), "{told}");
    assert!(told.contains("It resets at 00:00 UTC, in "), "{told}");
}

#[test]
fn a_session_budget_counts_everything_one_session_started_and_nothing_else() {
    let context = TestContext::new();
    context.agent("helper", "---\nname: helper\ndescription: Helps\n---\nHelp.\n");
    context.write("agents/defaults.yaml", "session_budget_usd: 0.02\n");
    assert_eq!(spend(&context, "one")["result"], "hello");
    assert_eq!(spend(&context, "two")["result"], "hello");
    assert_eq!(spend(&context, "one")["result"], "hello");
    let told = spend(&context, "one")["error"].as_str().unwrap_or_default().to_owned();
    let expected = "BUDGET_EXCEEDED: everything that this session has started has cost $0.0200 of $0.02 (`session_budget_usd`)";
    assert!(told.starts_with(expected), "{told}");
    assert_eq!(spend(&context, "two")["result"], "hello");

    let costs = context.run(["costs", "--by", "session", "--json"]);
    let costs = report(&costs);
    assert_eq!(costs["total"], serde_json::json!({ "runs": 4, "cost_usd": 0.04 }));
    assert_eq!(costs["rows"][0]["cost_usd"], 0.02);
}

#[test]
fn where_callers_must_be_attested_nobody_else_is_served() {
    let context = TestContext::new();
    context.agent("helper", "---\nname: helper\ndescription: Helps\n---\nHelp.\n");
    context.write("agents/defaults.yaml", "identity: required\n");
    let mut command = context.adjutant(["run", "helper", "FAKE result hello", "--json"]);
    let output = command.env("ADJUTANT_CLAUDE", fake_claude()).output().expect("it runs");
    assert_eq!(report(&output)["code"], "CALLER_NOT_ALLOWED");
}
