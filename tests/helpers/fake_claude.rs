//! A `claude` that misbehaves on purpose, for what the real one cannot be made to do.
//!
//! Told nothing, it behaves: it answers `initialize`, echoes each prompt as the result, keeps
//! sessions where the real one does, and ends when stdin is closed. What else it shall do stands
//! in the variable `FAKE_CLAUDE` (directives separated by `;`, for the start and every turn) or in the
//! prompt (lines `FAKE directive`, for that turn); `fake_claude/script.rs` lists the directives.

#![allow(
    unreachable_pub,
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a helper of tests says what went wrong by panicking"
)]

#[path = "fake_claude/faults.rs"]
mod faults;
#[path = "fake_claude/script.rs"]
mod script;
#[path = "fake_claude/session.rs"]
mod session;

use std::io::{self, BufRead, Write};
use std::process::exit;

use serde_json::{Value, json};

use script::Directive;
use session::Session;

const HELP: &str = include_str!("fake_claude/help.txt");

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--version" || argument == "-v") {
        println!("2.1.325 (Claude Code)");
        return;
    }
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        println!("{HELP}");
        return;
    }
    let in_every_turn = faults::at_start(script::due(script::from_variable()), &arguments);
    let mut claude = Claude {
        session: Session::from_arguments(&arguments),
        arguments,
        hooks: json!({}),
        cost: 0.0,
        questions: 0,
    };
    claude.serve(&in_every_turn);
}

/// One conversation.
pub struct Claude {
    session: Session,
    arguments: Vec<String>,
    hooks: Value,
    cost: f64,
    questions: u64,
}

impl Claude {
    fn serve(&mut self, in_every_turn: &[Directive]) {
        while let Some(frame) = read() {
            match frame["type"].as_str() {
                Some("control_request") => {
                    self.answer(&frame);
                    if in_every_turn.iter().any(|directive| directive.name == "stray-result") {
                        write(&self.result("stray"));
                    }
                }
                Some("user") => {
                    let prompt = frame["message"]["content"].as_str().unwrap_or_default();
                    self.turn(prompt, in_every_turn);
                }
                _ => {}
            }
        }
    }

    fn answer(&mut self, frame: &Value) {
        let request = &frame["request"];
        if request["subtype"] == "initialize" {
            self.hooks = request["hooks"].clone();
        }
        write(&json!({"type": "control_response", "response": {
            "subtype": "success", "request_id": frame["request_id"], "response": {"commands": []},
        }}));
    }

    fn turn(&mut self, prompt: &str, in_every_turn: &[Directive]) {
        let directives = script::due(script::from_prompt(prompt));
        for late in directives.iter().filter(|directive| directive.name == "late-result") {
            write(&self.result(&late.rest));
        }
        let before = self.session.remember(prompt);
        write(&json!({"type": "system", "subtype": "init", "session_id": self.session.id,
            "tools": ["Bash"], "mcp_servers": [], "model": "fake", "permissionMode": "default",
            "claude_code_version": "2.1.325", "cwd": std::env::current_dir().unwrap()}));
        self.cost += 0.01;
        let mut result = self.result(prompt);
        let mut after = Vec::new();
        for directive in in_every_turn.iter().chain(&directives) {
            self.obey(directive, &mut result, &before, &mut after);
        }
        write(&result);
        for frame in after {
            write(&frame);
        }
    }

    fn result(&self, text: &str) -> Value {
        json!({"type": "result", "subtype": "success", "is_error": false,
            "result": text, "session_id": self.session.id, "total_cost_usd": self.cost,
            "num_turns": 1, "duration_ms": 1, "duration_api_ms": 1, "permission_denials": [],
            "usage": {"input_tokens": 10, "output_tokens": 5}, "modelUsage": {}})
    }

    /// The directives that shape a turn; those that break it are in `faults`.
    fn obey(
        &mut self,
        directive: &Directive,
        result: &mut Value,
        before: &[String],
        after: &mut Vec<Value>,
    ) {
        let rest = directive.rest.as_str();
        match directive.name.as_str() {
            "say" => self.say(rest),
            "stray-result" | "late-result" => {}
            "tool-begun" => self.call_tool(rest),
            "tool" => {
                self.call_tool(rest);
                write(
                    &json!({"type": "user", "session_id": self.session.id, "message": {"role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "done"}]}}),
                );
            }
            "result" => result["result"] = rest.into(),
            "recall" => result["result"] = before.join("|").into(),
            "report" => result["result"] = self.report().to_string().into(),
            "is-error" => {
                result["is_error"] = true.into();
                result["result"] = format!("API Error: {rest}").into();
            }
            "subtype" => {
                result["subtype"] = rest.into();
                result["is_error"] = true.into();
                result.as_object_mut().unwrap().remove("result");
            }
            "deny" => {
                result["permission_denials"] = json!([{"tool_name": rest, "tool_use_id": "toolu_1",
                    "tool_input": {"command": "x"}}]);
            }
            "structured" => result["structured_output"] = serde_json::from_str(rest).unwrap(),
            "wrong-session" => {
                result["session_id"] = "00000000-0000-4000-8000-000000000000".into();
            }
            "stale-result" => {
                let mut stale = result.clone();
                stale["result"] = "stale".into();
                after.push(stale);
            }
            "retry" => write(&json!({"type": "system", "subtype": "api_retry", "attempt": 1,
                "max_retries": 10, "retry_delay_ms": 5.5, "error_status": 529, "error": "overloaded"})),
            "ask" => result["result"] = self.ask(rest).into(),
            "hook" => self.hook(rest),
            "wait-for-interrupt" => self.wait_for_interrupt(result),
            _ => faults::in_turn(directive, result),
        }
    }

    fn say(&self, text: &str) {
        write(&json!({"type": "assistant", "session_id": self.session.id,
            "message": {"id": format!("msg_{text}"), "content": [{"type": "text", "text": text}]}}));
    }

    fn call_tool(&self, name: &str) {
        write(&json!({"type": "assistant", "session_id": self.session.id,
            "message": {"id": format!("msg_{name}"), "content": [{"type": "tool_use", "id": "toolu_1",
                "name": name, "input": {"command": "x"}}]}}));
    }

    fn report(&self) -> Value {
        let mut names: Vec<String> =
            std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
        names.sort();
        json!({"arguments": self.arguments, "environment": names,
            "cwd": std::env::current_dir().unwrap(), "pid": std::process::id()})
    }

    /// Asks like the real one: first the hook, then for approval. The answer tells both verdicts.
    fn ask(&mut self, call: &str) -> String {
        let (tool, input) = call.split_once(' ').unwrap_or((call, "{}"));
        let input: Value = serde_json::from_str(input).unwrap();
        let hook = self.hooks["PreToolUse"][0]["hookCallbackIds"][0].clone();
        if !hook.is_null() {
            let verdict = self.question(&json!({"subtype": "hook_callback", "callback_id": hook,
                "input": {"hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": input},
                "tool_use_id": "toolu_1"}));
            let output = &verdict["hookSpecificOutput"];
            if output["permissionDecision"] == "deny" {
                return format!("hook: {}", output["permissionDecisionReason"].as_str().unwrap());
            }
        }
        let verdict = self.question(&json!({"subtype": "can_use_tool", "tool_name": tool,
            "input": input, "tool_use_id": "toolu_1", "permission_suggestions": []}));
        match verdict["behavior"].as_str() {
            Some("allow") => format!("allowed: {}", verdict["updatedInput"]),
            _ => format!("denied: {}", verdict["message"].as_str().unwrap_or_default()),
        }
    }

    /// Tells of an event, as the real one does where hooks are registered for it.
    fn hook(&mut self, told: &str) {
        let (event, payload) = told.split_once(' ').unwrap_or((told, "{}"));
        let mut payload: Value = serde_json::from_str(payload).unwrap();
        payload["hook_event_name"] = event.into();
        payload["session_id"] = self.session.id.clone().into();
        let hook = self.hooks[event][0]["hookCallbackIds"][0].clone();
        assert!(!hook.is_null(), "nobody wants to hear of {event}");
        self.question(&json!({"subtype": "hook_callback", "callback_id": hook, "input": payload}));
    }

    fn question(&mut self, request: &Value) -> Value {
        self.questions += 1;
        let id = format!("fake-{}", self.questions);
        write(&json!({"type": "control_request", "request_id": id, "request": request}));
        loop {
            let frame = read().unwrap_or_else(|| exit(0));
            if frame["response"]["request_id"] == id.as_str() {
                return frame["response"]["response"].clone();
            }
            if frame["type"] == "control_request" {
                self.answer(&frame);
            }
        }
    }

    fn wait_for_interrupt(&mut self, result: &mut Value) {
        loop {
            let frame = read().unwrap_or_else(|| exit(0));
            self.answer(&frame);
            if frame["request"]["subtype"] == "interrupt" {
                result["subtype"] = "error_during_execution".into();
                result["is_error"] = true.into();
                result["terminal_reason"] = "aborted_streaming".into();
                return;
            }
        }
    }
}

fn read() -> Option<Value> {
    let mut line = String::new();
    let count = io::stdin().lock().read_line(&mut line).unwrap();
    (count > 0).then(|| serde_json::from_str(&line).expect("one JSON object a line"))
}

/// Writes one frame; a parent that is gone is no reason to make noise.
pub fn write(frame: &Value) {
    let mut stdout = io::stdout().lock();
    if writeln!(stdout, "{frame}").and_then(|()| stdout.flush()).is_err() {
        exit(0);
    }
}
