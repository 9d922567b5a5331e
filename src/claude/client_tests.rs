//! The conversation against a hand-played CLI.

use std::sync::Mutex;
use std::time::Duration;

use serde_json::json;
use tokio::io::{
    AsyncBufReadExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf, duplex, split,
};
use tokio::sync::Notify;

use super::*;
use crate::claude::parent::{Approval, ApprovalRequest, BoxFuture, HookVerdict, ToolUse};
use crate::claude::{Observation, ResultSubtype};

const PATIENCE: Duration = Duration::from_secs(20);

/// Denies `evil`, panics on `panic`, waits for ever on `wait` and tells when that is dropped.
#[derive(Default)]
struct TestParent {
    seen: Mutex<Vec<String>>,
    asked: Notify,
    dropped: Arc<Notify>,
}

struct TellDrop(Arc<Notify>);

impl Drop for TellDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl Parent for TestParent {
    fn pre_tool_use(&self, tool_use: ToolUse) -> BoxFuture<'_, HookVerdict> {
        Box::pin(async move {
            assert_ne!(tool_use.tool_name, "panic", "on purpose");
            match tool_use.tool_name.as_str() {
                "evil" => HookVerdict::Deny { reason: format!("no: {}", tool_use.input) },
                _ => HookVerdict::Proceed,
            }
        })
    }

    fn can_use_tool(&self, request: ApprovalRequest) -> BoxFuture<'_, Approval> {
        let guard = TellDrop(Arc::clone(&self.dropped));
        Box::pin(async move {
            if request.tool_name == "wait" {
                self.asked.notify_one();
                std::future::pending::<()>().await;
            }
            drop(guard);
            Approval::Allow { updated_input: request.input }
        })
    }

    fn observe(&self, observation: &Observation<'_>) {
        let line = match observation {
            Observation::SessionStarted(init) => format!("session {}", init.session_id),
            Observation::Text(text) => format!("text {text}"),
            Observation::ToolStarted { summary, .. } => format!("tool {summary}"),
            Observation::StaleResult => "stale".to_owned(),
            _ => return,
        };
        self.seen.lock().unwrap().push(line);
    }
}

/// The other end of the pipe.
struct Cli {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    output: WriteHalf<DuplexStream>,
}

impl Cli {
    async fn write(&mut self, line: &Value) {
        self.output.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn read(&mut self) -> Value {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await;
        serde_json::from_str(&line.expect("in time").unwrap().expect("a line")).unwrap()
    }

    async fn ask(&mut self, request: Value) -> Value {
        self.write(&json!({"type": "control_request", "request_id": "q", "request": request}))
            .await;
        let answer = self.read().await;
        assert_eq!(answer["response"]["request_id"], "q", "{answer}");
        answer["response"]["response"].clone()
    }

    async fn answer_initialize(&mut self) -> Value {
        let request = self.read().await;
        let id = &request["request_id"];
        self.write(&json!({"type": "control_response", "response": {"subtype": "success", "request_id": id}}))
            .await;
        request
    }
}

fn result(text: &str, cost: f64) -> Value {
    json!({"type": "result", "subtype": "success", "is_error": false, "result": text,
        "session_id": "s", "total_cost_usd": cost, "num_turns": 1})
}

fn pipe() -> (ReadHalf<DuplexStream>, WriteHalf<DuplexStream>, Cli) {
    let (ours, theirs) = duplex(1 << 16);
    let (read, write) = split(ours);
    let (input, output) = split(theirs);
    (read, write, Cli { lines: BufReader::new(input).lines(), output })
}

async fn open(options: Options) -> (Conversation, Cli, Arc<TestParent>) {
    let (read, write, mut cli) = pipe();
    let parent = Arc::new(TestParent::default());
    let opening = Conversation::open(read, write, parent.clone(), options);
    let (conversation, _) = tokio::join!(opening, cli.answer_initialize());
    (conversation.unwrap(), cli, parent)
}

fn text_of(end: &TurnEnd) -> &str {
    match &end.ending {
        Ending::Result(result) => result.result.as_deref().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn initialize_registers_the_hooks() {
    let (read, write, mut cli) = pipe();
    let mut options = Options { hooks: vec![HookEvent::PreToolUse], ..Options::default() };
    options.initialize.insert("systemPrompt".into(), json!("be brief"));
    let opening = Conversation::open(read, write, Arc::new(TestParent::default()), options);
    let (opened, request) = tokio::join!(opening, cli.answer_initialize());
    opened.unwrap();
    let expected = json!({"systemPrompt": "be brief", "subtype": "initialize", "hooks":
        {"PreToolUse": [{"matcher": null, "hookCallbackIds": ["hook-PreToolUse"], "timeout": 86400}]}});
    assert_eq!(request["request"], expected);
}

#[tokio::test]
async fn two_turns_have_costs_of_their_own() {
    let (mut conversation, mut cli, parent) = open(Options::default()).await;
    let (first, prompt) = tokio::join!(conversation.turn("one"), async {
        let prompt = cli.read().await;
        cli.write(&json!({"type": "system", "subtype": "init", "session_id": "s"})).await;
        cli.write(&json!({"type": "assistant", "message": {"id": "m", "content": [
            {"type": "text", "text": "hello"},
            {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}}]}}))
            .await;
        cli.write(&result("1", 0.5)).await;
        prompt
    });
    assert_eq!(prompt, json!({"type": "user", "message": {"role": "user", "content": "one"}}));
    assert_eq!(text_of(&first), "1");
    assert_eq!(first.progress.partial, "hello");
    assert_eq!(first.progress.last_tool.as_deref(), Some("Bash: ls"));
    assert_eq!(first.progress.session_id.as_deref(), Some("s"));
    let (second, ()) = tokio::join!(conversation.turn("two"), async {
        cli.read().await;
        cli.write(&result("2", 0.75)).await;
    });
    assert_eq!(second.progress.cost_usd.to_string(), "0.25");
    assert_eq!(second.progress.partial, "", "the text of the turn before is forgotten");
    assert_eq!(*parent.seen.lock().unwrap(), ["session s", "text hello", "tool Bash: ls"]);
}

#[tokio::test]
async fn questions_are_answered_between_turns_too() {
    let (_conversation, mut cli, _) = open(Options::default()).await;
    let hook = |tool: &str| {
        json!({"subtype": "hook_callback", "callback_id": "hook-PreToolUse",
        "input": {"tool_name": tool, "tool_input": {"a": 1}}, "tool_use_id": "t"})
    };
    assert_eq!(cli.ask(hook("good")).await, json!({}));
    let denied = cli.ask(hook("evil")).await;
    assert_eq!(
        denied["hookSpecificOutput"],
        json!({"hookEventName": "PreToolUse", "permissionDecision": "deny",
            "permissionDecisionReason": "no: {\"a\":1}"})
    );
    let allowed = cli.ask(json!({"subtype": "can_use_tool", "tool_name": "x", "input": {"a": 1}}));
    assert_eq!(allowed.await, json!({"behavior": "allow", "updatedInput": {"a": 1}}));
    let message = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list"});
    let refused =
        cli.ask(json!({"subtype": "mcp_message", "server_name": "x", "message": message}));
    let refused = refused.await;
    assert_eq!(refused["mcp_response"]["id"], 7);
    assert_eq!(refused["mcp_response"]["error"]["code"], -32601);
}

#[tokio::test]
async fn a_judge_that_panics_refuses() {
    let (_conversation, mut cli, _) = open(Options::default()).await;
    let hook = json!({"subtype": "hook_callback", "callback_id": "hook-PreToolUse",
        "input": {"tool_name": "panic"}});
    let answer = cli.ask(hook).await;
    assert_eq!(answer["hookSpecificOutput"]["permissionDecision"], "deny");
}

#[tokio::test]
async fn a_question_too_deep_to_read_is_refused() {
    let (_conversation, mut cli, _) = open(Options::default()).await;
    let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
    let line = format!(
        r#"{{"type":"control_request","request_id":"q","request":{{"subtype":"hook_callback","callback_id":"hook-PreToolUse","input":{{"tool_name":"good","tool_input":{deep}}}}}}}"#
    );
    cli.output.write_all(line.as_bytes()).await.unwrap();
    cli.output.write_all(b"\n").await.unwrap();
    let answer = cli.read().await;
    let output = &answer["response"]["response"]["hookSpecificOutput"];
    assert_eq!(output["permissionDecision"], "deny", "{answer}");
}

#[tokio::test]
async fn an_unanswered_question_holds_nothing_up_and_is_dropped_when_cancelled() {
    let (mut conversation, mut cli, parent) = open(Options::default()).await;
    let (end, ()) = tokio::join!(conversation.turn("x"), async {
        cli.read().await;
        let request = json!({"subtype": "can_use_tool", "tool_name": "wait"});
        cli.write(&json!({"type": "control_request", "request_id": "w", "request": request})).await;
        parent.asked.notified().await;
        cli.write(&json!({"type": "control_cancel_request", "request_id": "w"})).await;
        tokio::time::timeout(PATIENCE, parent.dropped.notified()).await.unwrap();
        cli.write(&result("done", 0.0)).await;
    });
    assert_eq!(text_of(&end), "done");
}

#[tokio::test]
async fn the_stream_may_end_before_initialize_is_answered() {
    let (read, write, cli) = pipe();
    drop(cli);
    let parent = Arc::new(TestParent::default());
    let opened = Conversation::open(read, write, parent, Options::default()).await;
    assert_eq!(opened.err(), Some(OpenError::StreamEnded));
}

#[tokio::test]
async fn a_result_instead_of_an_answer_is_told() {
    let (read, write, mut cli) = pipe();
    let parent = Arc::new(TestParent::default());
    cli.write(&json!({"type": "result", "subtype": "error_during_execution", "is_error": true,
        "errors": ["No conversation found with session ID: x"]}))
        .await;
    let opened = Conversation::open(read, write, parent, Options::default()).await;
    let Some(OpenError::EndedEarly(result)) = opened.err() else { panic!("opened") };
    assert_eq!(result.subtype, ResultSubtype::DuringExecution);
    assert_eq!(result.errors, ["No conversation found with session ID: x"]);
}

#[tokio::test]
async fn a_turn_without_a_result_keeps_what_was_written() {
    let (mut conversation, mut cli, _) = open(Options::default()).await;
    let (end, ()) = tokio::join!(conversation.turn("x"), async move {
        cli.read().await;
        cli.write(&json!({"type": "assistant", "message": {"id": "m",
            "content": [{"type": "text", "text": "half"}]}}))
            .await;
        cli.output.write_all(b"not json\n{\"type\":\"result\",\"is_err").await.unwrap();
        cli.output.shutdown().await.unwrap();
    });
    assert_eq!(end.ending, Ending::StreamEnded);
    assert_eq!(end.progress.partial, "half");
    assert_eq!(end.progress.skipped_lines, 2);
    let again = conversation.turn("y").await;
    assert_eq!(again.ending, Ending::StreamEnded, "and it stays over");
}

#[tokio::test]
async fn a_line_over_the_bound_ends_it() {
    let options = Options { max_line_bytes: 1000, ..Options::default() };
    let (mut conversation, mut cli, _) = open(options).await;
    let (end, ()) = tokio::join!(conversation.turn("x"), async {
        cli.read().await;
        cli.write(&result(&"x".repeat(1001), 0.0)).await;
    });
    assert_eq!(end.ending, Ending::LineTooLong { limit: 1000 });
}

#[tokio::test]
async fn another_session_than_asked_for_ends_it() {
    let options = Options { session_id: Some("mine".into()), ..Options::default() };
    let (mut conversation, mut cli, _) = open(options).await;
    let (end, ()) = tokio::join!(conversation.turn("x"), async {
        cli.read().await;
        cli.write(&result("of somebody else", 0.0)).await;
    });
    let expected = Ending::WrongSession { expected: "mine".into(), found: "s".into() };
    assert_eq!(end.ending, expected);
}

#[tokio::test]
async fn the_result_of_a_dropped_turn_is_not_the_next_ones() {
    let (mut conversation, mut cli, _) = open(Options::default()).await;
    tokio::select! {
        _ = conversation.turn("first") => panic!("there is no result"),
        prompt = cli.read() => assert_eq!(prompt["message"]["content"], "first"),
    }
    let (end, ()) = tokio::join!(conversation.turn("second"), async {
        let interrupt = cli.read().await;
        assert_eq!(interrupt["request"]["subtype"], "interrupt");
        cli.write(&result("first", 0.5)).await;
        assert_eq!(cli.read().await["message"]["content"], "second");
        cli.write(&result("second", 0.75)).await;
    });
    assert_eq!(text_of(&end), "second");
    assert_eq!(end.progress.cost_usd.to_string(), "0.25");
}

#[tokio::test]
async fn a_result_that_nobody_waits_for_is_thrown_away() {
    let (mut conversation, mut cli, parent) = open(Options::default()).await;
    cli.write(&result("late", 0.0)).await;
    // A question behind it: once that is answered, the result was read.
    cli.ask(json!({"subtype": "can_use_tool", "tool_name": "x", "input": {}})).await;
    let (end, ()) = tokio::join!(conversation.turn("x"), async {
        cli.read().await;
        cli.write(&result("mine", 0.0)).await;
    });
    assert_eq!(text_of(&end), "mine");
    assert_eq!(*parent.seen.lock().unwrap(), ["stale"]);
}

#[tokio::test]
async fn reading_goes_on_while_the_cli_does_not_read() {
    let (mut conversation, mut cli, _) = open(Options::default()).await;
    // More than the pipe holds: the prompt cannot be written yet, and the result is read anyway.
    let prompt = "x".repeat(1 << 20);
    let (end, ()) =
        tokio::join!(conversation.turn(&prompt), async { cli.write(&result("done", 0.0)).await });
    assert_eq!(text_of(&end), "done");
}

#[tokio::test]
async fn a_prompt_is_never_a_command() {
    let (mut conversation, mut cli, _) = open(Options::default()).await;
    let (_, prompt) = tokio::join!(conversation.turn("/clear"), async {
        let prompt = cli.read().await;
        cli.write(&result("", 0.0)).await;
        prompt
    });
    assert_eq!(prompt["message"]["content"], "\n/clear");
}

#[tokio::test]
async fn a_turn_that_the_cli_began_itself_is_not_ours() {
    let (mut conversation, mut cli, parent) = open(Options::default()).await;
    let (end, ()) = tokio::join!(conversation.turn("x"), async {
        cli.read().await;
        let mut unasked = result("a command ended", 0.0);
        unasked["origin"] = json!({"kind": "task-notification"});
        cli.write(&unasked).await;
        cli.write(&result("mine", 0.0)).await;
    });
    assert_eq!(text_of(&end), "mine");
    assert_eq!(*parent.seen.lock().unwrap(), ["stale"]);
}

#[tokio::test]
async fn line_separators_inside_a_prompt_are_escaped() {
    let (mut conversation, mut cli, _) = open(Options::default()).await;
    let (_, line) = tokio::join!(conversation.turn("a\u{2028}b"), async {
        let line = cli.lines.next_line().await.unwrap().unwrap();
        cli.write(&result("", 0.0)).await;
        line
    });
    assert!(line.contains(r"a\u2028b"), "{line}");
}

#[tokio::test]
async fn dropping_it_closes_the_pipe() {
    let (conversation, mut cli, _) = open(Options::default()).await;
    let handle = conversation.handle();
    drop(conversation);
    handle.interrupt();
    let end = tokio::time::timeout(PATIENCE, cli.lines.next_line()).await.unwrap();
    assert_eq!(end.unwrap(), None);
}
