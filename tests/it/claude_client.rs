//! What the conversation makes of a `claude` that misbehaves.

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use adjutant::claude::{
    Approval, ApprovalRequest, BoxFuture, Conversation, Ending, HookVerdict, Observation,
    OpenError, Options, Parent, ResultSubtype, ToolUse, TurnEnd,
};
use serde_json::Value;
use test_case::test_case;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

use crate::support::TestContext;
use crate::support::fake::fake_claude;

const PATIENCE: Duration = Duration::from_mins(2);

#[derive(Default)]
struct Watcher {
    seen: Mutex<Vec<&'static str>>,
}

impl Parent for Watcher {
    fn pre_tool_use(&self, tool_use: ToolUse) -> BoxFuture<'_, HookVerdict> {
        Box::pin(async move {
            match tool_use.tool_name.as_str() {
                "Bash" => HookVerdict::Proceed,
                other => HookVerdict::Deny { reason: format!("`{other}` is not granted") },
            }
        })
    }

    fn can_use_tool(&self, _: ApprovalRequest) -> BoxFuture<'_, Approval> {
        Box::pin(async { Approval::Deny { message: "nobody allowed it".into() } })
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

struct Talk {
    conversation: Conversation,
    watcher: Arc<Watcher>,
    child: Child,
    _context: TestContext,
}

async fn open(told: &str, options: Options) -> (Result<Conversation, OpenError>, Child, Watched) {
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
    let watcher = Arc::new(Watcher::default());
    let (stdout, stdin) = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
    let opening = Conversation::open(stdout, stdin, watcher.clone(), options);
    let opened = tokio::time::timeout(PATIENCE, opening).await.expect("it takes too long");
    (opened, child, (watcher, context))
}

type Watched = (Arc<Watcher>, TestContext);

async fn talk(told: &str, options: Options) -> Talk {
    let (opened, child, (watcher, context)) = open(told, options).await;
    Talk { conversation: opened.unwrap(), watcher, child, _context: context }
}

impl Talk {
    async fn turn(&mut self, prompt: &str) -> TurnEnd {
        let turn = self.conversation.turn(prompt);
        tokio::time::timeout(PATIENCE, turn).await.expect("it takes too long")
    }
}

fn answer(end: &TurnEnd) -> &str {
    match &end.ending {
        Ending::Result(result) => result.result.as_deref().unwrap_or_default(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn told_nothing_it_behaves() {
    let mut talk = talk("", Options::default()).await;
    let first = talk.turn("hello").await;
    assert_eq!(answer(&first), "hello");
    let second = talk.turn("FAKE recall").await;
    assert_eq!(answer(&second), "hello");
    assert_eq!(format!("{:.3}", second.progress.cost_usd), "0.010");
    talk.conversation.close();
    assert!(talk.child.wait().await.unwrap().success(), "closing stdin ends it");
}

#[tokio::test]
async fn one_that_hangs_at_the_start_holds_up_only_its_opening() {
    let opening = open("hang-at-start", Options::default());
    let slow = tokio::time::timeout(Duration::from_secs(1), opening);
    assert!(slow.await.is_err(), "there is nothing to wait for");
}

#[tokio::test]
async fn one_that_ends_before_initialize_is_its_own_error() {
    let (opened, mut child, _) = open("exit-at-start 3 no such thing", Options::default()).await;
    assert_eq!(opened.err(), Some(OpenError::StreamEnded));
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "no such thing\n");
    assert_eq!(child.wait().await.unwrap().code(), Some(3));
}

#[tokio::test]
async fn a_refused_flag_is_seen_on_stderr() {
    let (opened, mut child, _) = open("refuse-flag --tools", Options::default()).await;
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
    let mut talk = talk("", Options::default()).await;
    let end = talk.turn(&format!("FAKE say half\nFAKE {fault}")).await;
    assert_eq!(end.ending, Ending::StreamEnded);
    assert_eq!(end.progress.partial, "half");
}

#[tokio::test]
async fn a_turn_that_hangs_can_be_given_up_with_what_it_wrote() {
    let mut talk = talk("", Options::default()).await;
    let handle = talk.conversation.handle();
    let give_up = async {
        while handle.progress().partial.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        end = talk.conversation.turn("FAKE say half\nFAKE hang-mid-turn") => panic!("{end:?}"),
        () = give_up => {}
    }
    assert_eq!(handle.progress().partial, "half");
    assert!(
        talk.child.try_wait().unwrap().is_none(),
        "ending it is not the conversation's business"
    );
}

#[tokio::test]
async fn an_interrupt_reaches_it() {
    let mut talk = talk("", Options::default()).await;
    let handle = talk.conversation.handle();
    handle.interrupt();
    let (end, ()) = tokio::join!(talk.turn("FAKE say x\nFAKE wait-for-interrupt"), async {
        while handle.progress().partial.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        handle.interrupt();
    });
    let Ending::Result(result) = &end.ending else { panic!("{end:?}") };
    assert!(result.is_aborted());
}

#[test_case("is-error 401 no key", ResultSubtype::Success; "an API error")]
#[test_case("subtype error_max_turns", ResultSubtype::MaxTurns; "too many turns")]
#[test_case("subtype error_max_budget_usd", ResultSubtype::MaxBudget; "too many dollars")]
#[test_case("subtype error_of_next_year", ResultSubtype::Other("error_of_next_year".into()); "an unknown one")]
#[tokio::test]
async fn a_failure_is_no_success(fault: &str, subtype: ResultSubtype) {
    let mut talk = talk("", Options::default()).await;
    let end = talk.turn(&format!("FAKE {fault}")).await;
    let Ending::Result(result) = &end.ending else { panic!("{end:?}") };
    assert!(!result.is_success());
    assert_eq!(result.subtype, subtype);
}

#[tokio::test]
async fn noise_is_skipped_and_counted() {
    let mut talk = talk("noise", Options::default()).await;
    let end = talk.turn("FAKE noise\nFAKE retry\nFAKE result fine").await;
    assert_eq!(answer(&end), "fine");
    assert_eq!(end.progress.skipped_lines, 5);
    assert_eq!(*talk.watcher.seen.lock().unwrap(), ["retry"]);
}

#[tokio::test]
async fn a_second_result_is_not_the_next_turns() {
    let mut talk = talk("", Options::default()).await;
    let first = talk.turn("FAKE result first\nFAKE stale-result").await;
    assert_eq!(answer(&first), "first");
    while talk.watcher.seen.lock().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let second = talk.turn("FAKE result second").await;
    assert_eq!(answer(&second), "second");
}

#[tokio::test]
async fn a_result_of_another_session_is_refused() {
    let id = "11111111-1111-4111-8111-111111111111";
    let options = Options { session_id: Some(id.into()), ..Options::default() };
    let mut talk = talk("", options).await;
    let end = talk.turn("FAKE wrong-session").await;
    assert!(matches!(&end.ending, Ending::WrongSession { expected, .. } if expected == id));
}

#[tokio::test]
async fn hooks_and_approvals_decide() {
    let mut talk = talk("", Options::default()).await;
    let end = talk.turn(r#"FAKE ask Write {"file_path": "x"}"#).await;
    assert_eq!(answer(&end), "hook: `Write` is not granted");
    let end = talk.turn(r#"FAKE ask Bash {"command": "x"}"#).await;
    assert_eq!(answer(&end), "denied: nobody allowed it");
}

#[tokio::test]
async fn fifty_megabytes_in_one_line_are_read() {
    let mut talk = talk("", Options::default()).await;
    let end = talk.turn("FAKE long-line 50\nFAKE long-result 50").await;
    assert_eq!(answer(&end).len(), 50 << 20);
    assert_eq!(end.progress.skipped_lines, 1);
}

#[tokio::test]
async fn a_line_over_the_bound_is_a_clear_failure() {
    let options = Options { max_line_bytes: 1 << 20, ..Options::default() };
    let mut talk = talk("", options).await;
    let end = talk.turn("FAKE say half\nFAKE long-line 50").await;
    assert_eq!(end.ending, Ending::LineTooLong { limit: 1 << 20 });
    assert_eq!(end.progress.partial, "half");
}

#[tokio::test]
async fn f3_a_flood_blocks_no_one() {
    let mut talk = talk("", Options::default()).await;
    let end = talk.turn("FAKE flood-lines 200000\nFAKE result through").await;
    assert_eq!(answer(&end), "through");
    let started = Instant::now();
    let endless = talk.conversation.turn("FAKE flood-forever");
    let given_up = tokio::time::timeout(Duration::from_secs(1), endless).await;
    assert!(given_up.is_err() && started.elapsed() < PATIENCE / 2, "a timer beside it still runs");
}

#[tokio::test]
async fn it_reports_what_it_was_started_with() {
    let mut talk = talk("", Options::default()).await;
    let end = talk.turn("FAKE report").await;
    let report: Value = serde_json::from_str(answer(&end)).unwrap();
    assert_eq!(report["arguments"][0], "-p");
    assert_eq!(report["pid"], talk.child.id().unwrap());
}
