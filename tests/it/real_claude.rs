//! The real `claude` and the conversation: what the rest of the program builds on.

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adjutant::claude::{
    Approval, ApprovalRequest, BoxFuture, Conversation, Ending, HookVerdict, Observation, Options,
    Parent, ResultFrame, ResultSubtype, ToolUse, TurnEnd,
};
use adjutant::plan::Features;
use adjutant::scripted::ScriptedModel;
use serde_json::{Value, json};
use test_case::test_case;
use tokio::process::{Child, Command};

use crate::support::TestContext;
use crate::support::claude::{real_claude, scripted_environment};

const PATIENCE: Duration = Duration::from_mins(2);

/// Refuses what has `evil` in it before any rule, and everything that no rule allows.
#[derive(Default)]
struct Judge {
    seen: Mutex<Vec<String>>,
    asked: tokio::sync::Notify,
}

impl Judge {
    fn note(&self, line: String) {
        self.seen.lock().unwrap().push(line);
    }

    fn seen(&self, line: &str) -> bool {
        self.seen.lock().unwrap().iter().any(|seen| seen == line)
    }
}

impl Parent for Judge {
    fn pre_tool_use(&self, tool_use: ToolUse) -> BoxFuture<'_, HookVerdict> {
        Box::pin(async move {
            self.note(format!("judged {}", tool_use.tool_name));
            if tool_use.input.to_string().contains("evil") {
                return HookVerdict::Deny { reason: "policy says no".into() };
            }
            HookVerdict::Proceed
        })
    }

    fn can_use_tool(&self, request: ApprovalRequest) -> BoxFuture<'_, Approval> {
        Box::pin(async move {
            self.asked.notify_one();
            if request.input.to_string().contains("wait") {
                std::future::pending::<()>().await;
            }
            let rule = request.suggested_rule().unwrap_or_default();
            Approval::Deny { message: format!("no rule allows `{rule}`") }
        })
    }

    fn mcp_message(&self, server: String, message: Value) -> BoxFuture<'_, Option<Value>> {
        Box::pin(async move {
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
                    return Some(json!({"jsonrpc": "2.0", "id": id,
                        "error": {"code": -32601, "message": "unknown"}}));
                }
            };
            Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
        })
    }

    fn observe(&self, observation: &Observation<'_>) {
        match observation {
            Observation::ToolStarted { summary, .. } => self.note(format!("started {summary}")),
            Observation::ToolFinished { is_error, text, .. } => {
                self.note(format!("finished {is_error} {text}"));
            }
            Observation::StaleResult => self.note("stale".into()),
            _ => {}
        }
    }
}

struct Talk {
    conversation: Conversation,
    judge: Arc<Judge>,
    model: ScriptedModel,
    child: Child,
    _context: TestContext,
}

/// Starts this version with one built-in tool, one tunnelled server and a prompt of its own.
async fn talk(version: &str) -> Option<Talk> {
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
    let mut options = Options::default();
    options.initialize.insert("systemPrompt".into(), json!("You are brief."));
    options.initialize.insert("sdkMcpServers".into(), json!(["shelf"]));
    let judge = Arc::new(Judge::default());
    let (stdout, stdin) = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
    let opening = Conversation::open(stdout, stdin, judge.clone(), options);
    let conversation = in_time(opening).await.unwrap();
    Some(Talk { conversation, judge, model, child, _context: context })
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it takes too long")
}

fn result(end: &TurnEnd) -> &ResultFrame {
    match &end.ending {
        Ending::Result(result) => result,
        other => panic!("{other:?}"),
    }
}

#[test_case("2.1.325")]
#[test_case("2.1.197")]
#[tokio::test]
async fn every_call_is_judged_and_servers_are_tunnelled(version: &str) {
    let Some(mut talk) = talk(version).await else { return };
    let script = r#"CALL Bash {"command": "echo evil"}
CALL Bash {"command": "touch here"}
PAR Bash {"command": "echo fine"} ;; mcp__shelf__find {"book": 7}"#;
    let end = in_time(talk.conversation.turn(script)).await;
    let first = result(&end);
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
    assert!(talk.judge.seen("judged mcp__shelf__find"));
    assert!(talk.judge.seen("started Bash: touch here"));
    assert!(talk.judge.seen("finished false fine"));
    // Four round trips, but the CLI counts the results of tools, of which one trip had two.
    assert_eq!(end.progress.turns, 5);

    let request = &talk.model.requests()[0];
    assert!(request.body["system"].to_string().contains("You are brief."));

    // The process counts its dollars from its start; each turn has only its own.
    let second = in_time(talk.conversation.turn("USAGE 1000 0\nSAY again")).await;
    assert_eq!(result(&second).result.as_deref(), Some("again"));
    assert!(second.progress.cost_usd > 0.0 && end.progress.cost_usd > 0.0);
    let total = result(&second).total_cost_usd;
    let sum = end.progress.cost_usd + second.progress.cost_usd;
    assert!((total - sum).abs() < 1e-9, "{total} is not {sum}");

    talk.conversation.close();
    assert!(in_time(talk.child.wait()).await.unwrap().success());
}

#[test_case("2.1.325")]
#[test_case("2.1.197")]
#[tokio::test]
async fn a_turn_can_be_interrupted_and_the_next_one_works(version: &str) {
    let Some(mut talk) = talk(version).await else { return };
    let handle = talk.conversation.handle();
    let judge = Arc::clone(&talk.judge);
    let turn = talk.conversation.turn("SAY thinking\nCALL Bash {\"command\": \"wait\"}");
    let (end, ()) = in_time(async {
        tokio::join!(turn, async {
            judge.asked.notified().await;
            handle.interrupt();
        })
    })
    .await;
    assert!(result(&end).is_aborted() && !result(&end).is_success(), "{end:?}");
    assert_eq!(end.progress.partial, "thinking");

    // A turn that is dropped while the model is silent: the next one is not given its result.
    let dropped = talk.conversation.turn("SLEEP 600\nSAY too late");
    let asked = talk.model.requests().len();
    tokio::select! {
        end = dropped => panic!("{end:?}"),
        () = in_time(async {
            while talk.model.requests().len() == asked {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }) => {}
    }
    let end = in_time(talk.conversation.turn("SAY alive")).await;
    assert_eq!(result(&end).result.as_deref(), Some("alive"));
}

#[test_case("2.1.325")]
#[test_case("2.1.197")]
#[tokio::test]
async fn three_megabytes_arrive_whole(version: &str) {
    let Some(mut talk) = talk(version).await else { return };
    let filler = "ä\u{2028}b ".repeat(500_000);
    let prompt = format!("{filler}\nSAY got it");
    assert!(prompt.len() > 3_000_000);
    let end = in_time(talk.conversation.turn(&prompt)).await;
    assert_eq!(result(&end).result.as_deref(), Some("got it"));
    let requests = talk.model.requests();
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
async fn a_turn_gets_its_own_answer_and_a_failure_is_one(version: &str) {
    let Some(mut talk) = talk(version).await else { return };
    let end = in_time(talk.conversation.turn("/compact\nSAY it was text")).await;
    assert_eq!(result(&end).result.as_deref(), Some("it was text"));

    // When a command in the background ends, the CLI begins a turn of its own.
    let script = "CALL Bash {\"command\": \"echo x\", \"run_in_background\": true}\nSAY started";
    let end = in_time(talk.conversation.turn(script)).await;
    assert_eq!(result(&end).result.as_deref(), Some("started"));
    in_time(async {
        while !talk.judge.seen("stale") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let end = in_time(talk.conversation.turn("SAY mine")).await;
    assert_eq!(result(&end).result.as_deref(), Some("mine"));

    let end = in_time(talk.conversation.turn("FAIL 401 final")).await;
    let failed = result(&end);
    assert!(failed.is_error && failed.subtype == ResultSubtype::Success, "{failed:?}");
    assert_eq!(failed.api_error_status, Some(401));
}

#[test_case("2.1.325", true)]
#[test_case("2.1.197", false)]
#[tokio::test]
async fn features_are_read_from_the_real_help(version: &str, is_new: bool) {
    let Some(program) = real_claude(version) else { return };
    let context = TestContext::new();
    let ask = async |flag: &str| {
        let output = Command::new(&program)
            .arg(flag)
            .env_clear()
            .env("HOME", context.home())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .output();
        String::from_utf8(in_time(output).await.unwrap().stdout).unwrap()
    };
    let features = Features::parse(&ask("--help").await, &ask("--version").await);
    assert_eq!(features.version, version);
    assert!(features.missing().is_empty(), "{:?}", features.missing());
    for flag in
        ["--effort", "--resume", "--session-id", "--no-session-persistence", "--json-schema"]
    {
        assert!(features.has(flag), "{flag}");
    }
    for flag in ["--restricted", "--permission-prompts", "--system-prompt-snapshot"] {
        assert_eq!(features.has(flag), is_new, "{flag}");
    }
}
