//! Leases of private servers: per agent or per run, started eagerly or at first use, stopped when idle.

use std::path::Path;

use serde_json::json;
use test_case::test_case;

use crate::gateway::faulty;
use crate::support::TestContext;
use crate::support::claude_context::{ClaudeContext, NEW};
use crate::support::fake_claude::fake_claude;
use crate::support::idle_processes::{self, pids_of_runs, wait_for_idle_process};
use crate::support::mcp::McpClient;
use crate::support::wait::wait_until;

/// An agent with a server `own` that logs its pid to `<name>.started` and has a key of its own.
fn write_agent(context: &TestContext, name: &str, more: &str) {
    let script = format!("echo $$ >> {name}.started; exec {}", faulty());
    let text = format!(
        "---\nname: {name}\ndescription: Has a server\npolicy:\n  mcp_servers: {{ own: {{ trust: true }} }}\n\
         mcp_servers:\n  own: {{ command: sh, args: [-c, \"{script}\"], env: {{ TOKEN: key-of-{name} }}{more} }}\n---\nYou use it.\n"
    );
    context.agent(name, &text);
}

fn call_server_tool(client: &mut McpClient, agent: &str, tool: &str) -> String {
    let prompt = format!("CALL mcp__own__{tool} {{}}");
    let answer = client.call_tool("run_subagent", json!({ "agent_name": agent, "prompt": prompt }));
    answer["structuredContent"]["result"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

fn started_pids(context: &TestContext, agent: &str) -> Vec<String> {
    let file = context.root().join(format!("{agent}.started"));
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn is_alive(pid: &str) -> bool {
    Path::new("/proc").join(pid).exists()
}

#[test]
fn servers_are_kept_while_leased_and_stopped_when_idle() {
    let Some(fixture) = ClaudeContext::new(NEW) else { return };
    fixture.write("agents/defaults.yaml", "server_idle_ms: 4000\n");
    write_agent(&fixture.context, "usual", "");
    write_agent(&fixture.context, "ahead", ", eager: true");
    write_agent(&fixture.context, "fresh", ", isolation: run");
    let mut client = fixture.serve();
    let ahead = wait_until("the server that is started ahead", || {
        started_pids(&fixture.context, "ahead").pop()
    });
    assert_eq!(
        started_pids(&fixture.context, "usual").len(),
        0,
        "the others wait for their first use"
    );
    let fresh = [
        call_server_tool(&mut client, "fresh", "pid"),
        call_server_tool(&mut client, "fresh", "pid"),
    ];
    assert_ne!(fresh[0], fresh[1], "each run has its own");
    for pid in &fresh {
        wait_until("the end of a run's own server", || (!is_alive(pid)).then_some(()));
    }
    let usual = [
        call_server_tool(&mut client, "usual", "pid"),
        call_server_tool(&mut client, "usual", "pid"),
    ];
    assert_eq!(usual[0], usual[1], "the runs of an agent share one");
    wait_until("the end of an idle server", || (!is_alive(&usual[0])).then_some(()));
    assert_eq!(call_server_tool(&mut client, "ahead", "pid"), ahead, "what is wanted ahead stays");
    assert_eq!(started_pids(&fixture.context, "ahead").len(), 1);
    client.disconnect();
    client.wait_for_exit();
    wait_until("the end of every server", || (!is_alive(&ahead)).then_some(()));
}

/// The session keeps its process, but with `isolation: run` each run gets a new server.
#[test]
fn live_session_with_run_isolation_gets_new_servers_for_every_run() {
    let Some(fixture) = ClaudeContext::new(NEW) else { return };
    write_agent(&fixture.context, "fresh", ", isolation: run");
    let file = fixture.root().join("agents/fresh/agent.md");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("description:", "session: true\ndescription:")).unwrap();
    let mut client = fixture.serve();
    let servers = [(); 3].map(|()| {
        let server = call_server_tool(&mut client, "fresh", "pid");
        wait_until("the end of a run's own server", || (!is_alive(&server)).then_some(()));
        server
    });
    assert_eq!(started_pids(&fixture.context, "fresh"), servers, "each run has its own");
    let processes = pids_of_runs(&fixture.context, 3);
    assert_eq!(processes, [processes[0]; 3], "one process has the conversation");
    let last = fixture.model.requests().pop().unwrap().body.to_string();
    assert!(servers.iter().all(|server| last.contains(server.as_str())), "it went on: {last}");
}

#[test]
fn servers_of_the_same_name_are_separate_for_each_agent() {
    let Some(fixture) = ClaudeContext::new(NEW) else { return };
    write_agent(&fixture.context, "one", "");
    write_agent(&fixture.context, "two", "");
    let mut client = fixture.serve();
    let mut pids = Vec::new();
    for (name, other) in [("one", "two"), ("two", "one"), ("one", "two")] {
        let variables = call_server_tool(&mut client, name, "env");
        // Keys are redacted in answers: the name of the variable takes their place.
        assert!(variables.contains("[TOKEN]") || variables.contains(&format!("key-of-{name}")));
        assert!(!variables.contains(&format!("key-of-{other}")), "{variables}");
        pids.push(call_server_tool(&mut client, name, "pid"));
    }
    assert_ne!(pids[0], pids[1]);
    assert_eq!(pids[0], pids[2]);
    let of = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
    assert!(of(&pids[0]).contains("key-of-one") && !of(&pids[0]).contains("key-of-two"));
    assert!(of(&pids[1]).contains("key-of-two") && !of(&pids[1]).contains("key-of-one"));
}

/// An idle process exits during its turn, and the call is repeated in a new one: two processes for the second call.
#[test_case("", 1; "the servers of the agent")]
#[test_case(", isolation: run", 2; "the servers of each run")]
fn a_restarted_process_uses_the_servers_of_the_process_before(more: &str, servers: usize) {
    let context = TestContext::new();
    write_agent(&context, "usual", more);
    let file = context.root().join("agents/usual/agent.md");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("description:", "session: true\ndescription:")).unwrap();
    let mut command = context.adjutant(["serve"]);
    command.env("ADJUTANT_CLAUDE", fake_claude());
    let mut client = McpClient::connect(command);
    idle_processes::call_agent(&mut client, "usual", "FAKE result first");
    let idle_pid = wait_for_idle_process(&context);
    let started_before = started_pids(&context, "usual");
    assert_eq!(started_before.len(), 1);
    let mark = context.root().join("died");
    let prompt = format!("FAKE once {} crash\nFAKE result second", mark.display());
    assert_eq!(idle_processes::call_agent(&mut client, "usual", &prompt)["result"], "second");
    assert_eq!(std::fs::read_to_string(mark).unwrap(), idle_pid.to_string());
    let processes = pids_of_runs(&context, 3);
    assert_eq!((processes.len(), processes[0], processes[1]), (3, idle_pid, idle_pid));
    assert_ne!(processes[2], idle_pid, "the call was repeated in a new process");
    let started = started_pids(&context, "usual");
    assert_eq!(started.len(), servers, "{started:?}");
    assert!(started.starts_with(&started_before));
}
