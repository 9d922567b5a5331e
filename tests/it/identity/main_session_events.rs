//! Events of a real main `claude` and its native subagents: agent, duration, and one end for every start.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use test_case::test_case;

use super::{identity_project, run_main_agent, start_main_agent};
use crate::support::claude_context::{ClaudeContext, NEW, OLD};
use crate::support::wait::wait_until;

/// Events of Claude Code's own agents, without those of runs, in order.
fn main_session_events(fixture: &ClaudeContext) -> Vec<Value> {
    let mut events = fixture.events();
    events.retain(|event| event.get("run_id").is_none());
    events
}

fn text_field<'a>(event: &'a Value, key: &str) -> &'a str {
    event[key].as_str().unwrap_or_default()
}

/// Agent and event name of each event.
fn agents_and_names(events: &[Value]) -> Vec<(&str, &str)> {
    let agent = |event: &'_ Value| event["agent_type"].as_str().map_or("main", |_| "code-reviewer");
    events.iter().map(|event| (agent(event), text_field(event, "hook_event_name"))).collect()
}

#[test_case(NEW)]
#[test_case(OLD)]
fn events_of_main_and_subagents_name_their_agent_and_duration(version: &str) {
    let Some(fixture) = identity_project(version) else { return };
    let task = json!({
        "description": "review", "subagent_type": "code-reviewer", "run_in_background": false,
        "prompt": "CALL Bash {\"command\":\"echo hi\"}\nSAY reviewed",
    });
    let script = format!("CALL Task {task}\nCALL Bash {{\"command\":\"false\"}}\nSAY done");
    run_main_agent(&fixture, &script);
    let events = main_session_events(&fixture);
    let (main, reviewer) = ("main", "code-reviewer");
    let expected = [
        (main, "SessionStart"),
        (main, "UserPromptSubmit"),
        (main, "PreToolUse"),
        (reviewer, "SubagentStart"),
        (reviewer, "PreToolUse"),
        (reviewer, "PostToolUse"),
        (reviewer, "SubagentStop"),
        (main, "PostToolUse"),
        (main, "PreToolUse"),
        (main, "PostToolUseFailure"),
        (main, "Stop"),
        (main, "SessionEnd"),
    ];
    assert_eq!(agents_and_names(&events), expected);
    let ends = ["PostToolUse", "PostToolUseFailure", "SubagentStop", "Stop", "SessionEnd"];
    for (event, (agent, name)) in events.iter().zip(expected) {
        assert_eq!(event["duration_ms"].is_u64(), ends.contains(&name), "{event}");
        let three = ["agent_id", "agent_type", "agent_transcript_path"];
        let said = three.map(|key| event[key].is_string());
        assert_eq!(said, [agent == reviewer; 3], "{event}");
        assert!(agent == reviewer || three.iter().all(|key| event.get(key).is_none()), "{event}");
        if agent == reviewer {
            assert!(Path::new(text_field(event, "agent_transcript_path")).is_file(), "{event}");
        }
    }
    // Each duration counts from its own start, so the session's contains all others.
    let took = |at: usize| events[at]["duration_ms"].as_u64().unwrap();
    assert!(took(5) <= took(6) && took(6) <= took(7), "{events:#?}");
    assert!(took(7) + took(9) <= took(10) && took(10) <= took(11), "{events:#?}");
    let left = fs::read_dir(fixture.root().join("data/open-sessions")).unwrap();
    assert_eq!(left.count(), 0, "nothing is remembered of what is over");
}

/// Asserts that every start has exactly one end.
fn assert_paired(events: &[Value]) {
    let mut open: BTreeMap<String, i32> = BTreeMap::new();
    for event in events {
        let (key, change) = match text_field(event, "hook_event_name") {
            "SessionStart" => ("session", 1),
            "SessionEnd" => ("session", -1),
            "PreToolUse" => ("tool_use_id", 1),
            "PostToolUse" | "PostToolUseFailure" => ("tool_use_id", -1),
            "SubagentStart" => ("agent_id", 1),
            "SubagentStop" => ("agent_id", -1),
            _ => continue,
        };
        *open.entry(format!("{key} {}", text_field(event, key))).or_default() += change;
    }
    assert!(open.values().all(|count| *count == 0), "{open:?}");
}

/// The `adjutant serve` processes that this process has started.
fn servers_of(claude: u32) -> Vec<Pid> {
    let list = fs::read_dir("/proc").unwrap().flatten();
    let pids = list.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_server = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        parent == Some(claude) && line.ends_with(b"\0serve\0")
    };
    pids.filter(is_server).map(Pid::from_raw).collect()
}

#[test_case(NEW, false; "new, claude only")]
#[test_case(OLD, true; "old, claude and its server")]
fn killing_the_main_claude_leaves_no_open_events(version: &str, with_server: bool) {
    let Some(fixture) = identity_project(version) else { return };
    let call = json!({ "agent_name": "for-reviewer", "prompt": "FAKE hang-mid-turn" });
    let task = json!({
        "description": "review", "subagent_type": "code-reviewer", "run_in_background": false,
        "prompt": format!("CALL mcp__adjutant__run_subagent {call}"),
    });
    let mut claude = start_main_agent(&fixture, &format!("CALL Task {task}"));
    wait_until("the subagent's call", || fixture.events_named("RunStarted").pop());
    let servers = if with_server { servers_of(claude.id()) } else { Vec::new() };
    assert_eq!(servers.len(), usize::from(with_server));
    let parent = Pid::from_raw(claude.id().cast_signed());
    [parent].iter().chain(&servers).for_each(|pid| kill(*pid, Signal::SIGKILL).unwrap());
    claude.wait().unwrap();
    if with_server {
        // No process is left that could record the end: the next command does.
        assert!(
            !agents_and_names(&main_session_events(&fixture)).contains(&("main", "SessionEnd"))
        );
        assert!(fixture.context.run(["events"]).status.success());
    }
    wait_until("the session's end", || {
        agents_and_names(&main_session_events(&fixture))
            .contains(&("main", "SessionEnd"))
            .then_some(())
    });
    for _ in 0..2 {
        assert!(fixture.context.run(["events"]).status.success());
    }
    let events = main_session_events(&fixture);
    assert_paired(&events);
    let (main, reviewer) = ("main", "code-reviewer");
    let expected = [
        (main, "SessionStart"),
        (main, "UserPromptSubmit"),
        (main, "PreToolUse"),
        (reviewer, "SubagentStart"),
        (reviewer, "PreToolUse"),
        (main, "PostToolUseFailure"),
        (reviewer, "PostToolUseFailure"),
        (reviewer, "SubagentStop"),
        (main, "SessionEnd"),
    ];
    let mut said = agents_and_names(&events);
    // The two calls end at the same time, in either order.
    said[5..7].sort_by_key(|(agent, _)| *agent != main);
    assert_eq!(said, expected);
    assert!(events[5..].iter().all(|event| event["duration_ms"].is_u64()), "{events:#?}");
    assert!(
        events[5..].iter().all(
            |event| event["agent_transcript_path"].is_string() == event["agent_id"].is_string()
        )
    );
    assert_eq!(events[8]["reason"], "killed");
}
