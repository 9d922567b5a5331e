//! Conversations in words, for people.

use std::path::{Path, PathBuf};

use comfy_table::Table;
use comfy_table::presets::NOTHING;

use super::super::fit::fit_around;
use crate::base::{Timestamp, now, one_line, shorten};
use crate::sessions::{Conversation, Exchange, Listed, Speaker, State, locate_transcript};

pub(super) fn table(listed: &[Listed]) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header([
        "CONVERSATION",
        "STATE",
        "TURNS",
        "COST",
        "LAST USED",
        "SESSION",
    ]);
    for one in listed {
        let conversation = &one.conversation;
        table.add_row([
            conversation.name().to_string(),
            state(one).to_owned(),
            conversation.turns.to_string(),
            dollars(conversation.cost_usd),
            ago(conversation.last_used),
            conversation.session_id.to_string(),
        ]);
    }
    fit_around(&mut table, 5);
    table
}

pub(super) fn details(listed: &Listed, transcript: Option<&Path>) -> String {
    let conversation = &listed.conversation;
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
        ("turns", format!("{}, {} in all", conversation.turns, dollars(conversation.cost_usd))),
        ("created", moment(conversation.created)),
        (
            "last used",
            format!("{}, {}", moment(conversation.last_used), ago(conversation.last_used)),
        ),
        ("last run", conversation.last_run.to_string()),
        ("folder", one_line(&conversation.folder)),
        ("contract", shorten(&one_line(&conversation.contract), 80)),
        ("transcript", place),
    ];
    rows.map(|(name, value)| format!("{name:<14}{value}")).join("\n")
}

pub(super) fn spoken(exchange: &Exchange) -> String {
    let who = match exchange.speaker {
        Speaker::Caller => "caller",
        Speaker::Agent => "agent",
    };
    let at = exchange.at.map_or_else(String::new, |at| format!(", {}", moment(at)));
    format!("\n[{who}{at}]\n{}", exchange.text)
}

/// What will no longer be remembered, and where it can still be read.
pub(super) fn obituary(gone: &Conversation) -> String {
    let place = transcript_of(gone).map_or_else(String::new, |path| {
        format!("; its transcript stays at {}", one_line(&path.to_string_lossy()))
    });
    format!(
        "forgot `{}`: {} turns since {}, {}{place}",
        gone.name(),
        gone.turns,
        moment(gone.created),
        dollars(gone.cost_usd)
    )
}

pub(super) fn transcript_of(conversation: &Conversation) -> Option<PathBuf> {
    let (config_dir, folder) =
        (Path::new(&conversation.config_dir), Path::new(&conversation.folder));
    locate_transcript(config_dir, folder, conversation.session_id)
}

fn state(listed: &Listed) -> &'static str {
    match (&listed.holder, listed.conversation.state) {
        (Some(_), _) => "in use",
        (None, State::Ready) => "ready",
        (None, State::Starting) => "never completed",
    }
}

fn ago(at: Timestamp) -> String {
    let seconds = now().duration_since(at).as_secs().max(0);
    match seconds {
        0..60 => format!("{seconds}s ago"),
        60..3_600 => format!("{}m ago", seconds / 60),
        3_600..86_400 => format!("{}h ago", seconds / 3_600),
        _ => format!("{}d ago", seconds / 86_400),
    }
}

fn moment(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

fn dollars(amount: f64) -> String {
    format!("${amount:.4}")
}

pub(super) fn counted(number: usize) -> String {
    if number == 1 { "1 conversation".to_owned() } else { format!("{number} conversations") }
}
