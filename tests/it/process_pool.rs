//! Processes that are kept between calls, with the real `claude` of both versions.

use std::collections::HashSet;
use std::fs;
use std::io::Write;

use serde_json::{Value, json};
use test_case::test_case;

use crate::support::mcp::text;
use crate::support::stage::{NEW, OLD, Stage};
use crate::support::waiting::{ask, gone, is_alive, one_waits, pids, wait_for, waiting};

const KEEPER: &str = "---\nname: keeper\ndescription: Remembers\nsession: true\ntimeout_ms: 120000\n---\nYou remember what was said.\n";
const FETCHER: &str = "---\nname: fetcher\ndescription: Fetches\nwarm: 1\ntimeout_ms: 120000\n\
    permissions:\n  allow: [\"Bash(echo:*)\"]\n---\nYou fetch.\n";

fn stage(version: &str, agent: &str, text: &str) -> Option<Stage> {
    let stage = Stage::new(version)?;
    stage.context.agent(agent, text);
    Some(stage)
}

fn last_request(stage: &Stage) -> String {
    stage.model.requests().last().expect("the model was asked").body.to_string()
}

#[test_case(NEW)]
#[test_case(OLD)]
fn a_conversation_goes_on_in_the_same_process(version: &str) {
    let Some(stage) = stage(version, "keeper", KEEPER) else { return };
    let mut server = stage.serve();
    let first = ask(&mut server, "keeper", "USAGE 1000 100\nSAY the word is plum");
    let kept = one_waits(&stage.context);
    let second = ask(&mut server, "keeper", "USAGE 1000 100\nSAY fine");
    assert_eq!((&second["result"], &second["session_id"]), (&json!("fine"), &first["session_id"]));
    assert_eq!(pids(&stage.context.root(), 2), [kept, kept]);
    assert!(last_request(&stage).contains("the word is plum"), "{}", last_request(&stage));
    let (one, two) = (first["cost_usd"].as_f64().unwrap(), second["cost_usd"].as_f64().unwrap());
    assert!((one - two).abs() < one / 2.0, "each call costs what it costs: {one}, {two}");

    // Another program wants the conversation: it gets it, and hears everything that was said.
    let third = stage.run("keeper", "SAY from elsewhere");
    assert_eq!((&third["result"], third.get("note")), (&json!("from elsewhere"), None), "{third}");
    assert_eq!(third["session_id"], first["session_id"]);
    assert!(!is_alive(kept), "two processes never have one conversation");
    let fourth = ask(&mut server, "keeper", "SAY done");
    assert_eq!(fourth["session_id"], first["session_id"]);
    assert!(last_request(&stage).contains("from elsewhere"));

    server.hang_up();
    server.ends();
    assert_eq!(left_of(&stage), Vec::<u64>::new());
}

#[test_case(NEW)]
#[test_case(OLD)]
fn a_warm_process_serves_one_call_and_is_replaced(version: &str) {
    let Some(stage) = stage(version, "fetcher", FETCHER) else { return };
    let mut server = stage.serve();
    let warm = one_waits(&stage.context);
    assert_eq!(stage.model.requests().len(), 0, "it has not asked the model anything");
    let call = json!({ "command": "echo $ADJUTANT_RUN" });
    let first = ask(&mut server, "fetcher", &format!("CALL Bash {call}\nSAY one"));
    assert_eq!(first["result"], "one", "{first}");
    assert_eq!(pids(&stage.context.root(), 1), [warm]);
    gone(warm);
    let next = one_waits(&stage.context);
    assert_ne!(warm, next);
    ask(&mut server, "fetcher", "SAY two");
    wait_for("the record's end", || {
        let events = fs::read_to_string(stage.context.root().join("data/events.jsonl")).ok()?;
        (events.matches("RunEnded").count() >= 2).then_some(())
    });
    assert_eq!(pids(&stage.context.root(), 2), [warm, next]);
    assert!(!last_request(&stage).contains("SAY one"), "never two conversations in one process");
    let timing = stage.adjutant(["runs", "show", "last", "--timing"]).output().unwrap();
    let timing = String::from_utf8(timing.stdout).unwrap();
    for (step, is_there) in [("queue", true), ("model", true), ("spawn", false)] {
        assert_eq!(timing.lines().any(|line| line.starts_with(step)), is_there, "{timing}");
    }
}

#[test]
fn a5_a_changed_file_never_meets_an_old_process() {
    let Some(stage) = stage(NEW, "fetcher", FETCHER) else { return };
    stage.context.agent("keeper", KEEPER);
    let mut server = stage.serve();
    let warm = one_waits(&stage.context);
    ask(&mut server, "keeper", "SAY the word is plum");
    let live = wait_for("the live one", || {
        waiting(&stage.context).iter().find(|card| card["agent"] == "keeper")?["pid"].as_u64()
    });
    stage.context.agent("fetcher", &FETCHER.replace("You fetch.", "You fetch PEARS."));
    let wider = KEEPER.replace("session:", "permissions: { allow: [\"Bash(touch:*)\"] }\nsession:");
    stage.context.agent("keeper", &wider.replace("You remember", "You FOREVER remember"));
    ask(&mut server, "fetcher", "SAY one");
    assert!(last_request(&stage).contains("You fetch PEARS."), "the new file counts at once");
    ask(&mut server, "keeper", "CALL Bash {\"command\":\"touch wider\"}\nSAY two");
    let request = last_request(&stage);
    assert!(request.contains("You FOREVER remember") && request.contains("plum"), "{request}");
    assert!(stage.context.root().join("wider").exists(), "a live conversation has the new rights");
    let used: HashSet<u64> = pids(&stage.context.root(), 3).into_iter().skip(1).collect();
    assert!(!used.contains(&warm) && !used.contains(&live));
    gone(warm);
    gone(live);
}

/// The first run stands at a gate while its agent's file is made wider, and a second run has the wider rights already.
#[test_case(NEW)]
#[test_case(OLD)]
fn a5_a_run_keeps_the_contract_it_started_with(version: &str) {
    let narrow = FETCHER.replace("warm: 1\n", "").replace("Bash(echo:*)", "Bash(sh wait.sh)");
    let wide = narrow.replace("wait.sh)\"", "wait.sh)\", \"Bash(touch:*)\"");
    let Some(stage) = stage(version, "fetcher", &narrow) else { return };
    let root = stage.context.root();
    // Not `cat` itself: claude looks at the files that it is told to read.
    stage.context.write("wait.sh", "cat gate\n");
    let gate = root.join("gate");
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let touch = |name: &str| format!("CALL Bash {}", json!({ "command": format!("touch {name}") }));
    let first = format!("CALL Bash {}\n{}", json!({ "command": "sh wait.sh" }), touch("first"));
    let mut server = stage.serve();
    let task = json!({ "agent_name": "fetcher", "prompt": first });
    let call = server.begin("tools/call", json!({ "name": "run_subagent", "arguments": task }));
    // Opens when its shell reads it.
    let mut opened = fs::OpenOptions::new().write(true).open(&gate).unwrap();
    stage.context.agent("fetcher", &wide);
    let second = ask(&mut server, "fetcher", &touch("second"));
    assert!(root.join("second").exists(), "the wider file is in force: {second}");
    opened.write_all(b"open\n").unwrap();
    drop(opened);
    let first = server.answer(call);
    let denials = &first["structuredContent"]["denials"];
    assert_eq!((denials[0]["tool"].as_str(), denials.as_array().unwrap().len()), (Some("Bash"), 1));
    assert!(!root.join("first").exists(), "it has the rights it started with: {first}");
}

#[test]
fn a_process_that_was_killed_while_it_waited_costs_no_call() {
    let Some(stage) = stage(NEW, "fetcher", FETCHER) else { return };
    stage.context.agent("keeper", KEEPER);
    let mut server = stage.serve();
    let warm = one_waits(&stage.context);
    kill(warm);
    let first = ask(&mut server, "fetcher", "SAY one");
    assert_eq!(first["result"], "one", "{first}");
    let before = ask(&mut server, "keeper", "SAY plum");
    let live = wait_for("the live one", || {
        waiting(&stage.context).iter().find(|card| card["agent"] == "keeper")?["pid"].as_u64()
    });
    kill(live);
    let after = ask(&mut server, "keeper", "SAY two");
    assert_eq!((&after["result"], &after["session_id"]), (&json!("two"), &before["session_id"]));
    assert!(last_request(&stage).contains("plum"), "the conversation went on");
}

#[test]
fn nothing_that_waits_outlives_its_server() {
    let Some(stage) = stage(NEW, "fetcher", FETCHER) else { return };
    stage.context.agent("keeper", KEEPER);
    for is_killed in [false, true] {
        let mut server = stage.serve();
        ask(&mut server, "keeper", "SAY plum");
        let pids: Vec<u64> = wait_for("both", || {
            let pids: Vec<u64> =
                waiting(&stage.context).iter().filter_map(|c| c["pid"].as_u64()).collect();
            (pids.len() == 2).then_some(pids)
        });
        if is_killed {
            server.child().kill().unwrap();
            server.child().wait().unwrap();
            wait_for("their end", || left_of(&stage).is_empty().then_some(()));
        } else {
            server.hang_up();
            server.ends();
            assert_eq!(left_of(&stage), Vec::<u64>::new(), "they are gone before the server is");
        }
        assert!(pids.iter().all(|pid| !is_alive(*pid)));
        assert_eq!(waiting(&stage.context), Vec::<Value>::new());
    }
}

#[test]
fn a_process_that_waits_can_be_stopped_by_hand_and_takes_part_in_no_limit_of_runs() {
    let Some(stage) = stage(NEW, "fetcher", FETCHER) else { return };
    stage.context.write("agents/defaults.yaml", "max_runs: 1\n");
    let mut server = stage.serve();
    let warm = one_waits(&stage.context);
    let card = waiting(&stage.context)[0]["run"].as_str().unwrap().to_owned();
    let plain = stage.adjutant(["runs", "list"]).output().unwrap();
    assert!(plain.stdout.is_empty(), "only runs are listed: {plain:?}");
    assert!(stage.adjutant(["runs", "stop", &card]).status().unwrap().success());
    gone(warm);
    ask(&mut server, "fetcher", "SAY one");
}

/// Each call costs a cent and may cost two. The CLI counts for the life of a process, so one that has had two cents ends.
#[test_case(NEW)]
#[test_case(OLD)]
fn a_conversation_with_a_budget_goes_on_in_its_process_while_that_has_money(version: &str) {
    let file = KEEPER.replace("session:", "model: claude-opus-4-8\nmax_budget_usd: 0.02\nsession:");
    let Some(stage) = stage(version, "keeper", &file) else { return };
    let mut server = stage.serve();
    for number in 0..4 {
        let answer = ask(&mut server, "keeper", "USAGE 100 400\nSAY fine");
        let cost = answer["cost_usd"].as_f64().expect("what it cost");
        assert!((cost - 0.0105).abs() < 1e-9, "call {number} costs what it costs: {answer}");
    }
    let used = pids(&stage.context.root(), 4);
    assert_eq!((used[0], used[2]), (used[1], used[3]), "two calls have a process: {used:?}");
    assert_ne!(used[1], used[2], "and no third: {used:?}");

    // In a process that has had a call already, the budget of the next one holds just the same.
    ask(&mut server, "keeper", "USAGE 100 100\nSAY cheap");
    let dear =
        json!({ "agent_name": "keeper", "prompt": "USAGE 100 800\nCALL Bash {}\nSAY never" });
    let told = server.call("run_subagent", dear);
    let expected = "BUDGET_EXCEEDED: `keeper` has cost $0.0205 of $0.02 in this call";
    assert!(text(&told).starts_with(expected), "{told}");
    let used = pids(&stage.context.root(), 6);
    assert_eq!(used[4], used[5], "{used:?}");
}

fn kill(pid: u64) {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
}

/// Processes on this machine that were started for this project.
fn left_of(stage: &Stage) -> Vec<u64> {
    let home = stage.context.home().display().to_string();
    let marked = |pid: &u64| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let text = String::from_utf8_lossy(&environment).into_owned();
        text.contains(&home) && text.contains("ADJUTANT_RUN=") && is_alive(*pid)
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(marked).collect()
}
