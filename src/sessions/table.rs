//! All sessions, their changes, and the text of `sessions.json`: written for people, recovered entry by entry if damaged.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::salvage::recover_entries;
use super::session::Session;
use super::session_name::SessionName;
use crate::store::{Naming, State};

/// All sessions by name.
pub(crate) type SessionMap = BTreeMap<SessionName, Arc<Session>>;

/// Change of one session: a line of `sessions.journal`.
///
/// Idempotent: it holds the whole session, so that reading a journal twice changes nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SessionChange {
    /// Adds or replaces the session.
    Put(Arc<Session>),
    /// Removes the session.
    Forget(SessionName),
}

impl SessionChange {
    fn name(&self) -> SessionName {
        match self {
            Self::Put(session) => session.name(),
            Self::Forget(name) => name.clone(),
        }
    }
}

impl State for SessionMap {
    type Change = SessionChange;

    const NAME: &'static str = "sessions";
    const FORMAT: u64 = 1;
    const NAMING: Naming = Naming::Single;
    const MAX_LINES: usize = 4_000;
    const MUST_BE_OWNED: bool = true;

    fn decode(snapshot: &[u8]) -> Result<(Self, u64), String> {
        let file: SessionsFile =
            serde_json::from_slice(snapshot).map_err(|error| error.to_string())?;
        if file.format != Self::FORMAT {
            return Err(format!("there is no format {}", file.format));
        }
        let stated = file.conversations.len();
        let sessions = build_map(file.conversations);
        if sessions.len() != stated {
            return Err("a conversation stands in it twice".to_owned());
        }
        Ok((sessions, 0))
    }

    fn recover(snapshot: &[u8]) -> Self {
        build_map(recover_entries(snapshot))
    }

    fn encode(&self, _journal: u64) -> Vec<u8> {
        let conversations = self.values().map(AsRef::as_ref).collect();
        let text = SessionsText { format: Self::FORMAT, conversations };
        // INVARIANT: every value in these types is representable in JSON, so serializing does not fail.
        let mut text = serde_json::to_vec_pretty(&text).unwrap_or_default();
        text.push(b'\n');
        text
    }

    fn apply(&mut self, change: &SessionChange) {
        match change {
            SessionChange::Put(session) => self.insert(session.name(), Arc::clone(session)),
            SessionChange::Forget(name) => self.remove(name),
        };
    }

    fn describe(&self) -> String {
        format!("{} sound conversations", self.len())
    }

    /// Writing 200 sessions takes less than 1 ms more than writing one.
    fn is_small(&self) -> bool {
        self.len() <= 200
    }

    fn replaces(newer: &SessionChange, older: &SessionChange) -> bool {
        newer.name() == older.name()
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SessionsFile {
    /// The number of this format; a file with a higher one is left alone.
    #[schemars(range(min = 1))]
    format: u64,
    /// All conversations, ordered by agent and key.
    conversations: Vec<Session>,
}

#[derive(Serialize)]
struct SessionsText<'a> {
    format: u64,
    conversations: Vec<&'a Session>,
}

/// Returns the JSON Schema of `sessions.json`.
pub(crate) fn store_schema() -> Value {
    let mut schema = schemars::schema_for!(SessionsFile);
    schema.insert("title".to_owned(), "data/sessions.json".into());
    schema.insert(
        "description".to_owned(),
        "The conversations of agents with `session: true`. See docs/sessions.md.".into(),
    );
    schema.to_value()
}

/// Builds the map. Of two entries with the same name, the one used last is kept.
fn build_map(conversations: Vec<Session>) -> SessionMap {
    let mut view = SessionMap::new();
    for conversation in conversations {
        let name = conversation.name();
        let newest = view.get(&name).is_none_or(|other| other.last_used <= conversation.last_used);
        if newest {
            view.insert(name, Arc::new(conversation));
        }
    }
    view
}
