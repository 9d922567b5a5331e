//! The live status of a run, which callers receive as progress, closes with the run.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use adjutant::config::{GatewayOptions, Settings};
use adjutant::delegation::{NoApprover, Orchestrator, RunRequest, StatusSender};
use adjutant::gateway::Gateway;
use adjutant::identity::Caller;
use adjutant::outcome::Outcome;
use adjutant::process::Shutdown;
use futures_util::FutureExt;
use serde_json::{Value, json};
use test_case::test_case;
use tokio_util::sync::CancellationToken;

use crate::gateway::faulty;
use crate::support::TestContext;
use crate::support::fake_claude::fake_claude;
use crate::support::idle_processes::{is_alive, pids_of_runs, wait_until_gone};
use crate::support::mcp::McpClient;

const ONE_SHOT: &str = "env: { FAKE_CLAUDE: linger }\n";

/// The process calls a hook that takes longer than the run, and ends its turn once the hook has started.
const SLOW_HOOK: &str = "env: { FAKE_CLAUDE: \"hook-until hook-started Notification {};linger\" }
hooks: { Notification: [{ hooks: [{ type: command, command: \"touch hook-started; sleep 60\" }] }] }
";

fn session_with_private_server() -> String {
    let policy = "policy:\n  mcp_servers: { own: { trust: true } }\n";
    format!(
        "session: true\n{policy}mcp_servers:\n  own: {{ command: {}, args: [good] }}\n",
        faulty()
    )
}

/// The answer waits for the last status, so a status that outlives its run delays the answer.
///
/// Runs in its own process: an orchestrator adopts and reaps orphaned processes, including those of parallel tests.
#[test_case(ONE_SHOT; "one-shot process that has not exited")]
#[test_case(SLOW_HOOK; "one-shot process whose hook has not ended")]
#[test_case(&session_with_private_server(); "pooled process with a private server")]
fn status_closes_with_the_run_and_not_with_its_process(settings: &str) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "progress::run_with_status", "--ignored", "--nocapture"])
        .env("AGENT_SETTINGS", settings)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
}

/// The process stays until it is killed, 1.5 s after its stdin was closed.
#[test]
fn the_answer_comes_before_the_process_exits_and_no_progress_follows() {
    let context = TestContext::new();
    context
        .agent("helper", &format!("---\nname: helper\ndescription: Helps\n{ONE_SHOT}---\nHelp.\n"));
    let mut command = context.adjutant(["serve"]);
    command.env("ADJUTANT_CLAUDE", fake_claude());
    let mut client = McpClient::connect(command);
    let arguments = json!({ "agent_name": "helper", "prompt": "FAKE result done" });
    let call = json!({
        "name": "run_subagent", "arguments": arguments, "_meta": { "progressToken": "p" },
    });
    let answer = client.request("tools/call", call);
    let pid = pids_of_runs(&context, 1)[0];
    assert!(is_alive(pid), "the answer waited for the process");
    assert_eq!(answer["structuredContent"]["result"], "done", "{answer}");
    let is_progress = |message: &Value| message["method"] == "notifications/progress";
    assert!(client.notifications.iter().any(is_progress), "{:?}", client.notifications);
    client.notifications.clear();
    wait_until_gone(pid);
    client.request("ping", json!({}));
    assert!(!client.notifications.iter().any(is_progress), "{:?}", client.notifications);
}

#[test]
#[ignore = "started by another test, in a process of its own"]
fn run_with_status() {
    let settings = std::env::var("AGENT_SETTINGS").unwrap();
    let context = TestContext::new();
    let file = format!("---\nname: helper\ndescription: Helps\n{settings}---\nHelp.\n");
    context.agent("helper", &file);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let settings = Settings { root: context.root(), claude: Some(fake_claude()) };
        let gateway = Gateway::start(&settings, GatewayOptions::default());
        let shutdown = Shutdown::new(Duration::ZERO);
        let orchestrator = Orchestrator::start(settings, shutdown, gateway);
        orchestrator.enable_process_pool();
        let request = RunRequest {
            agent_name: "helper".to_owned(),
            prompt: "FAKE result done".to_owned(),
            ..RunRequest::default()
        };
        let (board, mut status) = StatusSender::new();
        let cancel = CancellationToken::new();
        let nobody = Arc::new(NoApprover::new("this is a test"));
        let report = orchestrator.run(request, Caller::main(), board, cancel, nobody).await;
        assert!(matches!(report.outcome, Outcome::Answered(_)), "{report:?}");
        let is_closed = loop {
            match status.changed().now_or_never() {
                Some(Ok(())) => {}
                Some(Err(_)) => break true,
                None => break false,
            }
        };
        orchestrator.stop_all().await;
        assert!(is_closed, "the report is there, but its status is still open");
    });
}
