//! The real `claude` and [`ClaudeClient`]: the protocol behaviour that the rest of the program relies on.

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adjutant::claude::{
    BoxFuture, ClaudeClient, ClientOptions, ControlHandler, HookDecision, Observation,
    PermissionAnswer, PermissionRequest, ResultFrame, ResultSubtype, ToolUse, TurnEnd, TurnResult,
};
use adjutant::jsonrpc::LineJson;
use adjutant::plan::CliFeatures;
use adjutant::scripted_model::ScriptedModel;
use serde_json::{Value, json};
use test_case::test_case;
use tokio::process::{Child, Command};

use crate::support::TestContext;
use crate::support::real_claude::{real_claude, scripted_environment};

const STEP_TIMEOUT: Duration = Duration::from_mins(2);

/// A control handler that denies inputs with `evil` in the hook and every permission request.
#[derive(Default)]
struct TestControlHandler {
    has_logged: Mutex<Vec<String>>,
    asked: tokio::sync::Notify,
}

impl TestControlHandler {
    fn log(&self, line: String) {
        self.has_logged.lock().unwrap().push(line);
    }

    fn seen(&self, line: &str) -> bool {
        self.has_logged.lock().unwrap().iter().any(|seen| seen == line)
    }
}

impl ControlHandler for TestControlHandler {
    fn pre_tool_use(&self, tool_use: ToolUse) -> BoxFuture<'_, HookDecision> {
        Box::pin(async move {
            self.log(format!("judged {}", tool_use.tool_name));
            if tool_use.input.to_string().contains("evil") {
                return HookDecision::Deny { reason: "policy says no".into() };
            }
            HookDecision::Proceed
        })
    }

    fn can_use_tool(&self, request: PermissionRequest) -> BoxFuture<'_, PermissionAnswer> {
        Box::pin(async move {
            self.asked.notify_one();
            if request.input.to_string().contains("wait") {
                std::future::pending::<()>().await;
            }
            let rule = request.suggested_rule().unwrap_or_default();
            PermissionAnswer::Deny { message: format!("no rule allows `{rule}`") }
        })
    }

    fn mcp_message(&self, server: String, message: LineJson) -> BoxFuture<'_, Option<LineJson>> {
        Box::pin(async move {
            let message: Value = serde_json::from_str(message.as_str()).unwrap();
            assert_eq!(server, "shelf");
            let id = message.get("id")?;
            let result = match message["method"].as_str()? {
                "initialize" => {
                    json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                    "serverInfo": {"name": "shelf", "version": "1"}})
                }
                "tools/list" => json!({"tools": [{"name": "find", "description": "finds",
                    "inputSchema": {"type": "object"}}]}),
                "tools/call" => {
                    let book = &message["params"]["arguments"]["book"];
                    json!({"content": [{"type": "text", "text": format!("found {book}")}]})
                }
                _ => {
                    let error = json!({"code": -32601, "message": "unknown"});
                    let response = json!({"jsonrpc": "2.0", "id": id, "error": error});
                    return LineJson::encode(&response).ok();
                }
            };
            LineJson::encode(&json!({"jsonrpc": "2.0", "id": id, "result": result})).ok()
        })
    }

    fn observe(&self, observation: &Observation<'_>) {
        match observation {
            Observation::ToolStarted { summary, .. } => self.log(format!("started {summary}")),
            Observation::ToolFinished { is_error, text, .. } => {
                self.log(format!("finished {is_error} {text}"));
            }
            Observation::StaleResult => self.log("stale".into()),
            _ => {}
        }
    }
}

struct ClaudeSession {
    client: ClaudeClient,
    handler: Arc<TestControlHandler>,
    model: ScriptedModel,
    child: Child,
    _context: TestContext,
}

/// Starts this version with one built-in tool, one SDK server and its own system prompt.
async fn start_claude(version: &str) -> Option<ClaudeSession> {
    let program = real_claude(version)?;
    let context = TestContext::new();
    let model = ScriptedModel::start().unwrap();
    let mut child = Command::new(program)
        .args("-p --input-format stream-json --output-format stream-json --verbose".split(' '))
        .args(["--setting-sources", "", "--strict-mcp-config", "--tools", "Bash"])
        .args("--permission-mode default --permission-prompt-tool stdio".split(' '))
        .args(["--allowedTools", "mcp__shelf__find", "Bash(echo:*)"])
        .env_clear()
        .envs(scripted_environment(&model, &context.home()))
        .current_dir(context.root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut options = ClientOptions::default();
    options.initialize.insert("systemPrompt".into(), json!("You are brief."));
    options.initialize.insert("sdkMcpServers".into(), json!(["shelf"]));
    let judge = Arc::new(TestControlHandler::default());
    let (stdout, stdin) = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
    let opening = ClaudeClient::open(stdout, stdin, judge.clone(), options);
    let conversation = with_timeout(opening).await.unwrap();
    Some(ClaudeSession { client: conversation, handler: judge, model, child, _context: context })
}

async fn with_timeout<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(STEP_TIMEOUT, future).await.expect("it takes too long")
}

fn result_frame(end: &TurnEnd) -> &ResultFrame {
    match &end.result {
        TurnResult::Result(result) => result,
        other => panic!("{other:?}"),
    }
}

#[test_case("2.1.325")]
#[test_case("2.1.197")]
#[tokio::test]
async fn every_tool_call_is_checked_and_sdk_servers_are_reachable(version: &str) {
    let Some(mut session) = start_claude(version).await else { return };
    let script = r#"CALL Bash {"command": "echo evil"}
CALL Bash {"command": "touch here"}
PAR Bash {"command": "echo fine"} ;; mcp__shelf__find {"book": 7}"#;
    let end = with_timeout(session.client.turn(script)).await;
    let first = result_frame(&end);
    assert!(first.is_success(), "{first:?}");
    let answer = first.result.as_deref().unwrap();
    let expected = ["policy says no", "no rule allows `Bash(touch here *)`", "fine", "found 7"];
    let lines: Vec<&str> = answer.lines().collect();
    assert_eq!(lines.len(), 4, "{answer}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.ends_with(expected), "{line}");
    }
    let denied: Vec<&Value> =
        first.permission_denials.iter().map(|denial| &denial.tool_input["command"]).collect();
    assert_eq!(denied, ["echo evil", "touch here"]);
    assert!(session.handler.seen("judged mcp__shelf__find"));
    assert!(session.handler.seen("started Bash: touch here"));
    assert!(session.handler.seen("finished false fine"));
    // There are four round trips, but the CLI counts tool results, and one round trip had two.
    assert_eq!(end.progress.turns, 5);

    let request = &session.model.requests()[0];
    assert!(request.body["system"].to_string().contains("You are brief."));

    // The CLI's total counts from the start of the process; each turn reports only its own cost.
    let second = with_timeout(session.client.turn("USAGE 1000 0\nSAY again")).await;
    assert_eq!(result_frame(&second).result.as_deref(), Some("again"));
    assert!(second.progress.cost_usd > 0.0 && end.progress.cost_usd > 0.0);
    let total = result_frame(&second).total_cost_usd;
    let sum = end.progress.cost_usd + second.progress.cost_usd;
    assert!((total - sum).abs() < 1e-9, "{total} is not {sum}");

    session.client.close();
    assert!(with_timeout(session.child.wait()).await.unwrap().success());
}

#[test_case("2.1.325")]
#[test_case("2.1.197")]
#[tokio::test]
async fn turn_can_be_interrupted_and_the_next_turn_works(version: &str) {
    let Some(mut session) = start_claude(version).await else { return };
    let handle = session.client.handle();
    let judge = Arc::clone(&session.handler);
    let turn = session.client.turn("SAY thinking\nCALL Bash {\"command\": \"wait\"}");
    let (end, ()) = with_timeout(async {
        tokio::join!(turn, async {
            judge.asked.notified().await;
            handle.interrupt();
        })
    })
    .await;
    assert!(result_frame(&end).is_aborted() && !result_frame(&end).is_success(), "{end:?}");
    assert_eq!(end.progress.partial_text, "thinking");

    // A turn is dropped while the model is silent: the next turn must not get its result.
    let dropped = session.client.turn("SLEEP 600\nSAY too late");
    let asked = session.model.requests().len();
    tokio::select! {
        end = dropped => panic!("{end:?}"),
        () = with_timeout(async {
            while session.model.requests().len() == asked {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }) => {}
    }
    let end = with_timeout(session.client.turn("SAY alive")).await;
    assert_eq!(result_frame(&end).result.as_deref(), Some("alive"));
}

#[test_case("2.1.325")]
#[test_case("2.1.197")]
#[tokio::test]
async fn prompt_of_three_megabytes_arrives_complete(version: &str) {
    let Some(mut session) = start_claude(version).await else { return };
    let filler = "ä\u{2028}b ".repeat(500_000);
    let prompt = format!("{filler}\nSAY got it");
    assert!(prompt.len() > 3_000_000);
    let end = with_timeout(session.client.turn(&prompt)).await;
    assert_eq!(result_frame(&end).result.as_deref(), Some("got it"));
    let requests = session.model.requests();
    let body = &requests[0].body["messages"];
    let texts = body.as_array().unwrap().iter().flat_map(|message| match &message["content"] {
        Value::Array(blocks) => blocks.iter().filter_map(|block| block["text"].as_str()).collect(),
        content => content.as_str().into_iter().collect::<Vec<_>>(),
    });
    assert!(texts.into_iter().any(|text| text == prompt), "the prompt is not in the request");
}

#[test_case("2.1.325")]
#[test_case("2.1.197")]
#[tokio::test]
async fn turn_gets_its_own_result_and_api_failures_are_failures(version: &str) {
    let Some(mut session) = start_claude(version).await else { return };
    let end = with_timeout(session.client.turn("/compact\nSAY it was text")).await;
    assert_eq!(result_frame(&end).result.as_deref(), Some("it was text"));

    // When a background command exits, the CLI starts a turn of its own.
    let script = "CALL Bash {\"command\": \"echo x\", \"run_in_background\": true}\nSAY started";
    let end = with_timeout(session.client.turn(script)).await;
    assert_eq!(result_frame(&end).result.as_deref(), Some("started"));
    with_timeout(async {
        while !session.handler.seen("stale") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let end = with_timeout(session.client.turn("SAY mine")).await;
    assert_eq!(result_frame(&end).result.as_deref(), Some("mine"));

    let end = with_timeout(session.client.turn("FAIL 401 final")).await;
    let failed = result_frame(&end);
    assert!(failed.is_error && failed.subtype == ResultSubtype::Success, "{failed:?}");
    assert_eq!(failed.api_error_status, Some(401));
}

#[test_case("2.1.325", true)]
#[test_case("2.1.197", false)]
#[tokio::test]
async fn features_are_detected_from_the_real_help_text(version: &str, is_new: bool) {
    let Some(program) = real_claude(version) else { return };
    let context = TestContext::new();
    let ask = async |flag: &str| {
        let output = Command::new(&program)
            .arg(flag)
            .env_clear()
            .env("HOME", context.home())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .output();
        String::from_utf8(with_timeout(output).await.unwrap().stdout).unwrap()
    };
    let features = CliFeatures::parse(&ask("--help").await, &ask("--version").await);
    assert_eq!(features.version, version);
    assert!(features.missing_required().is_empty(), "{:?}", features.missing_required());
    for flag in
        ["--effort", "--resume", "--session-id", "--no-session-persistence", "--json-schema"]
    {
        assert!(features.has(flag), "{flag}");
    }
    for flag in ["--restricted", "--permission-prompts", "--system-prompt-snapshot"] {
        assert_eq!(features.has(flag), is_new, "{flag}");
    }
}
