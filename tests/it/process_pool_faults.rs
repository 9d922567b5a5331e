//! Pooled processes that misbehave, with the fake `claude`: they are discarded and the call runs on a new process.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use test_case::test_case;

use crate::support::TestContext;
use crate::support::fake_claude::fake_claude;
use crate::support::idle_processes::{
    call_agent, idle_processes, pids_of_runs, wait_for_idle_process, wait_until_gone,
};
use crate::support::mcp::{McpClient, result_text};

/// Kind of pooled process: a warm one has never had a prompt, a live one serves a session.
#[derive(Clone, Copy)]
enum PooledKind {
    Warm,
    Live,
}

/// A server with one idle process.
struct ServerWithIdleProcess {
    context: TestContext,
    server: McpClient,
    idle_pid: u64,
    /// Number of earlier runs.
    earlier_runs: usize,
}

impl ServerWithIdleProcess {
    fn new(kind: PooledKind, settings: &str) -> Self {
        let context = TestContext::new();
        let setting = match kind {
            PooledKind::Warm => "warm: 1",
            PooledKind::Live => "session: true",
        };
        let file =
            format!("---\nname: helper\ndescription: Helps\n{setting}\n{settings}---\nHelp.\n");
        context.agent("helper", &file);
        let mut command = context.adjutant(["serve"]);
        command.env("ADJUTANT_CLAUDE", fake_claude());
        let mut server = McpClient::connect(command);
        let earlier_runs = match kind {
            PooledKind::Warm => 0,
            PooledKind::Live => {
                call_agent(&mut server, "helper", "FAKE result first");
                1
            }
        };
        let idle_pid = wait_for_idle_process(&context);
        Self { context, server, idle_pid, earlier_runs }
    }

    fn marker_file(&self) -> PathBuf {
        self.context.root().join("done-once")
    }

    fn fault_once(&self, fault: &str) -> String {
        format!("FAKE once {} {fault}", self.marker_file().display())
    }

    /// The processes of the runs since then.
    fn pids_since(&self, count: usize) -> Vec<u64> {
        pids_of_runs(&self.context, self.earlier_runs + count).split_off(self.earlier_runs)
    }

    fn call_and_expect_failure(&mut self, prompt: &str) -> Value {
        let call = json!({ "agent_name": "helper", "prompt": prompt });
        let answer = self.server.call_tool("run_subagent", call);
        assert_eq!(answer["isError"], true, "{answer}");
        assert!(result_text(&answer).starts_with("CLAUDE_FAILED: "), "{answer}");
        answer
    }
}

#[test_case(PooledKind::Warm, "crash"; "warm process crashes")]
#[test_case(PooledKind::Live, "crash"; "live process crashes")]
#[test_case(PooledKind::Warm, "no-result"; "warm process exits without a result")]
#[test_case(PooledKind::Live, "torn-line"; "live process exits within a line")]
#[test_case(PooledKind::Warm, "wrong-session"; "warm process reports another session")]
#[test_case(PooledKind::Live, "wrong-session"; "live process reports another session")]
#[test_case(PooledKind::Warm, "late-result old"; "warm process sends a result before its turn")]
#[test_case(PooledKind::Live, "late-result old"; "live process sends the late result of an earlier turn")]
fn misbehaving_pooled_process_is_discarded_and_the_call_retried_on_a_new_one(
    kind: PooledKind,
    fault: &str,
) {
    let mut fixture = ServerWithIdleProcess::new(kind, "");
    let prompt = format!("{}\nFAKE result right", fixture.fault_once(fault));
    let answer = call_agent(&mut fixture.server, "helper", &prompt);
    assert_eq!(answer["result"], "right", "{answer}");
    assert_eq!(fs::read_to_string(fixture.marker_file()).unwrap(), fixture.idle_pid.to_string());
    let used = fixture.pids_since(2);
    assert_eq!((used[0], used.len()), (fixture.idle_pid, 2), "the one that waited, and one more");
    assert_ne!(used[1], fixture.idle_pid);
    wait_until_gone(fixture.idle_pid);
    if let PooledKind::Live = kind {
        let recalled = call_agent(&mut fixture.server, "helper", "FAKE recall");
        assert_eq!(recalled["session_id"], answer["session_id"], "the conversation went on");
        assert!(recalled["result"].as_str().unwrap().starts_with("FAKE result first|"));
    }
}

#[test_case(PooledKind::Warm)]
#[test_case(PooledKind::Live)]
fn call_is_retried_only_once(kind: PooledKind) {
    let mut fixture = ServerWithIdleProcess::new(kind, "");
    fixture.call_and_expect_failure("FAKE crash");
    assert_eq!(fixture.pids_since(2).len(), 2);
}

#[test_case(PooledKind::Warm, "tool"; "warm, the tool has run")]
#[test_case(PooledKind::Live, "tool"; "live, the tool has run")]
#[test_case(PooledKind::Warm, "tool-begun"; "warm, crashed while the tool ran")]
#[test_case(PooledKind::Live, "tool-begun"; "live, crashed while the tool ran")]
fn call_is_not_retried_after_a_tool_was_requested(kind: PooledKind, tool: &str) {
    let mut fixture = ServerWithIdleProcess::new(kind, "");
    let prompt = format!("FAKE {tool} Bash\n{}\nFAKE result twice", fixture.fault_once("crash"));
    fixture.call_and_expect_failure(&prompt);
    assert_eq!(fixture.pids_since(1), [fixture.idle_pid]);
}

/// A process that writes a frame while idle is discarded.
#[test]
fn warm_process_that_writes_while_idle_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("spoke");
    let settings = format!("env: {{ FAKE_CLAUDE: \"once {} stray-result\" }}\n", mark.display());
    let mut fixture = ServerWithIdleProcess::new(PooledKind::Warm, &settings);
    let odd: u64 = fs::read_to_string(&mark).unwrap().parse().unwrap();
    wait_until_gone(odd);
    assert!(idle_processes(&fixture.context).iter().all(|entry| entry["pid"] != odd));
    assert_eq!(call_agent(&mut fixture.server, "helper", "FAKE result right")["result"], "right");
    assert_ne!(fixture.pids_since(1), [odd]);
}

#[test]
fn live_process_that_writes_after_its_turn_is_not_used() {
    let mut fixture = ServerWithIdleProcess::new(PooledKind::Live, "");
    let first = call_agent(&mut fixture.server, "helper", "FAKE result right\nFAKE stale-result");
    assert_eq!(first["result"], "right", "{first}");
    wait_until_gone(fixture.idle_pid);
    let second = call_agent(&mut fixture.server, "helper", "FAKE result second");
    assert_eq!(
        (&second["result"], &second["session_id"]),
        (&json!("second"), &first["session_id"])
    );
    assert!(!fixture.pids_since(2).ends_with(&[fixture.idle_pid]));
}
