//! Text output of `adjutant sessions`.

use std::path::{Path, PathBuf};

use comfy_table::Table;

use crate::cli::format::{format_age, format_time, format_usd};
use crate::cli::table::{fit_width_around, plain_table};
use crate::sessions::{
    ListedSession, Session, SessionState, Speaker, TranscriptMessage, locate_transcript,
};
use crate::util::{one_line, shorten};

pub(crate) fn table(listed: &[ListedSession]) -> Table {
    let mut table = plain_table(["CONVERSATION", "STATE", "TURNS", "COST", "LAST USED", "SESSION"]);
    for one in listed {
        let conversation = &one.session;
        table.add_row([
            conversation.name().to_string(),
            state(one).to_owned(),
            conversation.turns.to_string(),
            format_usd(conversation.cost_usd),
            format!("{} ago", format_age(conversation.last_used)),
            conversation.session_id.to_string(),
        ]);
    }
    fit_width_around(&mut table, 5);
    table
}

pub(crate) fn format_details(listed: &ListedSession, transcript: Option<&Path>) -> String {
    let conversation = &listed.session;
    let use_now =
        listed.holder.as_ref().map_or_else(String::new, |holder| format!(", by {holder}"));
    let place = transcript.map_or_else(
        || "not found: Claude Code does not have this conversation any more".to_owned(),
        |path| one_line(&path.to_string_lossy()),
    );
    let rows = [
        ("conversation", conversation.name().to_string()),
        ("state", format!("{}{use_now}", state(listed))),
        ("session", conversation.session_id.to_string()),
        ("turns", format!("{}, {} in all", conversation.turns, format_usd(conversation.cost_usd))),
        ("created", format_time(conversation.created)),
        (
            "last used",
            format!(
                "{}, {} ago",
                format_time(conversation.last_used),
                format_age(conversation.last_used)
            ),
        ),
        ("last run", conversation.last_run.to_string()),
        ("folder", one_line(&conversation.folder)),
        ("contract", shorten(&one_line(&conversation.contract), 80)),
        ("transcript", place),
    ];
    rows.map(|(name, value)| format!("{name:<14}{value}")).join("\n")
}

pub(crate) fn format_message(exchange: &TranscriptMessage) -> String {
    let who = match exchange.speaker {
        Speaker::Caller => "caller",
        Speaker::Agent => "agent",
    };
    let at = exchange.at.map_or_else(String::new, |at| format!(", {}", format_time(at)));
    format!("\n[{who}{at}]\n{}", exchange.text)
}

/// Formats a forgotten session with the path of its transcript, which is kept.
pub(crate) fn format_forgotten(gone: &Session) -> String {
    let place = find_transcript(gone).map_or_else(String::new, |path| {
        format!("; its transcript stays at {}", one_line(&path.to_string_lossy()))
    });
    format!(
        "forgot `{}`: {} turns since {}, {}{place}",
        gone.name(),
        gone.turns,
        format_time(gone.created),
        format_usd(gone.cost_usd)
    )
}

pub(crate) fn find_transcript(conversation: &Session) -> Option<PathBuf> {
    let (config_dir, folder) =
        (Path::new(&conversation.config_dir), Path::new(&conversation.folder));
    locate_transcript(config_dir, folder, conversation.session_id)
}

fn state(listed: &ListedSession) -> &'static str {
    match (&listed.holder, listed.session.state) {
        (Some(_), _) => "in use",
        (None, SessionState::Ready) => "ready",
        (None, SessionState::Starting) => "never completed",
    }
}
