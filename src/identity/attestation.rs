//! What Claude Code says about one call of its own: which agent makes it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::caller::{Caller, KnownBy};
use crate::base::RESERVED_MAIN;

/// Real ones have about forty characters; a name of an agent has at most 64.
const MAX_FIELD: usize = 256;

/// Who makes the call with this id, as a hook of Claude Code was told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attestation {
    /// The call's id, the same as in the call's `claudecode/toolUseId`.
    pub tool_use_id: String,
    /// The tool as Claude Code names it, such as `mcp__adjutant__run_subagent`.
    pub tool_name: String,
    /// The session that the call belongs to.
    pub session_id: String,
    /// Which instance of a native subagent; the main agent has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Of which kind that subagent is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_type: Option<String>,
}

impl Attestation {
    /// Reads the payload of a `PreToolUse` hook; `None` if it lacks an id or a field is absurdly long.
    pub fn of_payload(payload: &Value) -> Option<Self> {
        let text = |name: &str| match payload.get(name) {
            None | Some(Value::Null) => Some(None),
            // A hook that calls a tool writes an empty text where there is nothing.
            Some(Value::String(text)) if text.is_empty() => Some(None),
            Some(Value::String(text)) if text.len() <= MAX_FIELD => Some(Some(text.clone())),
            Some(_) => None,
        };
        Some(Self {
            tool_use_id: text("tool_use_id")??,
            tool_name: text("tool_name")??,
            session_id: text("session_id")??,
            agent_id: text("agent_id")?,
            agent_type: text("agent_type")?,
        })
    }

    /// The caller that is meant.
    pub fn caller(&self) -> Caller {
        Caller {
            session_id: Some(self.session_id.clone()),
            agent_id: self.agent_id.clone(),
            tool_use_id: Some(self.tool_use_id.clone()),
            ..Caller::new(self.name(), KnownBy::Attested)
        }
    }

    /// Whether this is about a call of that tool of ours, whatever our server is named.
    pub(super) fn is_about(&self, tool: &str) -> bool {
        self.tool_name.strip_suffix(tool).is_some_and(|server| server.ends_with("__"))
    }

    /// A main agent that was started as some agent (`claude --agent`) has a kind and no instance: the instance decides.
    /// A subagent that somebody named `main` must not pass for the main agent.
    fn name(&self) -> String {
        if self.agent_id.is_none() {
            return RESERVED_MAIN.to_owned();
        }
        match self.agent_type.as_deref() {
            Some(kind) if !kind.trim().eq_ignore_ascii_case(RESERVED_MAIN) => kind.to_owned(),
            Some(kind) => format!("native:{kind}"),
            None => "native:unknown".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use test_case::test_case;

    fn payload(more: &Value) -> Value {
        let mut payload =
            json!({"tool_use_id": "toolu_1", "tool_name": "mcp__adjutant__x", "session_id": "s"});
        let fields = payload.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        payload
    }

    #[test_case(&json!({}) => "main")]
    #[test_case(&json!({"agent_id": "", "agent_type": ""}) => "main"; "as a hook that calls a tool writes it")]
    #[test_case(&json!({"agent_type": "planner"}) => "main"; "started as an agent")]
    #[test_case(&json!({"agent_id": "a1", "agent_type": "code-reviewer"}) => "code-reviewer")]
    #[test_case(&json!({"agent_id": "a1", "agent_type": "main"}) => "native:main")]
    #[test_case(&json!({"agent_id": "a1", "agent_type": " Main"}) => "native: Main")]
    #[test_case(&json!({"agent_id": "a1"}) => "native:unknown")]
    fn a_subagent_never_passes_for_the_main_agent(more: &Value) -> String {
        Attestation::of_payload(&payload(more)).unwrap().caller().name
    }

    #[test_case(&json!({"tool_use_id": null}))]
    #[test_case(&json!({"tool_use_id": 7}))]
    #[test_case(&json!({"session_id": ""}))]
    #[test_case(&json!({"agent_id": "a".repeat(257)}))]
    #[test_case(&json!({"agent_type": {"main": true}}))]
    fn what_cannot_be_read_attests_nothing(more: &Value) {
        assert_eq!(Attestation::of_payload(&payload(more)), None);
    }

    #[test_case("mcp__adjutant__run_subagent", true)]
    #[test_case("mcp__plugin_team_adjutant__run_subagent", true)]
    #[test_case("mcp__adjutant__run_subagents", false)]
    #[test_case("prerun_subagent", false)]
    #[test_case("run_subagent", false)]
    fn it_is_bound_to_its_tool(tool_name: &str, same: bool) {
        let attested = Attestation::of_payload(&payload(&json!({"tool_name": tool_name}))).unwrap();
        assert_eq!(attested.is_about("run_subagent"), same);
    }
}
