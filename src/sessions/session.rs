//! A stored session of an agent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use uuid::Uuid;

use super::session_name::{SessionKey, SessionName, parsed};
use crate::api::SessionObject;
use crate::util::{AgentName, RunId, Timestamp};

/// One conversation of one agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Conversation")]
pub struct Session {
    /// The agent whose conversation it is.
    #[serde(deserialize_with = "parsed")]
    #[schemars(with = "String")]
    pub agent: AgentName,
    /// The `session_key` of its calls; `default` where they name none.
    #[schemars(with = "String")]
    pub key: SessionKey,
    /// `ready`: the next call goes on from here. `starting`: no turn has been completed yet.
    pub state: SessionState,
    /// Claude Code's id: `claude --resume <session_id>` in `folder` opens it.
    #[schemars(with = "String", extend("format" = "uuid"))]
    pub session_id: Uuid,
    /// How many turns it has had.
    pub turns: u64,
    /// What all of them have cost, in dollars.
    #[serde(deserialize_with = "non_negative")]
    #[schemars(range(min = 0.0))]
    pub cost_usd: f64,
    /// When it began.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub created: Timestamp,
    /// When a call last used it.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub last_used: Timestamp,
    /// The run that used it last: `adjutant runs show <last_run>`.
    #[serde(serialize_with = "as_text", deserialize_with = "parsed")]
    #[schemars(with = "String")]
    pub last_run: RunId,
    /// The working folder it is held in; it cannot go on in another.
    pub folder: String,
    /// The folder in which Claude Code keeps its transcript.
    pub config_dir: String,
    /// Digest of the agent's contract in the last call.
    pub contract: String,
    /// The conversation whose place it took, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub replaces: Option<Uuid>,
}

impl Session {
    pub fn name(&self) -> SessionName {
        SessionName { agent: self.agent.clone(), key: self.key.clone() }
    }

    pub(crate) fn to_object(&self) -> SessionObject {
        SessionObject {
            agent: self.agent.to_string(),
            key: self.key.to_string(),
            state: match self.state {
                SessionState::Starting => "starting".to_owned(),
                SessionState::Ready => "ready".to_owned(),
            },
            session_id: self.session_id.to_string(),
            turns: self.turns,
            cost_usd: self.cost_usd.into(),
            created_at: self.created.into(),
            last_used_at: self.last_used.into(),
            last_run_id: self.last_run,
            folder: self.folder.clone(),
            config_dir: self.config_dir.clone(),
            contract: self.contract.clone(),
            replaces: self.replaces.map(|id| id.to_string()),
            in_use_by: None,
            agent_transcript_path: None,
            messages: None,
        }
    }
}

/// How far a conversation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "State")]
pub enum SessionState {
    /// Its id was given out; no turn has been completed yet.
    Starting,
    /// At least one turn was completed: it can go on.
    Ready,
}

/// Stored ids have no hyphens.
fn as_text<S: Serializer>(run: &RunId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&run.simple())
}

fn non_negative<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let dollars = f64::deserialize(deserializer)?;
    if dollars.is_finite() && dollars >= 0.0 {
        Ok(dollars)
    } else {
        Err(serde::de::Error::custom("a cost is not negative"))
    }
}
