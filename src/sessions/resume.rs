//! Which conversation a call continues, and what there is to say about it. Decides; touches nothing.

use std::path::Path;

use super::conversation::{Conversation, State};
use super::lease::{Begin, Start};
use crate::base::Timestamp;

/// What Claude Code has of a conversation whose first call did not end well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trace {
    /// No transcript, or one in which the agent never finished a turn.
    Nothing,
    /// A turn that was completed, though nobody was left to write that down.
    CompletedTurn,
}

/// The decision.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Decision {
    pub(super) conversation: Conversation,
    pub(super) start: Start,
    pub(super) notes: Vec<String>,
}

/// Decides for one call; `trace` is asked only about a conversation that never got ready.
pub(super) fn decide(
    known: Option<&Conversation>,
    begin: &Begin,
    at: Timestamp,
    trace: impl FnOnce(&Conversation) -> Trace,
) -> Decision {
    let Some(known) = known else { return anew(None, begin, at, None) };
    if begin.fresh {
        return anew(Some(known), begin, at, None);
    }
    if let Some(why) = moved(known, begin) {
        return anew(Some(known), begin, at, Some(why));
    }
    if known.state == State::Starting && trace(known) == Trace::Nothing {
        let why = "the first call of this conversation was never completed, so it begins anew";
        return anew(Some(known), begin, at, Some(why.to_owned()));
    }
    go_on(known, begin, at)
}

/// A conversation with a new id in the place of another.
pub(super) fn anew(
    known: Option<&Conversation>,
    begin: &Begin,
    at: Timestamp,
    note: Option<String>,
) -> Decision {
    let conversation = Conversation {
        agent: begin.agent.clone(),
        key: begin.key.clone(),
        state: State::Starting,
        session_id: begin.new_id,
        turns: 0,
        cost_usd: 0.0,
        created: at,
        last_used: at,
        last_run: begin.run,
        folder: text(&begin.folder),
        config_dir: text(&begin.config_dir),
        contract: begin.contract.clone(),
        replaces: known.map(|known| known.session_id),
    };
    Decision { conversation, start: Start::Create, notes: note.into_iter().collect() }
}

fn go_on(known: &Conversation, begin: &Begin, at: Timestamp) -> Decision {
    let mut notes = Vec::new();
    if known.state == State::Starting {
        notes.push(
            "Adjutant ended before it could record this conversation's first answer; \
             the conversation goes on from its transcript"
                .to_owned(),
        );
    }
    if known.contract != begin.contract {
        notes.push(
            "the agent's file has changed since the last call; the conversation goes on under the new contract"
                .to_owned(),
        );
    }
    let conversation = Conversation {
        last_used: at,
        last_run: begin.run,
        contract: begin.contract.clone(),
        ..known.clone()
    };
    Decision { conversation, start: Start::Resume, notes }
}

/// A conversation cannot go on elsewhere: Claude Code finds a transcript only from the folder it was
/// begun in, and going back there would bring back rights that the agent's file has taken away since.
fn moved(known: &Conversation, begin: &Begin) -> Option<String> {
    let (folder, config_dir) = (text(&begin.folder), text(&begin.config_dir));
    if known.folder != folder {
        let was = &known.folder;
        return Some(format!(
            "the earlier conversation was held in `{was}` and cannot go on in `{folder}`, so a new one was begun"
        ));
    }
    (known.config_dir != config_dir).then(|| {
        let was = &known.config_dir;
        format!(
            "the earlier conversation is kept in `{was}` and not in `{config_dir}`, so a new one was begun"
        )
    })
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
