//! A fake `claude` for faults that the real CLI cannot be made to produce.
//!
//! Without directives: answers `initialize`, returns each prompt as the result, stores sessions in the directory of the
//! real CLI, and exits when stdin is closed. Directives come from the variable `FAKE_CLAUDE` (separated by `;`, for the
//! start and every turn) or from lines `FAKE directive` of the prompt (for that turn); see `fake_claude/script.rs`.

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
    let in_every_turn = faults::run_start_directives(
        script::without_completed(script::from_variable()),
        &arguments,
    );
    let mut claude = FakeClaude {
        session: Session::from_arguments(&arguments),
        arguments,
        hooks: json!({}),
        cost: 0.0,
        control_requests: 0,
    };
    claude.serve(&in_every_turn);
}

/// State of the process: one session and the hooks registered by `initialize`.
pub struct FakeClaude {
    session: Session,
    arguments: Vec<String>,
    hooks: Value,
    cost: f64,
    control_requests: u64,
}

impl FakeClaude {
    fn serve(&mut self, in_every_turn: &[Directive]) {
        while let Some(frame) = read_frame() {
            match frame["type"].as_str() {
                Some("control_request") => {
                    self.respond(&frame);
                    if in_every_turn.iter().any(|directive| directive.name == "stray-result") {
                        write_frame(&self.result("stray"));
                    }
                }
                Some("user") => {
                    let prompt = frame["message"]["content"].as_str().unwrap_or_default();
                    self.turn(prompt, in_every_turn);
                }
                _ => {}
            }
        }
        if in_every_turn.iter().any(|directive| directive.name == "linger") {
            faults::hang();
        }
    }

    fn respond(&mut self, frame: &Value) {
        let request = &frame["request"];
        if request["subtype"] == "initialize" {
            self.hooks = request["hooks"].clone();
        }
        write_frame(&json!({"type": "control_response", "response": {
            "subtype": "success", "request_id": frame["request_id"], "response": {"commands": []},
        }}));
    }

    fn turn(&mut self, prompt: &str, in_every_turn: &[Directive]) {
        let directives = script::without_completed(script::from_prompt(prompt));
        for late in directives.iter().filter(|directive| directive.name == "late-result") {
            write_frame(&self.result(&late.argument));
        }
        let before = self.session.append_prompt(prompt);
        write_frame(&json!({"type": "system", "subtype": "init", "session_id": self.session.id,
            "tools": ["Bash"], "mcp_servers": [], "model": "fake", "permissionMode": "default",
            "claude_code_version": "2.1.325", "cwd": std::env::current_dir().unwrap()}));
        self.cost += 0.01;
        let mut result = self.result(prompt);
        let mut after = Vec::new();
        for directive in in_every_turn.iter().chain(&directives) {
            self.execute_directive(directive, &mut result, &before, &mut after);
        }
        write_frame(&result);
        for frame in after {
            write_frame(&frame);
        }
    }

    fn result(&self, text: &str) -> Value {
        json!({"type": "result", "subtype": "success", "is_error": false,
            "result": text, "session_id": self.session.id, "total_cost_usd": self.cost,
            "num_turns": 1, "duration_ms": 1, "duration_api_ms": 1, "permission_denials": [],
            "usage": {"input_tokens": 10, "output_tokens": 5}, "modelUsage": {}})
    }

    /// Executes a directive that changes the messages of a turn; [`faults::run_fault`] has the faults.
    fn execute_directive(
        &mut self,
        directive: &Directive,
        result: &mut Value,
        before: &[String],
        after: &mut Vec<Value>,
    ) {
        let rest = directive.argument.as_str();
        match directive.name.as_str() {
            "say" => self.send_text(rest),
            "stray-result" | "late-result" | "linger" => {}
            "tool-begun" => self.send_tool_call(rest),
            "tool" => {
                self.send_tool_call(rest);
                write_frame(
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
            "retry" => write_frame(&json!({"type": "system", "subtype": "api_retry", "attempt": 1,
                "max_retries": 10, "retry_delay_ms": 5.5, "error_status": 529, "error": "overloaded"})),
            "ask" => result["result"] = self.request_permission(rest).into(),
            "hook" => {
                let request = self.hook_request(rest);
                self.send_control_request(&request);
            }
            "hook-until" => {
                let (file, call) = rest.split_once(' ').unwrap();
                let request = self.hook_request(call);
                self.write_control_request(&request);
                faults::wait_for_file(file);
            }
            "wait-for-interrupt" => self.wait_for_interrupt(result),
            _ => faults::run_fault(directive, result),
        }
    }

    fn send_text(&self, text: &str) {
        write_frame(&json!({"type": "assistant", "session_id": self.session.id,
            "message": {"id": format!("msg_{text}"), "content": [{"type": "text", "text": text}]}}));
    }

    fn send_tool_call(&self, name: &str) {
        write_frame(&json!({"type": "assistant", "session_id": self.session.id,
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

    /// Requests a permission in the order of the real CLI: hook, then `can_use_tool`. Returns the decision as text.
    fn request_permission(&mut self, call: &str) -> String {
        let (tool, input) = call.split_once(' ').unwrap_or((call, "{}"));
        let input: Value = serde_json::from_str(input).unwrap();
        let hook = self.hooks["PreToolUse"][0]["hookCallbackIds"][0].clone();
        if !hook.is_null() {
            let verdict =
                self.send_control_request(&json!({"subtype": "hook_callback", "callback_id": hook,
                "input": {"hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": input,
                    "cwd": std::env::current_dir().unwrap()},
                "tool_use_id": "toolu_1"}));
            let output = &verdict["hookSpecificOutput"];
            if output["permissionDecision"] == "deny" {
                return format!("hook: {}", output["permissionDecisionReason"].as_str().unwrap());
            }
        }
        let verdict = self
            .send_control_request(&json!({"subtype": "can_use_tool", "tool_name": tool,
            "input": input, "tool_use_id": "toolu_1", "permission_suggestions": []}));
        match verdict["behavior"].as_str() {
            Some("allow") => format!("allowed: {}", verdict["updatedInput"]),
            _ => format!("denied: {}", verdict["message"].as_str().unwrap_or_default()),
        }
    }

    /// Returns a hook callback for the event.
    ///
    /// # Panics
    ///
    /// If no hook is registered for the event.
    fn hook_request(&self, told: &str) -> Value {
        let (event, payload) = told.split_once(' ').unwrap_or((told, "{}"));
        let mut payload: Value = serde_json::from_str(payload).unwrap();
        payload["hook_event_name"] = event.into();
        payload["session_id"] = self.session.id.clone().into();
        let hook = self.hooks[event][0]["hookCallbackIds"][0].clone();
        assert!(!hook.is_null(), "nobody wants to hear of {event}");
        json!({"subtype": "hook_callback", "callback_id": hook, "input": payload})
    }

    /// Writes a control request and returns its id.
    fn write_control_request(&mut self, request: &Value) -> String {
        self.control_requests += 1;
        let id = format!("fake-{}", self.control_requests);
        write_frame(&json!({"type": "control_request", "request_id": id, "request": request}));
        id
    }

    fn send_control_request(&mut self, request: &Value) -> Value {
        let id = self.write_control_request(request);
        loop {
            let frame = read_frame().unwrap_or_else(|| exit(0));
            if frame["response"]["request_id"] == id.as_str() {
                return frame["response"]["response"].clone();
            }
            if frame["type"] == "control_request" {
                self.respond(&frame);
            }
        }
    }

    fn wait_for_interrupt(&mut self, result: &mut Value) {
        loop {
            let frame = read_frame().unwrap_or_else(|| exit(0));
            self.respond(&frame);
            if frame["request"]["subtype"] == "interrupt" {
                result["subtype"] = "error_during_execution".into();
                result["is_error"] = true.into();
                result["terminal_reason"] = "aborted_streaming".into();
                return;
            }
        }
    }
}

fn read_frame() -> Option<Value> {
    let mut line = String::new();
    let count = io::stdin().lock().read_line(&mut line).unwrap();
    (count > 0).then(|| serde_json::from_str(&line).expect("one JSON object a line"))
}

/// Writes one frame; exits with 0 if stdout is closed.
pub fn write_frame(frame: &Value) {
    let mut stdout = io::stdout().lock();
    if writeln!(stdout, "{frame}").and_then(|()| stdout.flush()).is_err() {
        exit(0);
    }
}
