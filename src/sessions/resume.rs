//! Decision whether a run resumes a session or starts a new one. Pure: no file, clock or lock.

use std::path::Path;

use super::lease::{LeaseRequest, StartMode};
use super::session::{Session, SessionState};
use crate::util::{RunId, Timestamp};

/// State of the transcript of a session whose first run did not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TranscriptState {
    /// No transcript, or one without a completed turn.
    NoCompletedTurn,
    /// A completed turn that Adjutant could not record, because it exited first.
    CompletedTurn,
}

/// Session to use, start mode and notes for the caller.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ResumeDecision {
    pub(crate) session: Session,
    pub(crate) start_mode: StartMode,
    /// Previous run of a resumed session.
    pub(crate) last_run: Option<RunId>,
    pub(crate) notes: Vec<String>,
}

/// Decides for one run. Calls `trace` only for a session in state `starting`.
pub(crate) fn decide(
    known: Option<&Session>,
    begin: &LeaseRequest,
    at: Timestamp,
    trace: impl FnOnce(&Session) -> TranscriptState,
) -> ResumeDecision {
    let Some(known) = known else { return new_session(None, begin, at, None) };
    if begin.fresh {
        return new_session(Some(known), begin, at, None);
    }
    if let Some(why) = moved_reason(known, begin) {
        return new_session(Some(known), begin, at, Some(why));
    }
    if known.state == SessionState::Starting && trace(known) == TranscriptState::NoCompletedTurn {
        let why = "the first call of this conversation was never completed, so it begins anew";
        return new_session(Some(known), begin, at, Some(why.to_owned()));
    }
    resume(known, begin, at)
}

/// Creates a session with a new id that replaces `known`.
pub(crate) fn new_session(
    known: Option<&Session>,
    request: &LeaseRequest,
    at: Timestamp,
    note: Option<String>,
) -> ResumeDecision {
    let conversation = Session {
        agent: request.agent.clone(),
        key: request.key.clone(),
        state: SessionState::Starting,
        session_id: request.new_session_id,
        turns: 0,
        cost_usd: 0.0,
        created: at,
        last_used: at,
        last_run: request.run,
        folder: path_text(&request.working_dir),
        config_dir: path_text(&request.config_dir),
        contract: request.agent_digest.clone(),
        replaces: known.map(|known| known.session_id),
    };
    ResumeDecision {
        session: conversation,
        start_mode: StartMode::Create,
        last_run: None,
        notes: note.into_iter().collect(),
    }
}

fn resume(known: &Session, begin: &LeaseRequest, at: Timestamp) -> ResumeDecision {
    let mut notes = Vec::new();
    if known.state == SessionState::Starting {
        notes.push(
            "Adjutant ended before it could record this conversation's first answer; \
             the conversation goes on from its transcript"
                .to_owned(),
        );
    }
    if known.contract != begin.agent_digest {
        notes.push(
            "the agent's file has changed since the last call; the conversation goes on under the new contract"
                .to_owned(),
        );
    }
    let conversation = Session {
        last_used: at,
        last_run: begin.run,
        contract: begin.agent_digest.clone(),
        ..known.clone()
    };
    let last_run = Some(known.last_run);
    ResumeDecision { session: conversation, start_mode: StartMode::Resume, last_run, notes }
}

/// Explains that a session cannot be resumed from another directory.
///
/// Claude Code finds a transcript only from the directory it was created in. Running there again would restore
/// permissions that the agent file has since removed.
fn moved_reason(known: &Session, begin: &LeaseRequest) -> Option<String> {
    let (folder, config_dir) = (path_text(&begin.working_dir), path_text(&begin.config_dir));
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

fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
