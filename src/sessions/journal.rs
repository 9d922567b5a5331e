//! `sessions.journal`: changes since `sessions.json` was last written, one per line.
//!
//! A line holds a conversation whole, so that reading a line twice changes nothing: a crash
//! between the writing of the store and the emptying of the journal does no harm.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::conversation::Conversation;
use super::file::View;
use super::name::ConversationName;

/// One change of one conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Change {
    /// It is now like this.
    Put(Arc<Conversation>),
    /// It is remembered no longer.
    Forget(ConversationName),
}

impl Change {
    /// Which conversation it is about.
    pub(super) fn name(&self) -> ConversationName {
        match self {
            Self::Put(conversation) => conversation.name(),
            Self::Forget(name) => name.clone(),
        }
    }

    /// Makes it so.
    pub(super) fn apply(&self, view: &mut View) {
        match self {
            Self::Put(conversation) => view.insert(conversation.name(), Arc::clone(conversation)),
            Self::Forget(name) => view.remove(name),
        };
    }
}

/// The lines of a journal, or of a part of it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Lines {
    /// The changes, in order.
    pub(super) changes: Vec<Change>,
    /// How many bytes they take: what follows is a line that was torn in writing.
    pub(super) bytes: usize,
    /// How many whole lines were no change.
    pub(super) damaged: usize,
}

/// Reads whole lines; a last one without its line feed was never finished.
pub(super) fn read(bytes: &[u8]) -> Lines {
    let mut lines = Lines::default();
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let Some(text) = line.strip_suffix(b"\n") else { break };
        lines.bytes += line.len();
        match serde_json::from_slice(text) {
            Ok(change) => lines.changes.push(change),
            Err(_) => lines.damaged += 1,
        }
    }
    lines
}

/// The lines for some changes.
pub(super) fn render<'a>(changes: impl IntoIterator<Item = &'a Change>) -> Vec<u8> {
    let mut text = Vec::new();
    for change in changes {
        // INVARIANT: the types hold nothing that JSON cannot say, so this does not fail.
        if serde_json::to_writer(&mut text, change).is_ok() {
            text.push(b'\n');
        }
    }
    text
}
