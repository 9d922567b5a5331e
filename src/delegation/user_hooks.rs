//! User hooks of one agent: shell commands that are asked before an event or notified after it.
//!
//! A hook can deny, never allow.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::{Map, Value, json};
use tokio_util::task::TaskTracker;

use crate::catalog::{Agent, OnFailure, UserHook};
use crate::claude::HookDecision;
use crate::config::env_vars;
use crate::process::{
    CommandEnd, CommandOutput, ProcessEnd, ProcessSpec, SpawnError, SymlinkPolicy, run_command,
};
use crate::util::{RunId, one_line, shorten};

/// Limit of the output that is read from a hook.
const MAX_OUTPUT_BYTES: u64 = 1 << 20;
/// Environment variables that a hook inherits. None of them holds a credential.
const INHERITED_VARIABLES: [&str; 10] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"];

#[derive(Clone)]
pub(crate) struct UserHooks {
    agent: Arc<Agent>,
    root: PathBuf,
    tasks: TaskTracker,
}

impl UserHooks {
    pub(crate) fn new(agent: &Arc<Agent>, root: PathBuf, tasks: TaskTracker) -> Self {
        Self { agent: Arc::clone(agent), root, tasks }
    }

    /// Runs all matching hooks in parallel and combines their results; `None` if none matches.
    pub(crate) async fn run_matching(
        &self,
        event: &str,
        payload: &Map<String, Value>,
    ) -> Option<HookResult> {
        let meant: Vec<&UserHook> = self.matching(event, payload).collect();
        if meant.is_empty() {
            return None;
        }
        let input = Value::Object(payload.clone()).to_string().into_bytes();
        let answers = meant.into_iter().map(|hook| self.run(hook, input.clone()));
        Some(HookResult::combine(join_all(answers).await))
    }

    /// Runs the matching hooks in a background task and ignores their results. Shutdown waits for the task.
    pub(crate) fn notify(&self, event: &str, payload: &Map<String, Value>) {
        if self.matching(event, payload).next().is_none()
            || tokio::runtime::Handle::try_current().is_err()
        {
            return;
        }
        let (hooks, event, payload) = (self.clone(), event.to_owned(), payload.clone());
        self.tasks.spawn(async move { hooks.run_matching(&event, &payload).await });
    }

    fn matching<'a>(
        &'a self,
        event: &'a str,
        payload: &'a Map<String, Value>,
    ) -> impl Iterator<Item = &'a UserHook> {
        // Events without a subject match every matcher, as in Claude Code.
        let name = matcher_field(event)
            .map(|key| payload.get(key).and_then(Value::as_str).unwrap_or_default());
        let is_meant = move |hook: &&UserHook| {
            let fits = match (&hook.matcher, name) {
                (Some(matcher), Some(name)) => matcher.matches(name),
                (None, _) | (_, None) => true,
            };
            hook.event == event && fits
        };
        self.agent.hooks.iter().filter(is_meant)
    }

    async fn run(&self, hook: &UserHook, input: Vec<u8>) -> HookResult {
        let launch = ProcessSpec {
            label: format!("hook-{}", self.agent.name),
            // A run id of its own: the process of the run may be swept before a hook that is notified of its end.
            run: RunId::new(),
            program: PathBuf::from("/bin/sh"),
            arguments: vec!["-c".into(), hook.command.clone().into()],
            environment: self.environment(),
            working_dir: self.root.clone(),
            symlinks: SymlinkPolicy::Follow,
        };
        parse_result(hook, run_command(launch, input, hook.timeout, MAX_OUTPUT_BYTES).await)
    }

    fn environment(&self) -> Vec<(OsString, OsString)> {
        let inherited = INHERITED_VARIABLES
            .iter()
            .filter_map(|name| Some(((*name).into(), env::var_os(name)?)));
        let root = (env_vars::CLAUDE_PROJECT_DIR.into(), self.root.clone().into());
        inherited.chain([root]).collect()
    }
}

/// Returns the payload field that a hook's matcher is compared with.
fn matcher_field(event: &str) -> Option<&'static str> {
    match event {
        "PreToolUse" | "PostToolUse" | "PostToolUseFailure" | "PermissionRequest"
        | "PermissionDenied" => Some("tool_name"),
        "SubagentStart" | "SubagentStop" | "RunQueued" | "RunStarted" => Some("agent_type"),
        "SessionStart" => Some("source"),
        "SessionEnd" => Some("reason"),
        "PreCompact" => Some("trigger"),
        "Notification" => Some("notification_type"),
        "RunEnded" => Some("outcome"),
        _ => None,
    }
}

/// Limit of a reason, in characters: the reason is sent to the model.
const MAX_REASON_CHARS: usize = 2_000;

/// Effect requested by a hook, weakest first: the strongest of several hooks wins.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum HookEffect {
    /// No objection. `allow` means the same: the agent's rules decide.
    NoObjection,
    /// Asks a person.
    Ask(String),
    /// Blocks the tool call or prompt.
    Block(String),
    /// Stops the run.
    Stop(String),
}

/// Parsed output of one hook, or of all hooks of one event: the strongest effect, all contexts and messages.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HookResult {
    effect: HookEffect,
    context: Vec<String>,
    messages: Vec<String>,
}

impl HookResult {
    fn with_effect(effect: HookEffect) -> Self {
        Self { effect, context: Vec::new(), messages: Vec::new() }
    }

    fn combine(results: Vec<Self>) -> Self {
        let mut all = Self::with_effect(HookEffect::NoObjection);
        for Self { effect, context, messages } in results {
            all.context.extend(context);
            all.messages.extend(messages);
            // On a tie the first hook wins.
            if effect > all.effect {
                all.effect = effect;
            }
        }
        all
    }

    /// Converts to the decision of a `PreToolUse` hook.
    pub(crate) fn decision(self) -> HookDecision {
        match self.effect {
            HookEffect::NoObjection => HookDecision::Proceed,
            HookEffect::Ask(reason) => HookDecision::Ask { reason },
            HookEffect::Block(reason) => HookDecision::Deny { reason },
            HookEffect::Stop(reason) => HookDecision::Stop { reason },
        }
    }

    /// Returns the reason if the result denies a permission request.
    pub(crate) fn denial_reason(self) -> Option<String> {
        match self.effect {
            HookEffect::NoObjection | HookEffect::Ask(_) => None,
            HookEffect::Block(reason) | HookEffect::Stop(reason) => Some(reason),
        }
    }

    /// Converts to hook output JSON for all other events.
    pub(crate) fn output(self, event: &str) -> Value {
        let mut output = match self.effect {
            HookEffect::NoObjection | HookEffect::Ask(_) => json!({}),
            HookEffect::Block(reason) => json!({ "decision": "block", "reason": reason }),
            HookEffect::Stop(reason) => json!({ "continue": false, "stopReason": reason }),
        };
        let mut add =
            |key: &str, value| output.as_object_mut().map(|all| all.insert(key.to_owned(), value));
        if !self.messages.is_empty() {
            add("systemMessage", self.messages.join("\n").into());
        }
        if !self.context.is_empty() {
            let context = self.context.join("\n");
            let specific = json!({ "hookEventName": event, "additionalContext": context });
            add("hookSpecificOutput", specific);
        }
        output
    }
}

/// Parses the result of a hook: exit status 0 with no output or JSON, 2 with the reason on stderr.
///
/// Any other result is a failure and has the effect that `on_failure` selects.
fn parse_result(hook: &UserHook, said: Result<CommandOutput, SpawnError>) -> HookResult {
    let said = match said {
        Ok(said) => said,
        Err(error) => return hook_failure(hook, &error.to_string()),
    };
    let why = match said.end {
        CommandEnd::Exited(ProcessEnd::Exited(0)) => return parse_output(hook, &said.stdout),
        CommandEnd::Exited(ProcessEnd::Exited(2)) => {
            let reason = match said.stderr.trim() {
                "" => "a hook blocked it and gave no reason".to_owned(),
                reason => shorten(reason, MAX_REASON_CHARS),
            };
            return HookResult::with_effect(HookEffect::Block(reason));
        }
        CommandEnd::Exited(ProcessEnd::Exited(code)) => {
            format!("it ended with exit code {code}; {}", stderr_summary(&said.stderr))
        }
        CommandEnd::Exited(ProcessEnd::Signaled(signal)) => {
            format!("it was ended by signal {signal}")
        }
        CommandEnd::Exited(ProcessEnd::Lost) => "its end was not seen".to_owned(),
        CommandEnd::TimedOut => format!("it had no answer within {} s", hook.timeout.as_secs()),
    };
    hook_failure(hook, &why)
}

fn hook_failure(hook: &UserHook, why: &str) -> HookResult {
    let command = shorten(&one_line(&hook.command), 100);
    let reason = format!("the hook `{command}` failed: {}", one_line(why));
    tracing::warn!(event = hook.event, "{reason}");
    // Only events that ask for permission can be blocked: a failing `Stop` hook would keep the agent running forever.
    let is_asked =
        matches!(hook.event.as_str(), "PreToolUse" | "PermissionRequest" | "UserPromptSubmit");
    HookResult::with_effect(match hook.on_failure {
        OnFailure::Block if is_asked => HookEffect::Block(reason),
        OnFailure::Block | OnFailure::Allow => HookEffect::NoObjection,
    })
}

/// Reads stdout. Text that does not begin with `{` is ignored, as in Claude Code.
fn parse_output(hook: &UserHook, text: &str) -> HookResult {
    if !text.trim_start().starts_with('{') {
        return HookResult::with_effect(HookEffect::NoObjection);
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(output)) => parse_json(&output),
        // Truncated JSON is a failure, not a decision.
        Ok(_) | Err(_) => hook_failure(hook, "its output begins like JSON and is none"),
    }
}

fn parse_json(output: &Map<String, Value>) -> HookResult {
    let specific = output.get("hookSpecificOutput").and_then(Value::as_object);
    let inside = |key: &str| specific.and_then(|specific| specific.get(key));
    let text = |value: Option<&Value>| {
        value.and_then(Value::as_str).map(|text| shorten(text, MAX_REASON_CHARS))
    };
    let reason = text(inside("permissionDecisionReason"))
        .or_else(|| text(inside("decision").and_then(|decision| decision.get("message"))))
        .or_else(|| text(output.get("reason")))
        .unwrap_or_else(|| "a hook decided so".to_owned());
    let decision = inside("permissionDecision")
        .or_else(|| inside("decision").and_then(|decision| decision.get("behavior")))
        .or_else(|| output.get("decision"));
    let effect = match decision.and_then(Value::as_str) {
        _ if output.get("continue") == Some(&Value::Bool(false)) => {
            HookEffect::Stop(text(output.get("stopReason")).unwrap_or(reason))
        }
        Some("deny" | "block") => HookEffect::Block(reason),
        Some("ask") => HookEffect::Ask(reason),
        // `allow` and `approve` are ignored: only the agent's rules can allow.
        Some(_) | None => HookEffect::NoObjection,
    };
    let forwarded = |key: &str| text(inside(key).or_else(|| output.get(key))).into_iter().collect();
    let (context, messages) = (forwarded("additionalContext"), forwarded("systemMessage"));
    HookResult { effect, context, messages }
}

fn stderr_summary(stderr: &str) -> String {
    match one_line(stderr).as_str() {
        "" => "it said nothing on stderr".to_owned(),
        text => format!("its stderr: {}", shorten(text, 300)),
    }
}

#[cfg(test)]
#[path = "user_hooks_tests.rs"]
mod tests;
