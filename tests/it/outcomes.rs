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
        ("BUDGET_EXCEEDED", 5, "used up its budget of $0.01"),
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

#[test]
fn a_budget_that_is_spent_refuses_the_next_call_and_says_which() {
    let context = TestContext::new();
    context.agent("helper", "---\nname: helper\ndescription: Helps\n---\nHelp.\n");
    context.write("agents/defaults.yaml", "budgets: { helper: { per_day_usd: 1 } }\n");
    let today = adjutant::base::now();
    let spent = format!(
        "{{\"time\":\"{today}\",\"hook_event_name\":\"RunEnded\",\"agent_type\":\"helper\",\"cost_usd\":1.25}}\n"
    );
    context.write("data/events.jsonl", spent);
    let mut command = context.adjutant(["run", "helper", "FAKE result hello", "--json"]);
    let output = command.env("ADJUTANT_CLAUDE", fake_claude()).output().expect("it runs");
    let told = report(&output)["error"].as_str().unwrap_or_default().to_owned();
    assert!(told.starts_with("BUDGET_EXCEEDED: `helper` has cost $1.25 of $1 today"), "{told}");
    assert!(told.contains("00:00 UTC"), "{told}");
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
