//! The process pool (warm and live processes) with the real `claude` of both versions.

use std::collections::HashSet;
use std::fs;
use std::io::Write;

use serde_json::{Value, json};
use test_case::test_case;

use crate::support::claude_context::{ClaudeContext, NEW, OLD};
use crate::support::idle_processes::{
    call_agent, idle_processes, is_alive, pids_of_runs, wait_for_idle_process, wait_until_gone,
};
use crate::support::mcp::result_text;
use crate::support::wait::wait_until;

const SESSION_AGENT: &str = "---\nname: keeper\ndescription: Remembers\nsession: true\ntimeout_ms: 120000\n---\nYou remember what was said.\n";
const WARM_AGENT: &str = "---\nname: fetcher\ndescription: Fetches\nwarm: 1\ntimeout_ms: 120000\n\
    permissions:\n  allow: [\"Bash(echo:*)\"]\n---\nYou fetch.\n";

fn claude_project(version: &str, agent: &str, text: &str) -> Option<ClaudeContext> {
    let fixture = ClaudeContext::new(version)?;
    fixture.agent(agent, text);
    Some(fixture)
}

fn last_request(fixture: &ClaudeContext) -> String {
    fixture.model.requests().last().expect("the model was asked").body.to_string()
}

#[test_case(NEW)]
#[test_case(OLD)]
fn session_continues_in_the_same_process(version: &str) {
    let Some(fixture) = claude_project(version, "keeper", SESSION_AGENT) else { return };
    let mut server = fixture.serve();
    let first = call_agent(&mut server, "keeper", "USAGE 1000 100\nSAY the word is plum");
    let kept = wait_for_idle_process(&fixture.context);
    let second = call_agent(&mut server, "keeper", "USAGE 1000 100\nSAY fine");
    assert_eq!((&second["result"], &second["session_id"]), (&json!("fine"), &first["session_id"]));
    assert_eq!(pids_of_runs(&fixture.context, 2), [kept, kept]);
    assert!(last_request(&fixture).contains("the word is plum"), "{}", last_request(&fixture));
    let (one, two) = (first["cost_usd"].as_f64().unwrap(), second["cost_usd"].as_f64().unwrap());
    assert!((one - two).abs() < one / 2.0, "each call costs what it costs: {one}, {two}");

    // A run of another program takes over the session and sees everything that was said.
    let third = fixture.run("keeper", "SAY from elsewhere");
    assert_eq!((&third["result"], third.get("note")), (&json!("from elsewhere"), None), "{third}");
    assert_eq!(third["session_id"], first["session_id"]);
    assert!(!is_alive(kept), "two processes never have one conversation");
    let fourth = call_agent(&mut server, "keeper", "SAY done");
    assert_eq!(fourth["session_id"], first["session_id"]);
    assert!(last_request(&fixture).contains("from elsewhere"));

    server.disconnect();
    server.wait_for_exit();
    assert_eq!(processes_of_project(&fixture), Vec::<u64>::new());
}

#[test_case(NEW)]
#[test_case(OLD)]
fn warm_process_serves_one_call_and_is_replaced(version: &str) {
    let Some(fixture) = claude_project(version, "fetcher", WARM_AGENT) else { return };
    let mut server = fixture.serve();
    let warm = wait_for_idle_process(&fixture.context);
    assert_eq!(fixture.model.requests().len(), 0, "it has not asked the model anything");
    let call = json!({ "command": "echo $ADJUTANT_RUN" });
    let first = call_agent(&mut server, "fetcher", &format!("CALL Bash {call}\nSAY one"));
    assert_eq!(first["result"], "one", "{first}");
    assert_eq!(pids_of_runs(&fixture.context, 1), [warm]);
    wait_until_gone(warm);
    let next = wait_for_idle_process(&fixture.context);
    assert_ne!(warm, next);
    call_agent(&mut server, "fetcher", "SAY two");
    wait_until("the end of both runs", || fixture.events_named("RunEnded").get(1).cloned());
    assert_eq!(pids_of_runs(&fixture.context, 2), [warm, next]);
    assert!(!last_request(&fixture).contains("SAY one"), "never two conversations in one process");
    let timing = fixture.adjutant(["runs", "show", "last", "--timing"]).output().unwrap();
    let timing = String::from_utf8(timing.stdout).unwrap();
    for (step, is_there) in [("queue", true), ("model", true), ("spawn", false)] {
        assert_eq!(timing.lines().any(|line| line.starts_with(step)), is_there, "{timing}");
    }
}

#[test]
fn a5_changed_agent_file_is_never_used_with_an_old_process() {
    let Some(fixture) = claude_project(NEW, "fetcher", WARM_AGENT) else { return };
    fixture.agent("keeper", SESSION_AGENT);
    let mut server = fixture.serve();
    let warm = wait_for_idle_process(&fixture.context);
    call_agent(&mut server, "keeper", "SAY the word is plum");
    let live = wait_until("the live one", || {
        idle_processes(&fixture.context).iter().find(|entry| entry["agent"] == "keeper")?["pid"]
            .as_u64()
    });
    fixture.agent("fetcher", &WARM_AGENT.replace("You fetch.", "You fetch PEARS."));
    let wider =
        SESSION_AGENT.replace("session:", "permissions: { allow: [\"Bash(touch:*)\"] }\nsession:");
    fixture.agent("keeper", &wider.replace("You remember", "You FOREVER remember"));
    call_agent(&mut server, "fetcher", "SAY one");
    assert!(last_request(&fixture).contains("You fetch PEARS."), "the new file counts at once");
    call_agent(&mut server, "keeper", "CALL Bash {\"command\":\"touch wider\"}\nSAY two");
    let request = last_request(&fixture);
    assert!(request.contains("You FOREVER remember") && request.contains("plum"), "{request}");
    assert!(fixture.root().join("wider").exists(), "a live conversation has the new rights");
    let used: HashSet<u64> = pids_of_runs(&fixture.context, 3).into_iter().skip(1).collect();
    assert!(!used.contains(&warm) && !used.contains(&live));
    wait_until_gone(warm);
    wait_until_gone(live);
}

/// The agent's file gains a permission while the first run waits; only the second run has the new permission.
#[test_case(NEW)]
#[test_case(OLD)]
fn a5_run_keeps_the_permissions_it_started_with(version: &str) {
    let narrow = WARM_AGENT.replace("warm: 1\n", "").replace("Bash(echo:*)", "Bash(sh wait.sh)");
    let wide = narrow.replace("wait.sh)\"", "wait.sh)\", \"Bash(touch:*)\"");
    let Some(fixture) = claude_project(version, "fetcher", &narrow) else { return };
    let root = fixture.root();
    // A script instead of `cat`, because claude inspects files that it is told to read.
    fixture.write("wait.sh", "cat gate\n");
    let gate = root.join("gate");
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let touch = |name: &str| format!("CALL Bash {}", json!({ "command": format!("touch {name}") }));
    let first = format!("CALL Bash {}\n{}", json!({ "command": "sh wait.sh" }), touch("first"));
    let mut server = fixture.serve();
    let task = json!({ "agent_name": "fetcher", "prompt": first });
    let call =
        server.send_request("tools/call", json!({ "name": "run_subagent", "arguments": task }));
    // Blocks until the agent's shell opens the FIFO for reading.
    let mut opened = fs::OpenOptions::new().write(true).open(&gate).unwrap();
    fixture.agent("fetcher", &wide);
    let second = call_agent(&mut server, "fetcher", &touch("second"));
    assert!(root.join("second").exists(), "the wider file is in force: {second}");
    opened.write_all(b"open\n").unwrap();
    drop(opened);
    let first = server.answer(call);
    let denials = &first["structuredContent"]["denials"];
    assert_eq!((denials[0]["tool"].as_str(), denials.as_array().unwrap().len()), (Some("Bash"), 1));
    assert!(!root.join("first").exists(), "it has the rights it started with: {first}");
}

#[test]
fn killed_idle_process_fails_no_call() {
    let Some(fixture) = claude_project(NEW, "fetcher", WARM_AGENT) else { return };
    fixture.agent("keeper", SESSION_AGENT);
    let mut server = fixture.serve();
    let warm = wait_for_idle_process(&fixture.context);
    kill(warm);
    let first = call_agent(&mut server, "fetcher", "SAY one");
    assert_eq!(first["result"], "one", "{first}");
    let before = call_agent(&mut server, "keeper", "SAY plum");
    let live = wait_until("the live one", || {
        idle_processes(&fixture.context).iter().find(|entry| entry["agent"] == "keeper")?["pid"]
            .as_u64()
    });
    kill(live);
    let after = call_agent(&mut server, "keeper", "SAY two");
    assert_eq!((&after["result"], &after["session_id"]), (&json!("two"), &before["session_id"]));
    assert!(last_request(&fixture).contains("plum"), "the conversation went on");
}

#[test]
fn idle_processes_end_with_their_server() {
    let Some(fixture) = claude_project(NEW, "fetcher", WARM_AGENT) else { return };
    fixture.agent("keeper", SESSION_AGENT);
    for is_killed in [false, true] {
        let mut server = fixture.serve();
        call_agent(&mut server, "keeper", "SAY plum");
        let pids: Vec<u64> = wait_until("both", || {
            let pids: Vec<u64> =
                idle_processes(&fixture.context).iter().filter_map(|c| c["pid"].as_u64()).collect();
            (pids.len() == 2).then_some(pids)
        });
        if is_killed {
            server.child().kill().unwrap();
            server.child().wait().unwrap();
            wait_until("their end", || processes_of_project(&fixture).is_empty().then_some(()));
        } else {
            server.disconnect();
            server.wait_for_exit();
            assert_eq!(
                processes_of_project(&fixture),
                Vec::<u64>::new(),
                "they are gone before the server is"
            );
        }
        assert!(pids.iter().all(|pid| !is_alive(*pid)));
        assert_eq!(idle_processes(&fixture.context), Vec::<Value>::new());
    }
}

#[test]
fn idle_process_can_be_stopped_and_does_not_count_towards_max_runs() {
    let Some(fixture) = claude_project(NEW, "fetcher", WARM_AGENT) else { return };
    fixture.write("agents/defaults.yaml", "max_runs: 1\n");
    let mut server = fixture.serve();
    let warm = wait_for_idle_process(&fixture.context);
    let entry = idle_processes(&fixture.context)[0]["run_id"].as_str().unwrap().to_owned();
    let plain = fixture.adjutant(["runs", "list"]).output().unwrap();
    assert!(plain.stdout.is_empty(), "only runs are listed: {plain:?}");
    assert!(fixture.adjutant(["runs", "stop", &entry]).status().unwrap().success());
    wait_until_gone(warm);
    call_agent(&mut server, "fetcher", "SAY one");
}

/// Each call costs $0.01 and may cost $0.02. The CLI counts per process, so a process is retired after two calls.
#[test_case(NEW)]
#[test_case(OLD)]
fn live_process_is_reused_while_its_budget_allows_another_call(version: &str) {
    let file =
        SESSION_AGENT.replace("session:", "model: claude-opus-4-8\nmax_budget_usd: 0.02\nsession:");
    let Some(fixture) = claude_project(version, "keeper", &file) else { return };
    let mut server = fixture.serve();
    for number in 0..4 {
        let answer = call_agent(&mut server, "keeper", "USAGE 100 400\nSAY fine");
        let cost = answer["cost_usd"].as_f64().expect("what it cost");
        assert!((cost - 0.0105).abs() < 1e-9, "call {number} costs what it costs: {answer}");
    }
    let used = pids_of_runs(&fixture.context, 4);
    assert_eq!((used[0], used[2]), (used[1], used[3]), "two calls have a process: {used:?}");
    assert_ne!(used[1], used[2], "and no third: {used:?}");

    // The budget of a call is the same in a process that has already served a call.
    call_agent(&mut server, "keeper", "USAGE 100 100\nSAY cheap");
    let expensive =
        json!({ "agent_name": "keeper", "prompt": "USAGE 100 800\nCALL Bash {}\nSAY never" });
    let told = server.call_tool("run_subagent", expensive);
    let expected = "BUDGET_EXCEEDED: `keeper` has cost $0.0205 of $0.02 in this call";
    assert!(result_text(&told).starts_with(expected), "{told}");
    let used = pids_of_runs(&fixture.context, 6);
    assert_eq!(used[4], used[5], "{used:?}");
}

fn kill(pid: u64) {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
}

/// Processes on this machine that were started for this project.
fn processes_of_project(fixture: &ClaudeContext) -> Vec<u64> {
    let home = fixture.home().display().to_string();
    let marked = |pid: &u64| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let text = String::from_utf8_lossy(&environment).into_owned();
        text.contains(&home) && text.contains("ADJUTANT_RUN=") && is_alive(*pid)
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(marked).collect()
}
