//! A resumable session of an agent: `sessions list`, `sessions show`, `sessions forget`, `sessions prune`.

use schemars::JsonSchema;
use serde::Serialize;

use super::common::{Usd, UtcTime};
use crate::util::RunId;

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SessionObject {
    pub agent: String,
    /// The `session_key` of its calls.
    pub key: String,
    /// `ready`, or `starting` before the first completed turn.
    pub state: String,
    /// Claude Code's id: `claude --resume <session_id>` in `folder` opens it.
    pub session_id: String,
    pub turns: u64,
    pub cost_usd: Usd,
    pub created_at: UtcTime,
    pub last_used_at: UtcTime,
    pub last_run_id: RunId,
    /// The working folder of the session.
    pub folder: String,
    /// The folder in which Claude Code keeps the transcript.
    pub config_dir: String,
    /// Digest of the agent's contract in the last call.
    pub contract: String,
    /// The session that this one replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_use_by: Option<SessionHolder>,
    /// Absent in `list`, and where Claude Code does not have the transcript any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_transcript_path: Option<String>,
    /// The last messages; `sessions show` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<Vec<MessageObject>>,
}

/// The process that uses a session.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SessionHolder {
    /// Absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    pub since_at: UtcTime,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
}

/// One message of a transcript.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MessageObject {
    /// `caller` or `agent`.
    pub speaker: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<UtcTime>,
    pub text: String,
}
