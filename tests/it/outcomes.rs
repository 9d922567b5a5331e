//! Every way a run can end and the report for it. The table in `docs/outcomes.md` has one row per case.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::{fs, thread};

use adjutant::cli::ExitStatus;
use adjutant::outcome::Code;
use serde_json::{Value, json};

use crate::support::TestContext;
use crate::support::claude_context::report;
use crate::support::fake_claude::fake_claude;
use crate::support::mcp::McpClient;
use crate::support::text::error_text;
use crate::support::wait::wait_until;

/// One outcome: behaviour of the fake `claude` at start and in its turn, settings, and the expected report.
struct Case {
    title: &'static str,
    at_start: &'static str,
    prompt: &'static str,
    /// Settings in the agent's file.
    agent_settings: &'static str,
    /// `agents/defaults.yaml`.
    defaults: &'static str,
    trigger: Trigger,
    code: &'static str,
    exit: i32,
    expected_text: &'static str,
}

/// The command or call that produces the outcome.
#[derive(Clone, Copy)]
enum Trigger {
    /// `adjutant run helper PROMPT`.
    Run,
    /// `Run`, after a first run that cost $0.01.
    SecondRun,
    /// `Run`, after this function has prepared the project.
    PreparedProject(fn(&TestContext)),
    /// `Run`, for an agent of another name.
    OtherAgent(&'static str),
    /// `Run`, with another program as `claude`.
    OtherClaude(&'static str),
    /// `Run`; the function is called once the run has started.
    WhileRunning(fn(&TestContext, &mut Child)),
    /// A call over MCP, which returns a report but has no exit status.
    OverMcp(fn(&TestContext) -> Value),
}

const fn case(
    what: &'static str,
    at_start: &'static str,
    prompt: &'static str,
    limits: &'static str,
    (code, exit, says): (&'static str, i32, &'static str),
) -> Case {
    Case {
        title: what,
        at_start,
        prompt,
        agent_settings: limits,
        defaults: "",
        trigger: Trigger::Run,
        code,
        exit,
        expected_text: says,
    }
}

impl Case {
    const fn how(self, how: Trigger) -> Self {
        Self { trigger: how, ..self }
    }

    const fn defaults(self, defaults: &'static str) -> Self {
        Self { defaults, ..self }
    }
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
        "it writes a line without end",
        "",
        "FAKE say half\nFAKE long-line 3",
        "",
        ("CLAUDE_FAILED", 1, "a line of more than 1048576 bytes"),
    )
    .defaults("max_line_mb: 1\n"),
    case(
        "the account has no credit",
        "",
        "FAKE is-error Credit balance is too low",
        "",
        ("CLAUDE_FAILED", 1, "no credit left, and trying again will not help"),
    ),
    case(
        "the API cannot be reached, twice",
        "",
        "FAKE is-error Connection dropped (ECONNRESET)",
        "",
        ("CLAUDE_FAILED", 1, "it may pass"),
    ),
    case(
        "claude fails in words of its own",
        "",
        "FAKE subtype error_during_execution",
        "",
        ("CLAUDE_FAILED", 1, "claude failed for `helper`"),
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
        "its agent has spent what it may in a day",
        "",
        "FAKE result hello",
        "",
        ("BUDGET_EXCEEDED", 5, "has cost $0.0100 of $0.01 today"),
    )
    .defaults("budgets: { helper: { per_day_usd: 0.01 } }\n")
    .how(Trigger::SecondRun),
    case(
        "its session has spent what it may",
        "",
        "FAKE result hello",
        "",
        (
            "BUDGET_EXCEEDED",
            5,
            "everything that this session has started has cost $0.0100 of $0.01",
        ),
    )
    .defaults("session_budget_usd: 0.01\n")
    .how(Trigger::SecondRun),
    case(
        "its answer does not fit",
        "",
        "FAKE result prose",
        "output_format: json\noutput_retries: 0\n",
        ("OUTPUT_INVALID", 6, "is not what its file asks for"),
    ),
    case(
        "its answer does not fit its schema",
        "",
        "FAKE result {\"score\": \"high\"}",
        "output_schema: { required: [score, why], properties: { score: { type: integer } } }\noutput_retries: 0\n",
        ("OUTPUT_INVALID", 6, "at /score expected type integer, found \"high\""),
    ),
    case(
        "claude gives up asking for the form",
        "",
        "FAKE subtype error_max_structured_output_retries",
        "output_schema: { type: object, required: [score] }\noutput_retries: 0\n",
        ("OUTPUT_INVALID", 6, "is not what its file asks for"),
    ),
    case(
        "it answers for another session",
        "",
        "FAKE wrong-session",
        "session: true\n",
        ("CLAUDE_FAILED", 1, "worked in session"),
    ),
    case(
        "the caller does not want it any more",
        "",
        "FAKE say half\nFAKE hang-mid-turn",
        "",
        ("CANCELLED", 130, "was cancelled"),
    )
    .how(Trigger::WhileRunning(interrupt)),
    case(
        "a person stops it",
        "",
        "FAKE say half\nFAKE hang-mid-turn",
        "",
        ("CANCELLED", 130, "stopped by `adjutant runs stop`"),
    )
    .how(Trigger::WhileRunning(stop)),
    case("no agent has that name", "", "x", "", ("AGENT_NOT_FOUND", 3, "helpr"))
        .how(Trigger::OtherAgent("helpr")),
    case("its file is wrong", "", "x", "timeout_ms: soon\n", ("AGENT_INVALID", 3, "timeout_ms")),
    case(
        "it takes no calls from this caller",
        "",
        "x",
        "allowed_callers: [another]\n",
        ("CALLER_NOT_ALLOWED", 3, "main"),
    ),
    case(
        "nothing attests the caller, and that is required",
        "",
        "x",
        "",
        ("CALLER_NOT_ALLOWED", 3, "identity: required"),
    )
    .defaults("identity: required\n"),
    case(
        "the caller says that it is another one",
        "",
        "x",
        "",
        ("IDENTITY_MISMATCH", 3, "comes from"),
    )
    .how(Trigger::OverMcp(call_with_false_claim)),
    case("the prompt is empty", "", " ", "", ("INVALID_ARGUMENT", 2, "prompt")),
    case("claude is not there", "", "x", "", ("SPAWN_FAILED", 4, "/nowhere/claude"))
        .how(Trigger::OtherClaude("/nowhere/claude")),
    case(
        "a variable is not set",
        "",
        "x",
        "env: { KEY: \"${NOT_SET_ANYWHERE}\" }\n",
        ("SPAWN_FAILED", 4, "NOT_SET_ANYWHERE"),
    ),
    case(
        "its sandbox cannot be made",
        "",
        "x",
        "sandbox: workspace\n",
        ("SANDBOX_UNAVAILABLE", 4, "there is no login"),
    ),
    case(
        "a server of its own does not start",
        "",
        "x",
        "mcp_servers: { own: { command: /nowhere/server } }\n",
        ("SERVER_UNAVAILABLE", 4, "own"),
    ),
    case(
        "another call has the conversation",
        "",
        "x",
        "session: true\n",
        ("SESSION_BUSY", 75, "helper"),
    )
    .defaults("session_wait_ms: 100\n")
    .how(Trigger::OverMcp(second_of_two)),
    case("there is no room for another run", "", "x", "", ("TOO_MANY_RUNS", 75, ""))
        .defaults("max_runs: 1\nmax_queue: 0\n")
        .how(Trigger::OverMcp(second_of_two)),
    case(
        "it has a budget, and what was spent cannot be read",
        "",
        "x",
        "",
        ("STORE_UNAVAILABLE", 4, "costs.json"),
    )
    .defaults("budgets: { helper: { per_day_usd: 5 } }\n")
    .how(Trigger::PreparedProject(|context| {
        fs::create_dir_all(context.root().join("data/costs.json")).expect("a folder in its place");
    })),
    case(
        "its conversations cannot be read",
        "",
        "x",
        "session: true\n",
        ("STORE_UNAVAILABLE", 4, "sessions.json"),
    )
    .how(Trigger::PreparedProject(|context| {
        fs::create_dir_all(context.root().join("data/sessions.json"))
            .expect("a folder in its place");
    })),
    case(
        "nobody can tell whether its conversation is in use",
        "",
        "x",
        "session: true\n",
        ("STORE_UNAVAILABLE", 4, "Is a directory"),
    )
    .how(Trigger::PreparedProject(|context| {
        fs::create_dir_all(context.root().join("data/leases/lock")).expect("a folder in its place");
    })),
    case(
        "the audit log cannot be written",
        "",
        "x",
        "",
        ("AUDIT_UNAVAILABLE", 4, "the audit log cannot be written"),
    )
    .how(Trigger::PreparedProject(|context| {
        fs::create_dir_all(context.root().join("data/audit.jsonl")).expect("a folder in its place");
    })),
];

#[test]
fn every_outcome_matches_its_row_in_the_docs() {
    let rows: Vec<String> = thread::scope(|scope| {
        // Four threads: most cases spend their time waiting.
        let parts = CASES.chunks(CASES.len().div_ceil(4));
        let threads: Vec<_> = parts
            .map(|part| scope.spawn(|| part.iter().map(check_and_format_row).collect::<Vec<_>>()))
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("each case")).collect()
    });
    let told = |code: &Code| CASES.iter().any(|case| case.code == code.as_str());
    // Needs bubblewrap: tested in `sandbox::agents`.
    let told = |code: &Code| *code == Code::Interrupted || told(code);
    let missing: Vec<&Code> = Code::ALL.iter().filter(|code| !told(code)).collect();
    assert!(missing.is_empty(), "no case for {missing:?}");
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

/// Runs one case, checks it, and returns its table row.
fn check_and_format_row(case: &Case) -> String {
    let (report, exit) = run_case(case);
    let told = normalized_message(&report);
    assert_eq!(exit, case.exit, "{}: {report}", case.title);
    assert_eq!(
        report["error"]["code"].as_str().unwrap_or_default(),
        case.code,
        "{}: {report}",
        case.title
    );
    assert!(told.contains(case.expected_text), "{}: {told}", case.title);
    if case.prompt.contains("FAKE say half") {
        assert_eq!(report["partial"], "half", "{}: {report}", case.title);
    }
    if case.code == "OUTPUT_INVALID" {
        let errors = report["error"]["mismatches"].as_array().map_or(0, Vec::len);
        assert!(errors > 0, "{}: {report}", case.title);
    }
    let code = if case.code.is_empty() { "–".to_owned() } else { format!("`{}`", case.code) };
    format!("| {} | {code} | {} | {} |", case.title, case.exit, told.replace('|', "\\|"))
}

fn run_case(case: &Case) -> (Value, i32) {
    let context = TestContext::new();
    let env = format!("env: {{ FAKE_CLAUDE: \"{}\" }}\n", case.at_start);
    let env = if case.at_start.is_empty() { "" } else { &env };
    context.agent(
        "helper",
        &format!("---\nname: helper\ndescription: Helps\n{}{env}---\nHelp.\n", case.agent_settings),
    );
    if !case.defaults.is_empty() {
        context.write("agents/defaults.yaml", case.defaults);
    }
    let (agent, claude) = match case.trigger {
        Trigger::OtherAgent(name) => (name, fake_claude()),
        Trigger::OtherClaude(claude) => ("helper", PathBuf::from(claude)),
        Trigger::Run
        | Trigger::SecondRun
        | Trigger::PreparedProject(_)
        | Trigger::WhileRunning(_)
        | Trigger::OverMcp(_) => ("helper", fake_claude()),
    };
    let mut command = context.adjutant(["run", agent, case.prompt, "--json"]);
    command.env("ADJUTANT_CLAUDE", claude).env("CLAUDE_CODE_SESSION_ID", "one");
    let output = match case.trigger {
        Trigger::OverMcp(call) => {
            let report = call(&context);
            let code = Code::ALL.into_iter().find(|code| report["error"]["code"] == code.as_str());
            return (report, code.map_or(-1, |code| ExitStatus::of_run(code).number().into()));
        }
        Trigger::WhileRunning(happens) => {
            let mut child =
                command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
            wait_until("what it writes", || {
                (!context.events_named("SessionStart").is_empty()).then_some(())
            });
            happens(&context, &mut child);
            child.wait_with_output()
        }
        Trigger::SecondRun => {
            assert!(command.output().expect("it runs").status.success());
            command.output()
        }
        Trigger::PreparedProject(prepare) => {
            prepare(&context);
            command.output()
        }
        Trigger::Run | Trigger::OtherAgent(_) | Trigger::OtherClaude(_) => command.output(),
    };
    let output = output.expect("it runs");
    (report(&output), output.status.code().unwrap_or(-1))
}

fn interrupt(_: &TestContext, child: &mut Child) {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
}

fn stop(context: &TestContext, _: &mut Child) {
    assert!(context.run(["runs", "stop", "last"]).status.success());
}

fn serve(context: &TestContext) -> McpClient {
    let mut command = context.adjutant(["serve"]);
    command.env("ADJUTANT_CLAUDE", fake_claude());
    McpClient::connect(command)
}

/// Calls an agent while another call to the same agent is running.
fn second_of_two(context: &TestContext) -> Value {
    let mut server = serve(context);
    let mut ask = |prompt: &str| {
        let arguments = json!({ "agent_name": "helper", "prompt": prompt });
        server.send_request("tools/call", json!({ "name": "run_subagent", "arguments": arguments }))
    };
    ask("FAKE hang-mid-turn");
    wait_until("the first", || (!context.events_named("SessionStart").is_empty()).then_some(()));
    let second = ask("x");
    server.answer(second)["_meta"]["adjutant/error"].clone()
}

/// A call that the hook attests as the main agent's and that claims another caller.
fn call_with_false_claim(context: &TestContext) -> Value {
    let mut server = serve(context);
    let id = "outcomes.claim";
    let payload = json!({ "session_id": "s1", "hook_event_name": "PreToolUse", "tool_input": {},
        "tool_name": "mcp__adjutant__run_subagent", "tool_use_id": id });
    let mut hook = context.adjutant(["hook"]).stdin(Stdio::piped()).spawn().unwrap();
    hook.stdin.take().unwrap().write_all(payload.to_string().as_bytes()).unwrap();
    assert!(hook.wait().unwrap().success());
    let arguments = json!({ "agent_name": "helper", "prompt": "x", "agent_id": "another" });
    let call = json!({ "name": "run_subagent", "arguments": arguments, "_meta": { "claudecode/toolUseId": id } });
    server.request("tools/call", call)["_meta"]["adjutant/error"].clone()
}

/// The answer or error, without parts that differ between runs: paths, ids, pids and times.
fn normalized_message(report: &Value) -> String {
    let mut told = match report["result"].as_str() {
        Some(result) => result.to_owned(),
        None => error_text(report),
    };
    if let Some((before, after)) = told.split_once("UTC, in ") {
        let after = after.split_once(';').expect("when, and what else").1;
        told = format!("{before}UTC, in …;{after}");
    }
    let mut before = "";
    let words = told.split(' ').map(|word| match (std::mem::replace(&mut before, word), word) {
        ("process", _) => "…".to_owned(),
        ("(run", _) => "…).".to_owned(),
        (_, word) if word.starts_with("20") && word.matches('-').count() == 2 => "…".to_owned(),
        (_, word) if word.len() == 8 && word.matches(':').count() == 2 => "…".to_owned(),
        (_, word) if word.contains("/agents/helper/agent.md") => {
            word.split_at(word.find("/agents").unwrap()).1.trim_start_matches('/').to_owned()
        }
        (_, word) if word.matches('-').count() == 4 && word.len() >= 36 => "…".to_owned(),
        (_, word) => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// `adjutant run helper` in a main session, with a fake `claude` that costs $0.01 per turn.
fn run_for_one_cent(context: &TestContext, session: &str) -> Value {
    let mut command = context.adjutant(["run", "helper", "FAKE result hello", "--json"]);
    let command = command.env("ADJUTANT_CLAUDE", fake_claude());
    report(&command.env("CLAUDE_CODE_SESSION_ID", session).output().expect("it runs"))
}

#[test]
fn exhausted_daily_budget_rejects_the_next_call_and_names_the_budget() {
    let context = TestContext::new();
    context.agent("helper", "---\nname: helper\ndescription: Helps\n---\nHelp.\n");
    context.write("agents/defaults.yaml", "budgets: { helper: { per_day_usd: 0.02 } }\n");
    assert_eq!(run_for_one_cent(&context, "one")["result"], "hello");
    // Costs are in the ledger, not in the event log, which may be deleted.
    let _ = fs::remove_file(context.root().join("data/events.jsonl"));
    assert_eq!(run_for_one_cent(&context, "two")["cost_usd"], 0.01);
    let told = error_text(&run_for_one_cent(&context, "three"));
    let (reason, way_out) = told.split_once(" 00:00 UTC, in ").expect("when it resets");
    assert_eq!(
        reason,
        "BUDGET_EXCEEDED: `helper` has cost $0.0200 of $0.02 today (`budgets.helper.per_day_usd`). It resets at"
    );
    assert!(way_out.ends_with("; or raise it in agents/defaults.yaml."), "{told}");
}

#[test]
fn session_budget_counts_the_runs_of_one_main_session() {
    let context = TestContext::new();
    context.agent("helper", "---\nname: helper\ndescription: Helps\n---\nHelp.\n");
    context.write("agents/defaults.yaml", "session_budget_usd: 0.02\n");
    assert_eq!(run_for_one_cent(&context, "one")["result"], "hello");
    assert_eq!(run_for_one_cent(&context, "two")["result"], "hello");
    assert_eq!(run_for_one_cent(&context, "one")["result"], "hello");
    let told = error_text(&run_for_one_cent(&context, "one"));
    let expected = "BUDGET_EXCEEDED: everything that this session has started has cost $0.0200 of $0.02 (`session_budget_usd`)";
    assert!(told.starts_with(expected), "{told}");
    assert_eq!(run_for_one_cent(&context, "two")["result"], "hello");

    let costs = context.run(["costs", "--by", "session", "--json"]);
    let costs = report(&costs);
    let costs = costs.as_array().unwrap();
    assert_eq!(costs.iter().map(|row| row["runs"].as_u64().unwrap()).sum::<u64>(), 4);
    assert_eq!([&costs[0]["cost_usd"], &costs[1]["cost_usd"]], [0.02, 0.02]);
}
