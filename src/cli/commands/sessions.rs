//! `adjutant sessions`: lists, shows, forgets and prunes agent sessions.

use std::iter;
use std::path::Path;
use std::time::Duration;

use clap::Subcommand;

use crate::api::{SessionObject, short_id};
use crate::catalog::Snapshot;
use crate::cli::format::{format_age, format_time, format_usd, plural};
use crate::cli::output::error_with_causes;
use crate::cli::table::{Column, Table};
use crate::cli::{
    CliCommand, CommandAccess, CommandError, CommandResult, ErrorCode, ExitStatus, output,
    store_unavailable, usage,
};
use crate::config::Settings;
use crate::sessions::{
    ListedSession, Session, SessionError, SessionName, SessionState, SessionStore, Speaker,
    TicketHolder, TranscriptMessage, last_messages,
};
use crate::util::{now, one_line, parse_age, shorten};

/// Show the conversations of agents with `session: true`, and forget them
#[derive(Debug, Subcommand)]
#[command(
    after_long_help = "Examples:\n  adjutant sessions list\n  adjutant sessions show github@pr-42"
)]
pub(crate) enum SessionsCommand {
    /// Show all conversations: how far they have come, what they cost, who is using them
    ///
    /// Exit code 0.
    #[command(
        after_long_help = "Examples:\n  adjutant sessions list\n  adjutant sessions list --json | jq -r '.[].session_id'"
    )]
    List {
        /// Print JSON for a program
        #[arg(long)]
        json: bool,
    },
    /// Show one conversation and the last things said in it
    ///
    /// Exit code 0; 3 if there is none of that name.
    #[command(
        after_long_help = "Examples:\n  adjutant sessions show github\n  adjutant sessions show github@pr-42 --last 20"
    )]
    Show {
        /// Its name: an agent, or `agent@key`
        #[arg(value_name = "AGENT[@KEY]")]
        name: SessionName,
        /// How many of the last things said
        #[arg(long, default_value_t = 6, value_name = "N")]
        last: usize,
        /// Print JSON for a program
        #[arg(long)]
        json: bool,
        /// Print messages exactly as they were written, with escape sequences and control characters
        #[arg(long, conflicts_with = "json")]
        raw: bool,
    },
    /// Forget conversations: the next call begins a new one
    ///
    /// Transcripts stay with Claude Code; their places are said. A conversation in use is left alone.
    /// Exit code 0 if all are forgotten; 3 if there is none of that name; 75 if one is in use.
    #[command(after_long_help = "Example:\n  adjutant sessions forget github@pr-42")]
    Forget {
        /// Their names: an agent, or `agent@key`
        #[arg(value_name = "AGENT[@KEY]", required = true)]
        names: Vec<SessionName>,
        /// Print JSON for a program
        #[arg(long)]
        json: bool,
    },
    /// Forget the conversations that nobody has used for long; shows them first and asks
    ///
    /// Exit code 0 if they are forgotten or there are none; 1 if nothing was changed.
    #[command(
        after_long_help = "Examples:\n  adjutant sessions prune --older-than 30d\n  adjutant sessions prune --yes"
    )]
    Prune {
        /// Unused for longer than this, such as `30d` [default: `session_retention` of agents/defaults.yaml]
        #[arg(long, value_name = "AGE", value_parser = age)]
        older_than: Option<Duration>,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        /// Print JSON for a program; changes something only together with `--yes`
        #[arg(long)]
        json: bool,
    },
}

impl SessionsCommand {
    pub(crate) fn access(&self) -> CommandAccess {
        match self {
            Self::List { .. } | Self::Show { .. } => CommandAccess::ReadsOnly,
            Self::Forget { .. } | Self::Prune { .. } => CommandAccess::ActsOrChanges,
        }
    }
}

impl CliCommand for SessionsCommand {
    fn run(&self, settings: &Settings) -> CommandResult {
        let store = SessionStore::open(&settings.data_dir());
        match self {
            Self::List { json } => list(&store, *json),
            Self::Show { name, last, json, raw } => {
                let print = if *raw { output::print_raw } else { output::print };
                show(&store, name, *last, *json, print)
            }
            Self::Forget { names, json } => forget(&store, names, *json),
            Self::Prune { older_than, yes, json } => {
                let retention = || Snapshot::load(settings).orchestration().session_retention;
                let age = older_than.or_else(retention).ok_or_else(|| {
                    usage(
                        "how long is long? give `--older-than 30d`, or write `session_retention: 30d` into \
                         agents/defaults.yaml",
                    )
                })?;
                prune(&store, age, *yes, *json)
            }
        }
    }
}

fn list(store: &SessionStore, json: bool) -> CommandResult {
    let listing = store.list().map_err(|error| failed(&error))?;
    print_warnings(&listing.notes);
    let reports: Vec<_> = listing.sessions.iter().map(to_object).collect();
    output::print_list(json, &reports, "there are no conversations", || table(&listing.sessions));
    Ok(ExitStatus::Success)
}

fn show(
    store: &SessionStore,
    name: &SessionName,
    last: usize,
    json: bool,
    print: fn(String),
) -> CommandResult {
    let listing = store.list().map_err(|error| failed(&error))?;
    print_warnings(&listing.notes);
    let session = listing.sessions.iter().find(|listed| listed.session.name() == *name);
    let session = session.ok_or_else(|| unknown_session(name))?;
    let transcript = store.find_transcript(&session.session);
    let last = transcript.as_deref().map_or_else(Vec::new, |path| read_messages(path, last));
    let object = SessionObject {
        messages: Some(last.iter().map(TranscriptMessage::to_object).collect()),
        ..with_transcript(to_object(session), transcript.as_deref())
    };
    if json {
        output::print_json(&object);
    } else {
        let details = format_details(session, transcript.as_deref());
        let messages = last.iter().map(format_message);
        print(iter::once(details).chain(messages).collect::<Vec<_>>().join("\n"));
    }
    Ok(ExitStatus::Success)
}

fn forget(store: &SessionStore, names: &[SessionName], json: bool) -> CommandResult {
    let forgotten = store.forget(names).map_err(|error| failed(&error))?;
    if let (true, Some(name)) = (forgotten.removed.is_empty(), forgotten.unknown.first()) {
        return Err(unknown_session(name));
    }
    for (name, holder) in &forgotten.busy {
        output::print_error(format_args!("`{name}` is in use by {holder}, and was left as it is"));
    }
    for name in &forgotten.unknown {
        output::print_error(unknown_session(name));
    }
    let gone = &forgotten.removed;
    if json {
        output::print_json(
            &gone.iter().map(|session| forgotten_object(store, session)).collect::<Vec<_>>(),
        );
    } else {
        for session in gone {
            output::print(format_forgotten(store, session));
        }
    }
    Ok(match (forgotten.unknown.is_empty(), forgotten.busy.is_empty()) {
        (false, _) => ExitStatus::NotFound,
        (true, false) => ExitStatus::TryAgain,
        (true, true) => ExitStatus::Success,
    })
}

/// Forgets the sessions unused for `age`. Without `confirmed` the user is asked, or with `json` nothing is changed.
fn prune(store: &SessionStore, age: Duration, confirmed: bool, json: bool) -> CommandResult {
    let before = now().checked_sub(age).map_err(|_| usage("nothing is that old"))?;
    let listing = store.unused_since(before).map_err(|error| failed(&error))?;
    print_warnings(&listing.notes);
    let mut idle = listing.sessions;
    idle.retain(|listed| listed.holder.is_none());
    let names: Vec<SessionName> = idle.iter().map(|listed| listed.session.name()).collect();
    if !json {
        if idle.is_empty() {
            output::print_message("no conversation is that old");
            return Ok(ExitStatus::Success);
        }
        output::print(table(&idle));
    }
    let count = plural(idle.len(), "conversation");
    let question = format!("forget {count}? Their transcripts stay with Claude Code.");
    if !confirmed && !json && !output::confirm(question) {
        let reason = "nothing was changed; `--yes` forgets them without a question";
        return Err(CommandError::new(ErrorCode::NotConfirmed, reason));
    }
    let mut forgotten = Vec::new();
    if confirmed || !json {
        forgotten = store.forget(&names).map_err(|error| failed(&error))?.removed;
    }
    if json {
        let planned = idle.iter().map(|listed| &listed.session);
        let shown: Vec<_> = if confirmed { forgotten.iter().collect() } else { planned.collect() };
        let shown = shown.into_iter().map(|session| forgotten_object(store, session));
        output::print_json(&shown.collect::<Vec<_>>());
        let is_done = confirmed || idle.is_empty();
        if !is_done {
            output::print_error("nothing was changed; `--yes` forgets these conversations");
        }
        return Ok(ExitStatus::success_if(is_done));
    }
    let count = plural(forgotten.len(), "conversation");
    output::print_message(format_args!("{count} forgotten"));
    Ok(ExitStatus::Success)
}

fn to_object(listed: &ListedSession) -> SessionObject {
    let in_use_by = listed.holder.as_ref().map(TicketHolder::to_object);
    SessionObject { in_use_by, ..listed.session.to_object() }
}

fn forgotten_object(store: &SessionStore, session: &Session) -> SessionObject {
    with_transcript(session.to_object(), store.find_transcript(session).as_deref())
}

fn with_transcript(object: SessionObject, transcript: Option<&Path>) -> SessionObject {
    let path = transcript.map(|path| path.to_string_lossy().into_owned());
    SessionObject { agent_transcript_path: path, ..object }
}

fn print_warnings(notes: &[String]) {
    for note in notes {
        output::print_message(format_args!("warning: {note}"));
    }
}

fn failed(error: &SessionError) -> CommandError {
    store_unavailable(error_with_causes(error))
}

fn unknown_session(name: &SessionName) -> CommandError {
    CommandError::new(ErrorCode::SessionNotFound, format_args!("there is no conversation `{name}`"))
        .with_help("`adjutant sessions list` shows those there are")
}

fn age(text: &str) -> Result<Duration, String> {
    parse_age(text)
        .ok_or_else(|| "an age is a number and a unit, such as `30d`, `12h` or `45m`".to_owned())
}

fn read_messages(transcript: &Path, last: usize) -> Vec<TranscriptMessage> {
    last_messages(transcript, last).unwrap_or_else(|error| {
        output::print_error(format_args!("the transcript cannot be read: {error}"));
        Vec::new()
    })
}

fn table(listed: &[ListedSession]) -> Table {
    let mut table = Table::new([
        Column::text("CONVERSATION"),
        Column::whole("STATE"),
        Column::number("TURNS").drop(1),
        Column::number("COST").drop(2),
        Column::number("LAST USED").drop(4),
        Column::whole("SESSION").drop(3),
    ]);
    for one in listed {
        let conversation = &one.session;
        table.add_row([
            conversation.name().to_string(),
            state(one).to_owned(),
            conversation.turns.to_string(),
            format_usd(conversation.cost_usd),
            format!("{} ago", format_age(conversation.last_used)),
            short_id(&conversation.session_id.to_string()).to_owned(),
        ]);
    }
    table
}

fn format_details(listed: &ListedSession, transcript: Option<&Path>) -> String {
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

fn format_message(exchange: &TranscriptMessage) -> String {
    let who = match exchange.speaker {
        Speaker::Caller => "caller",
        Speaker::Agent => "agent",
    };
    let at = exchange.at.map_or_else(String::new, |at| format!(", {}", format_time(at)));
    format!("\n[{who}{at}]\n{}", exchange.text)
}

/// Formats a forgotten session with the path of its transcript, which is kept.
fn format_forgotten(store: &SessionStore, gone: &Session) -> String {
    let place = store.find_transcript(gone).map_or_else(String::new, |path| {
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

fn state(listed: &ListedSession) -> &'static str {
    match (&listed.holder, listed.session.state) {
        (Some(_), _) => "in use",
        (None, SessionState::Ready) => "ready",
        (None, SessionState::Starting) => "never completed",
    }
}
