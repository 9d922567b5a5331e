//! Processes behind the gateway: shared or not, and never left behind.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use test_case::test_case;

use super::{Stage, faulty, said, until};
use crate::support::mcp::text;

#[test]
fn agents_share_a_server_unless_it_is_isolated() {
    let stage = Stage::new(&json!({
        "good": { "command": faulty() },
        "own": { "command": faulty(), "isolation": "agent" },
    }));
    stage.rules(
        r#"{"agents": {"a": {"allow": {"servers": ["*"]}}, "b": {"allow": {"servers": ["*"]}}}}"#,
    );
    let mut client = stage.connect();
    let mut pid = |agent: &str, server: &str| {
        let arguments = json!({ "agent_id": agent, "server": server, "tool": "pid" });
        text(&client.call("execute_tool", arguments)).to_owned()
    };
    assert_eq!(pid("a", "good"), pid("b", "good"));
    assert_ne!(pid("a", "own"), pid("b", "own"));
    assert_eq!(pid("a", "own"), pid("a", "own"));
}

#[test_case(None; "the client hangs up")]
#[test_case(Some(Signal::SIGTERM))]
#[test_case(Some(Signal::SIGINT))]
#[test_case(Some(Signal::SIGKILL))]
fn nothing_is_left_behind(signal: Option<Signal>) {
    let stage = Stage::with(&["good", "stubborn"]);
    let mut client = stage.connect();
    let pids: Vec<i32> = ["good", "stubborn"]
        .map(|server| said(&mut client, server, "pid").parse().unwrap())
        .to_vec();
    match signal {
        None => client.hang_up(),
        Some(signal) => kill(Pid::from_raw(i32::try_from(client.pid()).unwrap()), signal).unwrap(),
    }
    let status = client.ends();
    if signal != Some(Signal::SIGKILL) {
        assert!(status.success(), "{status}");
    }
    for pid in pids {
        until("the end of a server", || kill(Pid::from_raw(pid), None).is_err().then_some(()));
    }
}
