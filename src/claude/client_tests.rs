//! Tests of the client against a scripted peer.

use std::sync::Mutex;
use std::time::Duration;

use serde_json::json;
use tokio::io::{
    AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf, duplex,
    split,
};
use tokio::sync::Notify;

use super::super::control_handler::{
    BoxFuture, HookDecision, PermissionAnswer, PermissionRequest, ToolUse,
};
use super::super::observation::Observation;
use super::super::result::ResultSubtype;
use super::*;

const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// Denies `evil`, panics on `panic`, never answers `wait` and signals when that future is dropped.
#[derive(Default)]
struct TestControlHandler {
    seen: Mutex<Vec<String>>,
    asked: Notify,
    dropped: Arc<Notify>,
}

struct NotifyOnDrop(Arc<Notify>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl ControlHandler for TestControlHandler {
    fn pre_tool_use(&self, tool_use: ToolUse) -> BoxFuture<'_, HookDecision> {
        Box::pin(async move {
            assert_ne!(tool_use.tool_name, "panic", "on purpose");
            match tool_use.tool_name.as_str() {
                "evil" => HookDecision::Deny { reason: format!("no: {}", tool_use.input) },
                _ => HookDecision::Proceed,
            }
        })
    }

    fn can_use_tool(&self, request: PermissionRequest) -> BoxFuture<'_, PermissionAnswer> {
        let guard = NotifyOnDrop(Arc::clone(&self.dropped));
        Box::pin(async move {
            if request.tool_name == "wait" {
                self.asked.notify_one();
                std::future::pending::<()>().await;
            }
            drop(guard);
            PermissionAnswer::Allow { updated_input: request.input }
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

/// The CLI's end of the pipe.
struct FakeCli {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    output: WriteHalf<DuplexStream>,
}

impl FakeCli {
    async fn write(&mut self, line: &Value) {
        self.output.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn read(&mut self) -> Value {
        let line = tokio::time::timeout(READ_TIMEOUT, self.lines.next_line()).await;
        serde_json::from_str(&line.expect("in time").unwrap().expect("a line")).unwrap()
    }

    async fn request(&mut self, request: Value) -> Value {
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

fn result_frame(text: &str, cost: f64) -> Value {
    json!({"type": "result", "subtype": "success", "is_error": false, "result": text,
        "session_id": "s", "total_cost_usd": cost, "num_turns": 1})
}

fn pipe() -> (ReadHalf<DuplexStream>, WriteHalf<DuplexStream>, FakeCli) {
    let (ours, theirs) = duplex(1 << 16);
    let (read, write) = split(ours);
    let (input, output) = split(theirs);
    (read, write, FakeCli { lines: BufReader::new(input).lines(), output })
}

async fn open(options: ClientOptions) -> (ClaudeClient, FakeCli, Arc<TestControlHandler>) {
    let (read, write, mut cli) = pipe();
    let parent = Arc::new(TestControlHandler::default());
    let opening = ClaudeClient::open(read, write, parent.clone(), options);
    let (client, _) = tokio::join!(opening, cli.answer_initialize());
    (client.unwrap(), cli, parent)
}

fn text_of(end: &TurnEnd) -> &str {
    match &end.result {
        TurnResult::Result(result) => result.result.as_deref().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn initialize_registers_the_hooks() {
    let (read, write, mut cli) = pipe();
    let mut options =
        ClientOptions { hooks: vec![HookEvent::PreToolUse], ..ClientOptions::default() };
    options.initialize.insert("systemPrompt".into(), json!("be brief"));
    let opening = ClaudeClient::open(read, write, Arc::new(TestControlHandler::default()), options);
    let (opened, request) = tokio::join!(opening, cli.answer_initialize());
    opened.unwrap();
    let expected = json!({"systemPrompt": "be brief", "subtype": "initialize", "hooks":
        {"PreToolUse": [{"matcher": null, "hookCallbackIds": ["hook-PreToolUse"], "timeout": 86400}]}});
    assert_eq!(request["request"], expected);
}

#[tokio::test]
async fn answers_to_a_cli_that_does_not_read_are_bounded() {
    let (_client, mut cli, _) = open(ClientOptions::default()).await;
    let input = json!({"tool_name": "evil", "tool_input": "x".repeat(1 << 17)});
    let request =
        json!({"subtype": "hook_callback", "callback_id": "hook-PreToolUse", "input": input});
    let frame = json!({"type": "control_request", "request_id": "q", "request": request});
    let frame = format!("{frame}\n");
    for _ in 0..32 {
        let writing = cli.output.write_all(frame.as_bytes());
        // Backpressure: the client stops reading.
        if !matches!(tokio::time::timeout(Duration::from_secs(5), writing).await, Ok(Ok(()))) {
            return;
        }
    }
    panic!("4 MiB of answers are queued");
}

#[tokio::test]
async fn each_turn_has_its_own_cost() {
    let (mut client, mut cli, parent) = open(ClientOptions::default()).await;
    let (first, prompt) = tokio::join!(client.turn("one"), async {
        let prompt = cli.read().await;
        cli.write(&json!({"type": "system", "subtype": "init", "session_id": "s"})).await;
        cli.write(&json!({"type": "assistant", "message": {"id": "m", "content": [
            {"type": "text", "text": "hello"},
            {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}}]}}))
            .await;
        cli.write(&result_frame("1", 0.5)).await;
        prompt
    });
    assert_eq!(prompt, json!({"type": "user", "message": {"role": "user", "content": "one"}}));
    assert_eq!(text_of(&first), "1");
    assert_eq!(first.progress.partial_text, "hello");
    assert_eq!(first.progress.last_tool.as_deref(), Some("Bash: ls"));
    assert_eq!(first.progress.session_id.as_deref(), Some("s"));
    let (second, ()) = tokio::join!(client.turn("two"), async {
        cli.read().await;
        cli.write(&result_frame("2", 0.75)).await;
    });
    assert_eq!(second.progress.cost_usd.to_string(), "0.25");
    assert_eq!(second.progress.partial_text, "", "the text of the turn before is forgotten");
    assert_eq!(*parent.seen.lock().unwrap(), ["session s", "text hello", "tool Bash: ls"]);
}

#[tokio::test]
async fn control_requests_are_answered_between_turns() {
    let (_client, mut cli, _) = open(ClientOptions::default()).await;
    let hook = |tool: &str| {
        json!({"subtype": "hook_callback", "callback_id": "hook-PreToolUse",
        "input": {"tool_name": tool, "tool_input": {"a": 1}}, "tool_use_id": "t"})
    };
    assert_eq!(cli.request(hook("good")).await, json!({}));
    let denied = cli.request(hook("evil")).await;
    assert_eq!(
        denied["hookSpecificOutput"],
        json!({"hookEventName": "PreToolUse", "permissionDecision": "deny",
            "permissionDecisionReason": "no: {\"a\":1}"})
    );
    let allowed =
        cli.request(json!({"subtype": "can_use_tool", "tool_name": "x", "input": {"a": 1}}));
    assert_eq!(allowed.await, json!({"behavior": "allow", "updatedInput": {"a": 1}}));
    let message = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list"});
    let refused =
        cli.request(json!({"subtype": "mcp_message", "server_name": "x", "message": message}));
    let refused = refused.await;
    assert_eq!(refused["mcp_response"]["id"], 7);
    assert_eq!(refused["mcp_response"]["error"]["code"], -32601);
}

#[tokio::test]
async fn panicking_handler_denies() {
    let (_client, mut cli, _) = open(ClientOptions::default()).await;
    let hook = json!({"subtype": "hook_callback", "callback_id": "hook-PreToolUse",
        "input": {"tool_name": "panic"}});
    let answer = cli.request(hook).await;
    assert_eq!(answer["hookSpecificOutput"]["permissionDecision"], "deny");
}

#[tokio::test]
async fn control_request_nested_too_deeply_is_denied() {
    let (_client, mut cli, _) = open(ClientOptions::default()).await;
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
async fn pending_control_request_does_not_block_and_is_dropped_when_cancelled() {
    let (mut client, mut cli, parent) = open(ClientOptions::default()).await;
    let (end, ()) = tokio::join!(client.turn("x"), async {
        cli.read().await;
        let request = json!({"subtype": "can_use_tool", "tool_name": "wait"});
        cli.write(&json!({"type": "control_request", "request_id": "w", "request": request})).await;
        parent.asked.notified().await;
        cli.write(&json!({"type": "control_cancel_request", "request_id": "w"})).await;
        tokio::time::timeout(READ_TIMEOUT, parent.dropped.notified()).await.unwrap();
        cli.write(&result_frame("done", 0.0)).await;
    });
    assert_eq!(text_of(&end), "done");
}

#[tokio::test]
async fn open_reports_eof_before_initialize_is_answered() {
    let (read, write, cli) = pipe();
    drop(cli);
    let parent = Arc::new(TestControlHandler::default());
    let opened = ClaudeClient::open(read, write, parent, ClientOptions::default()).await;
    assert_eq!(opened.err(), Some(OpenError::StreamEnded));
}

#[tokio::test]
async fn open_reports_a_result_instead_of_an_answer() {
    let (read, write, mut cli) = pipe();
    let parent = Arc::new(TestControlHandler::default());
    cli.write(&json!({"type": "result", "subtype": "error_during_execution", "is_error": true,
        "errors": ["No conversation found with session ID: x"]}))
        .await;
    let opened = ClaudeClient::open(read, write, parent, ClientOptions::default()).await;
    let Some(OpenError::EndedEarly(result)) = opened.err() else { panic!("opened") };
    assert_eq!(result.subtype, ResultSubtype::DuringExecution);
    assert_eq!(result.errors, ["No conversation found with session ID: x"]);
}

#[tokio::test]
async fn turn_without_a_result_keeps_its_partial_text() {
    let (mut client, mut cli, _) = open(ClientOptions::default()).await;
    let (end, ()) = tokio::join!(client.turn("x"), async move {
        cli.read().await;
        cli.write(&json!({"type": "assistant", "message": {"id": "m",
            "content": [{"type": "text", "text": "half"}]}}))
            .await;
        cli.output.write_all(b"not json\n{\"type\":\"result\",\"is_err").await.unwrap();
        cli.output.shutdown().await.unwrap();
    });
    assert_eq!(end.result, TurnResult::StreamEnded);
    assert_eq!(end.progress.partial_text, "half");
    assert_eq!(end.progress.skipped_lines, 2);
    let again = client.turn("y").await;
    assert_eq!(again.result, TurnResult::StreamEnded, "and it stays over");
}

#[tokio::test]
async fn line_over_the_limit_ends_the_turn() {
    let options = ClientOptions { max_line_bytes: 1000, ..ClientOptions::default() };
    let (mut client, mut cli, _) = open(options).await;
    let (end, ()) = tokio::join!(client.turn("x"), async {
        cli.read().await;
        cli.write(&result_frame(&"x".repeat(1001), 0.0)).await;
    });
    assert_eq!(end.result, TurnResult::LineTooLong { limit: 1000 });
}

#[tokio::test]
async fn wrong_session_ends_the_turn() {
    let options = ClientOptions { session_id: Some("mine".into()), ..ClientOptions::default() };
    let (mut client, mut cli, _) = open(options).await;
    let (end, ()) = tokio::join!(client.turn("x"), async {
        cli.read().await;
        cli.write(&result_frame("of somebody else", 0.0)).await;
    });
    let expected = TurnResult::WrongSession { expected: "mine".into(), found: "s".into() };
    assert_eq!(end.result, expected);
}

#[tokio::test]
async fn result_of_a_dropped_turn_is_not_returned_by_the_next() {
    let (mut client, mut cli, _) = open(ClientOptions::default()).await;
    tokio::select! {
        _ = client.turn("first") => panic!("there is no result"),
        prompt = cli.read() => assert_eq!(prompt["message"]["content"], "first"),
    }
    let (end, ()) = tokio::join!(client.turn("second"), async {
        let interrupt = cli.read().await;
        assert_eq!(interrupt["request"]["subtype"], "interrupt");
        cli.write(&result_frame("first", 0.5)).await;
        assert_eq!(cli.read().await["message"]["content"], "second");
        cli.write(&result_frame("second", 0.75)).await;
    });
    assert_eq!(text_of(&end), "second");
    assert_eq!(end.progress.cost_usd.to_string(), "0.25");
}

#[tokio::test]
async fn result_without_a_running_turn_is_discarded() {
    let (mut client, mut cli, parent) = open(ClientOptions::default()).await;
    cli.write(&result_frame("late", 0.0)).await;
    // The answer to a request sent after the result proves that the result was read.
    cli.request(json!({"subtype": "can_use_tool", "tool_name": "x", "input": {}})).await;
    let (end, ()) = tokio::join!(client.turn("x"), async {
        cli.read().await;
        cli.write(&result_frame("mine", 0.0)).await;
    });
    assert_eq!(text_of(&end), "mine");
    assert_eq!(*parent.seen.lock().unwrap(), ["stale"]);
}

#[tokio::test]
async fn output_is_read_while_the_cli_does_not_read() {
    let (mut client, mut cli, _) = open(ClientOptions::default()).await;
    // The prompt exceeds the capacity of the pipe; the result is read while the prompt is still being written.
    let prompt = "x".repeat(1 << 20);
    let (end, ()) = tokio::join!(client.turn(&prompt), async {
        cli.write(&result_frame("done", 0.0)).await;
    });
    assert_eq!(text_of(&end), "done");
}

#[tokio::test]
async fn prompt_with_a_leading_slash_is_not_a_command() {
    let (mut client, mut cli, _) = open(ClientOptions::default()).await;
    let (_, prompt) = tokio::join!(client.turn("/clear"), async {
        let prompt = cli.read().await;
        cli.write(&result_frame("", 0.0)).await;
        prompt
    });
    assert_eq!(prompt["message"]["content"], "\n/clear");
}

#[tokio::test]
async fn result_of_a_background_turn_is_discarded() {
    let (mut client, mut cli, parent) = open(ClientOptions::default()).await;
    let (end, ()) = tokio::join!(client.turn("x"), async {
        cli.read().await;
        let mut unasked = result_frame("a command ended", 0.0);
        unasked["origin"] = json!({"kind": "task-notification"});
        cli.write(&unasked).await;
        cli.write(&result_frame("mine", 0.0)).await;
    });
    assert_eq!(text_of(&end), "mine");
    assert_eq!(*parent.seen.lock().unwrap(), ["stale"]);
}

#[tokio::test]
async fn line_separators_inside_a_prompt_are_escaped() {
    let (mut client, mut cli, _) = open(ClientOptions::default()).await;
    let (_, line) = tokio::join!(client.turn("a\u{2028}b"), async {
        let line = cli.lines.next_line().await.unwrap().unwrap();
        cli.write(&result_frame("", 0.0)).await;
        line
    });
    assert!(line.contains(r"a\u2028b"), "{line}");
}

#[tokio::test]
async fn dropping_the_client_closes_stdin() {
    let (client, mut cli, _) = open(ClientOptions::default()).await;
    let handle = client.handle();
    drop(client);
    handle.interrupt();
    let end = tokio::time::timeout(READ_TIMEOUT, cli.lines.next_line()).await.unwrap();
    assert_eq!(end.unwrap(), None);
}
