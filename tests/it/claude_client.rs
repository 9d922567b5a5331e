//! `ClaudeClient` against a fake `claude` that misbehaves.

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use adjutant::claude::{
    BoxFuture, ClaudeClient, ClientOptions, ControlHandler, HookDecision, Observation, OpenError,
    PermissionAnswer, PermissionRequest, ResultSubtype, ToolUse, TurnEnd, TurnResult,
};
use serde_json::Value;
use test_case::test_case;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

use crate::support::TestContext;
use crate::support::fake_claude::fake_claude;

const TURN_TIMEOUT: Duration = Duration::from_mins(2);

#[derive(Default)]
struct RecordingHandler {
    seen: Mutex<Vec<&'static str>>,
}

impl ControlHandler for RecordingHandler {
    fn pre_tool_use(&self, tool_use: ToolUse) -> BoxFuture<'_, HookDecision> {
        Box::pin(async move {
            match tool_use.tool_name.as_str() {
                "Bash" => HookDecision::Proceed,
                other => HookDecision::Deny { reason: format!("`{other}` is not granted") },
            }
        })
    }

    fn can_use_tool(&self, _: PermissionRequest) -> BoxFuture<'_, PermissionAnswer> {
        Box::pin(async { PermissionAnswer::Deny { message: "nobody allowed it".into() } })
    }

    fn observe(&self, observation: &Observation<'_>) {
        match observation {
            Observation::ApiRetry { attempt: 1, delay_ms: 5, status: Some(529), .. } => {
                self.seen.lock().unwrap().push("retry");
            }
            Observation::StaleResult => self.seen.lock().unwrap().push("stale"),
            _ => {}
        }
    }
}

struct ClientUnderTest {
    client: ClaudeClient,
    watcher: Arc<RecordingHandler>,
    child: Child,
    _context: TestContext,
}

async fn try_open_client(
    told: &str,
    options: ClientOptions,
) -> (Result<ClaudeClient, OpenError>, Child, HandlerAndContext) {
    let context = TestContext::new();
    let mut child = Command::new(fake_claude())
        .args(["-p", "--tools", "Bash"])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", context.home())
        .env("FAKE_CLAUDE", told)
        .current_dir(context.root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let watcher = Arc::new(RecordingHandler::default());
    let (stdout, stdin) = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
    let opening = ClaudeClient::open(stdout, stdin, watcher.clone(), options);
    let opened = tokio::time::timeout(TURN_TIMEOUT, opening).await.expect("it takes too long");
    (opened, child, (watcher, context))
}

type HandlerAndContext = (Arc<RecordingHandler>, TestContext);

async fn open_client(told: &str, options: ClientOptions) -> ClientUnderTest {
    let (opened, child, (watcher, context)) = try_open_client(told, options).await;
    ClientUnderTest { client: opened.unwrap(), watcher, child, _context: context }
}

impl ClientUnderTest {
    async fn turn(&mut self, prompt: &str) -> TurnEnd {
        let turn = self.client.turn(prompt);
        tokio::time::timeout(TURN_TIMEOUT, turn).await.expect("it takes too long")
    }
}

fn result_text(end: &TurnEnd) -> &str {
    match &end.result {
        TurnResult::Result(result) => result.result.as_deref().unwrap_or_default(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn without_directives_the_fake_claude_answers_every_turn() {
    let mut session = open_client("", ClientOptions::default()).await;
    let first = session.turn("hello").await;
    assert_eq!(result_text(&first), "hello");
    let second = session.turn("FAKE recall").await;
    assert_eq!(result_text(&second), "hello");
    assert_eq!(format!("{:.3}", second.progress.cost_usd), "0.010");
    session.client.close();
    assert!(session.child.wait().await.unwrap().success(), "closing stdin ends it");
}

#[tokio::test]
async fn a_hang_at_startup_blocks_only_open() {
    let opening = try_open_client("hang-at-start", ClientOptions::default());
    let slow = tokio::time::timeout(Duration::from_secs(1), opening);
    assert!(slow.await.is_err(), "there is nothing to wait for");
}

#[tokio::test]
async fn an_exit_before_initialize_is_a_separate_error() {
    let (opened, mut child, _) =
        try_open_client("exit-at-start 3 no such thing", ClientOptions::default()).await;
    assert_eq!(opened.err(), Some(OpenError::StreamEnded));
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "no such thing\n");
    assert_eq!(child.wait().await.unwrap().code(), Some(3));
}

#[tokio::test]
async fn an_unknown_flag_is_reported_on_stderr() {
    let (opened, mut child, _) =
        try_open_client("refuse-flag --tools", ClientOptions::default()).await;
    assert_eq!(opened.err(), Some(OpenError::StreamEnded));
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "error: unknown option '--tools'\n");
}

#[test_case("torn-line"; "a torn line")]
#[test_case("no-result"; "no result")]
#[test_case("exit 4 boom"; "an exit")]
#[test_case("crash"; "a crash")]
#[tokio::test]
async fn an_end_without_a_result_keeps_the_text(fault: &str) {
    let mut session = open_client("", ClientOptions::default()).await;
    let end = session.turn(&format!("FAKE say half\nFAKE {fault}")).await;
    assert_eq!(end.result, TurnResult::StreamEnded);
    assert_eq!(end.progress.partial_text, "half");
}

#[tokio::test]
async fn a_hanging_turn_can_be_abandoned_and_keeps_its_text() {
    let mut session = open_client("", ClientOptions::default()).await;
    let handle = session.client.handle();
    let give_up = async {
        while handle.progress().partial_text.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        end = session.client.turn("FAKE say half\nFAKE hang-mid-turn") => panic!("{end:?}"),
        () = give_up => {}
    }
    assert_eq!(handle.progress().partial_text, "half");
    assert!(
        session.child.try_wait().unwrap().is_none(),
        "ending it is not the conversation's business"
    );
}

#[tokio::test]
async fn an_interrupt_ends_the_turn() {
    let mut session = open_client("", ClientOptions::default()).await;
    let handle = session.client.handle();
    handle.interrupt();
    let (end, ()) = tokio::join!(session.turn("FAKE say x\nFAKE wait-for-interrupt"), async {
        while handle.progress().partial_text.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        handle.interrupt();
    });
    let TurnResult::Result(result) = &end.result else { panic!("{end:?}") };
    assert!(result.is_aborted());
}

#[test_case("is-error 401 no key", ResultSubtype::Success; "an API error")]
#[test_case("subtype error_max_turns", ResultSubtype::MaxTurns; "too many turns")]
#[test_case("subtype error_max_budget_usd", ResultSubtype::MaxBudget; "too many dollars")]
#[test_case("subtype error_of_next_year", ResultSubtype::Other("error_of_next_year".into()); "an unknown one")]
#[tokio::test]
async fn an_error_result_is_not_a_success(fault: &str, subtype: ResultSubtype) {
    let mut session = open_client("", ClientOptions::default()).await;
    let end = session.turn(&format!("FAKE {fault}")).await;
    let TurnResult::Result(result) = &end.result else { panic!("{end:?}") };
    assert!(!result.is_success());
    assert_eq!(result.subtype, subtype);
}

#[tokio::test]
async fn lines_that_are_not_json_are_skipped_and_counted() {
    let mut session = open_client("noise", ClientOptions::default()).await;
    let end = session.turn("FAKE noise\nFAKE retry\nFAKE result fine").await;
    assert_eq!(result_text(&end), "fine");
    assert_eq!(end.progress.skipped_lines, 5);
    assert_eq!(*session.watcher.seen.lock().unwrap(), ["retry"]);
}

#[tokio::test]
async fn a_second_result_is_not_attributed_to_the_next_turn() {
    let mut session = open_client("", ClientOptions::default()).await;
    let first = session.turn("FAKE result first\nFAKE stale-result").await;
    assert_eq!(result_text(&first), "first");
    while session.watcher.seen.lock().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let second = session.turn("FAKE result second").await;
    assert_eq!(result_text(&second), "second");
}

#[tokio::test]
async fn a_result_of_another_session_is_rejected() {
    let id = "11111111-1111-4111-8111-111111111111";
    let options = ClientOptions { session_id: Some(id.into()), ..ClientOptions::default() };
    let mut session = open_client("", options).await;
    let end = session.turn("FAKE wrong-session").await;
    assert!(matches!(&end.result, TurnResult::WrongSession { expected, .. } if expected == id));
}

#[tokio::test]
async fn hooks_and_permission_requests_decide_tool_calls() {
    let mut session = open_client("", ClientOptions::default()).await;
    let end = session.turn(r#"FAKE ask Write {"file_path": "x"}"#).await;
    assert_eq!(result_text(&end), "hook: `Write` is not granted");
    let end = session.turn(r#"FAKE ask Bash {"command": "x"}"#).await;
    assert_eq!(result_text(&end), "denied: nobody allowed it");
}

#[tokio::test]
async fn fifty_megabytes_in_one_line_are_read() {
    let mut session = open_client("", ClientOptions::default()).await;
    let end = session.turn("FAKE long-line 50\nFAKE long-result 50").await;
    assert_eq!(result_text(&end).len(), 50 << 20);
    assert_eq!(end.progress.skipped_lines, 1);
}

#[tokio::test]
async fn a_line_above_the_size_limit_is_a_clear_error() {
    let options = ClientOptions { max_line_bytes: 1 << 20, ..ClientOptions::default() };
    let mut session = open_client("", options).await;
    let end = session.turn("FAKE say half\nFAKE long-line 50").await;
    assert_eq!(end.result, TurnResult::LineTooLong { limit: 1 << 20 });
    assert_eq!(end.progress.partial_text, "half");
}

#[tokio::test]
async fn f3_a_flood_of_output_does_not_block_other_tasks() {
    let mut session = open_client("", ClientOptions::default()).await;
    let end = session.turn("FAKE flood-lines 200000\nFAKE result through").await;
    assert_eq!(result_text(&end), "through");
    let started = Instant::now();
    let endless = session.client.turn("FAKE flood-forever");
    let given_up = tokio::time::timeout(Duration::from_secs(1), endless).await;
    assert!(
        given_up.is_err() && started.elapsed() < TURN_TIMEOUT / 2,
        "a timer beside it still runs"
    );
}

#[tokio::test]
async fn the_fake_claude_reports_its_arguments_and_pid() {
    let mut session = open_client("", ClientOptions::default()).await;
    let end = session.turn("FAKE report").await;
    let report: Value = serde_json::from_str(result_text(&end)).unwrap();
    assert_eq!(report["arguments"][0], "-p");
    assert_eq!(report["pid"], session.child.id().unwrap());
}
