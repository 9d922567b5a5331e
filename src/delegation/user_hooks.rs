//! What a hook of the user's has said, and what follows from it. Nothing a hook says can grant anything.

use serde_json::{Map, Value, json};

use crate::base::{one_line, shorten};
use crate::catalog::{Hook, OnFailure};
use crate::claude::HookVerdict;
use crate::worker::{BriefEnd, ProcessEnd, Said, StartFailed};

/// What is kept of a reason: it goes to the model.
const MAX_REASON: usize = 2_000;
/// The fields that a hook may answer with, besides what is read here.
const PASSED_ON: [&str; 2] = ["additionalContext", "systemMessage"];

/// What one hook wants, weakest first: the strongest of several counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wish {
    /// Nothing; a hook that says `allow` wants no more: the rules decide.
    Nothing,
    /// A person shall decide.
    Ask(String),
    /// It must not be.
    Block(String),
    /// The whole run shall end.
    Stop(String),
}

/// What one hook has answered.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HookAnswer {
    pub(super) wish: Wish,
    /// `additionalContext`, `systemMessage`.
    pub(super) more: Map<String, Value>,
}

impl HookAnswer {
    fn wishing(wish: Wish) -> Self {
        Self { wish, more: Map::new() }
    }
}

/// Reads what a hook said: exit 0 with nothing or JSON, exit 2 with a reason; anything else is a failure.
pub(super) fn read_answer(hook: &Hook, said: Result<Said, StartFailed>) -> HookAnswer {
    let said = match said {
        Ok(said) => said,
        Err(error) => return failed(hook, &error.to_string()),
    };
    match said.end {
        BriefEnd::Ended(ProcessEnd::Exited(0)) => read_output(hook, &said.stdout),
        BriefEnd::Ended(ProcessEnd::Exited(2)) => {
            let reason = match said.stderr.trim() {
                "" => "a hook blocked it and gave no reason".to_owned(),
                reason => shorten(reason, MAX_REASON),
            };
            HookAnswer::wishing(Wish::Block(reason))
        }
        BriefEnd::Ended(ProcessEnd::Exited(code)) => {
            failed(hook, &format!("it ended with exit code {code}; {}", last_words(&said.stderr)))
        }
        BriefEnd::Ended(ProcessEnd::Signaled(signal)) => {
            failed(hook, &format!("it was ended by signal {signal}"))
        }
        BriefEnd::Ended(ProcessEnd::Lost) => failed(hook, "its end was not seen"),
        BriefEnd::TimedOut => {
            failed(hook, &format!("it had no answer within {} s", hook.timeout.as_secs()))
        }
    }
}

fn failed(hook: &Hook, why: &str) -> HookAnswer {
    let command = shorten(&one_line(&hook.command), 100);
    let reason = format!("the hook `{command}` failed: {}", one_line(why));
    tracing::warn!(event = hook.event, "{reason}");
    // Only a question can be answered with no: a broken hook at `Stop` would keep the agent going for ever.
    let is_asked =
        matches!(hook.event.as_str(), "PreToolUse" | "PermissionRequest" | "UserPromptSubmit");
    HookAnswer::wishing(match hook.on_failure {
        OnFailure::Block if is_asked => Wish::Block(reason),
        OnFailure::Block | OnFailure::Allow => Wish::Nothing,
    })
}

/// Text that is no JSON is the hook's own talk, as in Claude Code.
fn read_output(hook: &Hook, text: &str) -> HookAnswer {
    if !text.trim_start().starts_with('{') {
        return HookAnswer::wishing(Wish::Nothing);
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(output)) => read_json(&output),
        // Half a decision is none.
        Ok(_) | Err(_) => failed(hook, "its output begins like JSON and is none"),
    }
}

fn read_json(output: &Map<String, Value>) -> HookAnswer {
    let specific = output.get("hookSpecificOutput").and_then(Value::as_object);
    let inside = |key: &str| specific.and_then(|specific| specific.get(key));
    let text =
        |value: Option<&Value>| value.and_then(Value::as_str).map(|text| shorten(text, MAX_REASON));
    let reason = text(inside("permissionDecisionReason"))
        .or_else(|| text(inside("decision").and_then(|decision| decision.get("message"))))
        .or_else(|| text(output.get("reason")))
        .unwrap_or_else(|| "a hook decided so".to_owned());
    let wish = if output.get("continue") == Some(&Value::Bool(false)) {
        Wish::Stop(text(output.get("stopReason")).unwrap_or(reason))
    } else {
        let decision = inside("permissionDecision")
            .or_else(|| inside("decision").and_then(|decision| decision.get("behavior")))
            .or_else(|| output.get("decision"));
        match decision.and_then(Value::as_str) {
            Some("deny" | "block") => Wish::Block(reason),
            Some("ask") => Wish::Ask(reason),
            // `allow` and `approve` are no more than no objection: what the rules do not allow stays refused.
            Some(_) | None => Wish::Nothing,
        }
    };
    let more = PASSED_ON
        .iter()
        .filter_map(|key| {
            let value = text(inside(key).or_else(|| output.get(*key)))?;
            Some(((*key).to_owned(), Value::from(value)))
        })
        .collect();
    HookAnswer { wish, more }
}

fn last_words(stderr: &str) -> String {
    match one_line(stderr).as_str() {
        "" => "it said nothing on stderr".to_owned(),
        text => format!("its stderr: {}", shorten(text, 300)),
    }
}

/// What several hooks say together.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Together {
    pub(super) wish: Wish,
    context: Vec<String>,
    messages: Vec<String>,
}

impl Together {
    pub(super) fn of(answers: Vec<HookAnswer>) -> Self {
        let mut all = Self { wish: Wish::Nothing, context: Vec::new(), messages: Vec::new() };
        for answer in answers {
            let told = |key: &str| answer.more.get(key).and_then(Value::as_str).map(str::to_owned);
            all.context.extend(told("additionalContext"));
            all.messages.extend(told("systemMessage"));
            if answer.wish > all.wish {
                all.wish = answer.wish;
            }
        }
        all
    }

    /// For a tool call.
    pub(super) fn verdict(self) -> HookVerdict {
        match self.wish {
            Wish::Nothing => HookVerdict::Proceed,
            Wish::Ask(reason) => HookVerdict::Ask { reason },
            Wish::Block(reason) => HookVerdict::Deny { reason },
            Wish::Stop(reason) => HookVerdict::Stop { reason },
        }
    }

    /// Why a request for permission is refused, if it is.
    pub(super) fn refusal(self) -> Option<String> {
        match self.wish {
            Wish::Nothing | Wish::Ask(_) => None,
            Wish::Block(reason) | Wish::Stop(reason) => Some(reason),
        }
    }

    /// For any other event, in the form a hook prints.
    pub(super) fn output(self, event: &str) -> Value {
        let mut output = Map::new();
        match self.wish {
            Wish::Nothing | Wish::Ask(_) => {}
            Wish::Block(reason) => {
                output.insert("decision".to_owned(), "block".into());
                output.insert("reason".to_owned(), reason.into());
            }
            Wish::Stop(reason) => {
                output.insert("continue".to_owned(), false.into());
                output.insert("stopReason".to_owned(), reason.into());
            }
        }
        if !self.messages.is_empty() {
            output.insert("systemMessage".to_owned(), self.messages.join("\n").into());
        }
        if !self.context.is_empty() {
            let context = self.context.join("\n");
            let specific = json!({ "hookEventName": event, "additionalContext": context });
            output.insert("hookSpecificOutput".to_owned(), specific);
        }
        Value::Object(output)
    }
}

#[cfg(test)]
#[path = "user_hooks_tests.rs"]
mod tests;
