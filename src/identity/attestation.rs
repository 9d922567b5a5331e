//! The attestation of one call by a Claude Code hook: the agent that makes the call.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::caller::{Caller, KnownBy};
use crate::util::RESERVED_MAIN;

/// Limit per field in bytes. Real ids have about 40 characters; an agent name has at most 64 bytes.
const MAX_FIELD_LEN: usize = 256;

/// The caller of one tool call, as reported by a `PreToolUse` hook of Claude Code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Attestation {
    /// The call's id, equal to `claudecode/toolUseId` in the call's `_meta`.
    pub tool_use_id: String,
    /// The tool as Claude Code names it, such as `mcp__adjutant__run_subagent`.
    pub tool_name: String,
    pub session_id: String,
    /// The instance of a native subagent; absent for the main agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The type of that subagent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_type: Option<String>,
}

impl Attestation {
    /// Parses the payload of a `PreToolUse` hook; `None` if an id is missing or a field exceeds 256 bytes.
    pub(crate) fn from_payload(payload: &Value) -> Option<Self> {
        let text = |name: &str| match payload.get(name) {
            None | Some(Value::Null) => Some(None),
            // A hook of type `mcp_tool` writes an empty string for an absent field.
            Some(Value::String(text)) if text.is_empty() => Some(None),
            Some(Value::String(text)) if text.len() <= MAX_FIELD_LEN => Some(Some(text.clone())),
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

    /// Returns the caller that the attestation names.
    pub(crate) fn caller(&self) -> Caller {
        Caller {
            session_id: Some(self.session_id.clone()),
            agent_id: self.agent_id.clone(),
            tool_use_id: Some(self.tool_use_id.clone()),
            ..Caller::new(self.caller_name(), KnownBy::Attested)
        }
    }

    /// Returns true if the attestation is for this tool of ours, under any server name.
    pub(crate) fn is_for_tool(&self, tool: &str) -> bool {
        self.tool_name.strip_suffix(tool).is_some_and(|server| server.ends_with("__"))
    }

    /// Returns `main` if there is no instance: `claude --agent` sets a type for the main agent, too.
    ///
    /// A subagent with the type `main` gets the prefix `native:`, so that it cannot pass for the main agent.
    fn caller_name(&self) -> String {
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
    fn a_subagent_is_never_taken_for_the_main_agent(more: &Value) -> String {
        Attestation::from_payload(&payload(more)).unwrap().caller().name
    }

    #[test_case(&json!({"tool_use_id": null}))]
    #[test_case(&json!({"tool_use_id": 7}))]
    #[test_case(&json!({"session_id": ""}))]
    #[test_case(&json!({"agent_id": "a".repeat(257)}))]
    #[test_case(&json!({"agent_type": {"main": true}}))]
    fn unparsable_payloads_are_rejected(more: &Value) {
        assert_eq!(Attestation::from_payload(&payload(more)), None);
    }

    #[test_case("mcp__adjutant__run_subagent", true)]
    #[test_case("mcp__plugin_team_adjutant__run_subagent", true)]
    #[test_case("mcp__adjutant__run_subagents", false)]
    #[test_case("prerun_subagent", false)]
    #[test_case("run_subagent", false)]
    fn an_attestation_is_valid_for_its_tool_only(tool_name: &str, same: bool) {
        let attested =
            Attestation::from_payload(&payload(&json!({"tool_name": tool_name}))).unwrap();
        assert_eq!(attested.is_for_tool("run_subagent"), same);
    }
}
