//! Private servers are leased: one per agent, or per run; ahead or at first use; gone when nobody uses them.

use std::path::Path;

use serde_json::json;

use crate::gateway::{faulty, until};
use crate::support::mcp::McpClient;
use crate::support::stage::{NEW, Stage};
use crate::support::waiting::pids;

/// An agent with a server `own`, whose process says when it starts and whose key nobody else has.
fn agent(stage: &Stage, name: &str, more: &str) {
    let script = format!("echo $$ >> {name}.started; exec {}", faulty());
    let text = format!(
        "---\nname: {name}\ndescription: Has a server\npolicy:\n  mcp_servers: {{ own: {{ trust: true }} }}\n\
         mcp_servers:\n  own: {{ command: sh, args: [-c, \"{script}\"], env: {{ TOKEN: key-of-{name} }}{more} }}\n---\nYou use it.\n"
    );
    stage.context.agent(name, &text);
}

fn ask(client: &mut McpClient, agent: &str, tool: &str) -> String {
    let prompt = format!("CALL mcp__own__{tool} {{}}");
    let answer = client.call("run_subagent", json!({ "agent_name": agent, "prompt": prompt }));
    answer["structuredContent"]["result"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

fn starts(stage: &Stage, agent: &str) -> Vec<String> {
    let file = stage.context.root().join(format!("{agent}.started"));
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn is_alive(pid: &str) -> bool {
    Path::new("/proc").join(pid).exists()
}

#[test]
fn servers_are_kept_while_used_and_end_when_idle() {
    let Some(stage) = Stage::new(NEW) else { return };
    stage.context.write("agents/defaults.yaml", "server_idle_ms: 4000\n");
    agent(&stage, "usual", "");
    agent(&stage, "ahead", ", eager: true");
    agent(&stage, "fresh", ", isolation: run");
    let mut client = stage.serve();
    let ahead = until("the server that is started ahead", || starts(&stage, "ahead").pop());
    assert_eq!(starts(&stage, "usual").len(), 0, "the others wait for their first use");
    let fresh = [ask(&mut client, "fresh", "pid"), ask(&mut client, "fresh", "pid")];
    assert_ne!(fresh[0], fresh[1], "each run has its own");
    for pid in &fresh {
        until("the end of a run's own server", || (!is_alive(pid)).then_some(()));
    }
    let usual = [ask(&mut client, "usual", "pid"), ask(&mut client, "usual", "pid")];
    assert_eq!(usual[0], usual[1], "the runs of an agent share one");
    until("the end of an idle server", || (!is_alive(&usual[0])).then_some(()));
    assert_eq!(ask(&mut client, "ahead", "pid"), ahead, "what is wanted ahead stays");
    assert_eq!(starts(&stage, "ahead").len(), 1);
    client.hang_up();
    client.ends();
    until("the end of every server", || (!is_alive(&ahead)).then_some(()));
}

/// The process of a conversation stays, and its servers do not: each run has its own.
#[test]
fn a_live_conversation_has_new_servers_for_every_run_where_its_file_says_so() {
    let Some(stage) = Stage::new(NEW) else { return };
    agent(&stage, "fresh", ", isolation: run");
    let file = stage.context.root().join("agents/fresh/agent.md");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("description:", "session: true\ndescription:")).unwrap();
    let mut client = stage.serve();
    let servers = [(); 3].map(|()| {
        let server = ask(&mut client, "fresh", "pid");
        until("the end of a run's own server", || (!is_alive(&server)).then_some(()));
        server
    });
    assert_eq!(starts(&stage, "fresh"), servers, "each run has its own");
    let processes = pids(&stage.context.root(), 3);
    assert_eq!(processes, [processes[0]; 3], "one process has the conversation");
    let last = stage.model.requests().pop().unwrap().body.to_string();
    assert!(servers.iter().all(|server| last.contains(server.as_str())), "it went on: {last}");
}

#[test]
fn two_agents_with_a_server_of_the_same_name_never_meet() {
    let Some(stage) = Stage::new(NEW) else { return };
    agent(&stage, "one", "");
    agent(&stage, "two", "");
    let mut client = stage.serve();
    let mut pids = Vec::new();
    for (name, other) in [("one", "two"), ("two", "one"), ("one", "two")] {
        let variables = ask(&mut client, name, "env");
        // A key is nobody's to tell: its name stands in its place.
        assert!(variables.contains("[TOKEN]") || variables.contains(&format!("key-of-{name}")));
        assert!(!variables.contains(&format!("key-of-{other}")), "{variables}");
        pids.push(ask(&mut client, name, "pid"));
    }
    assert_ne!(pids[0], pids[1]);
    assert_eq!(pids[0], pids[2]);
    let of = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
    assert!(of(&pids[0]).contains("key-of-one") && !of(&pids[0]).contains("key-of-two"));
    assert!(of(&pids[1]).contains("key-of-two") && !of(&pids[1]).contains("key-of-one"));
}
