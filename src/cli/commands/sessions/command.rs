//! `adjutant sessions`: lists, shows, forgets and prunes agent sessions.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Subcommand;
use serde::Serialize;
use serde_json::json;

use super::text::{find_transcript, format_details, format_forgotten, format_message, table};
use crate::catalog::Catalog;
use crate::cli::command::{CliCommand, CommandAccess};
use crate::cli::exit_status::ExitStatus;
use crate::cli::format::plural;
use crate::cli::output;
use crate::config::Settings;
use crate::sessions::{
    ListedSession, Session, SessionName, SessionStore, TicketHolder, TranscriptMessage,
    last_messages,
};
use crate::util::{now, parse_age};

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
    /// Exit code 0; 2 if there is none of that name.
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
    },
    /// Forget conversations: the next call begins a new one
    ///
    /// Transcripts stay with Claude Code; their places are said. A conversation in use is left alone.
    /// Exit code 0 if all are forgotten; 1 if one is in use; 2 if there is none of that name.
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

/// A session as JSON: the stored fields and the run that uses the session.
#[derive(Serialize)]
struct SessionReport<'a> {
    #[serde(flatten)]
    conversation: &'a Session,
    in_use_by: Option<&'a TicketHolder>,
}

impl<'a> SessionReport<'a> {
    fn new(listed: &'a ListedSession) -> Self {
        Self { conversation: &listed.session, in_use_by: listed.holder.as_ref() }
    }
}

#[derive(Serialize)]
struct SessionRow<'a> {
    #[serde(flatten)]
    listed: SessionReport<'a>,
    transcript: Option<PathBuf>,
    last: Vec<TranscriptMessage>,
}

impl CliCommand for SessionsCommand {
    fn access(&self) -> CommandAccess {
        match self {
            Self::List { .. } | Self::Show { .. } => CommandAccess::ReadsOnly,
            Self::Forget { .. } | Self::Prune { .. } => CommandAccess::ActsOrChanges,
        }
    }

    fn run(&self, settings: &Settings) -> ExitStatus {
        let store = SessionStore::open(&settings.data_dir());
        match self {
            Self::List { json } => list(&store, *json),
            Self::Show { name, last, json } => show(&store, name, *last, *json),
            Self::Forget { names, json } => forget(&store, names, *json),
            Self::Prune { older_than, yes, json } => {
                let Some(age) = older_than.or_else(|| retention(settings)) else {
                    return missing_age();
                };
                prune(&store, age, &Confirmation { confirmed: *yes, json: *json })
            }
        }
    }
}

fn missing_age() -> ExitStatus {
    output::print_error(
        "how long is long? give `--older-than 30d`, or write `session_retention: 30d` into agents/defaults.yaml",
    );
    ExitStatus::Usage
}

fn list(store: &SessionStore, json: bool) -> ExitStatus {
    let listing = match store.list() {
        Ok(listing) => listing,
        Err(error) => return fail(output::error_with_causes(&error)),
    };
    print_warnings(&listing.notes);
    if json {
        output::print_json(&listing.sessions.iter().map(SessionReport::new).collect::<Vec<_>>());
    } else if listing.sessions.is_empty() {
        output::print_message("there are no conversations");
    } else {
        output::print(table(&listing.sessions));
    }
    ExitStatus::Success
}

fn show(store: &SessionStore, name: &SessionName, last: usize, json: bool) -> ExitStatus {
    let listing = match store.list() {
        Ok(listing) => listing,
        Err(error) => return fail(output::error_with_causes(&error)),
    };
    print_warnings(&listing.notes);
    let found = listing.sessions.into_iter().find(|listed| listed.session.name() == *name);
    let Some(listed) = found else { return report_unknown(name) };
    let transcript = find_transcript(&listed.session);
    let said = transcript.as_deref().map_or_else(Vec::new, |path| read_messages(path, last));
    if json {
        let listed = SessionReport::new(&listed);
        output::print_json(&SessionRow { listed, transcript, last: said });
    } else {
        output::print(format_details(&listed, transcript.as_deref()));
        for exchange in &said {
            output::print(format_message(exchange));
        }
    }
    ExitStatus::Success
}

fn forget(store: &SessionStore, names: &[SessionName], json: bool) -> ExitStatus {
    let forgotten = match store.forget(names) {
        Ok(forgotten) => forgotten,
        Err(error) => return fail(output::error_with_causes(&error)),
    };
    for (name, holder) in &forgotten.busy {
        output::print_error(format_args!("`{name}` is in use by {holder}, and was left as it is"));
    }
    let unknown = forgotten.unknown.iter().map(report_unknown).next_back();
    if json {
        let names = forgotten.removed.iter().map(|gone| gone.name().to_string());
        output::print_json(&json!({"forgotten": names.collect::<Vec<_>>()}));
    } else {
        forgotten.removed.iter().for_each(|gone| output::print(format_forgotten(gone)));
    }
    match unknown {
        Some(exit) => exit,
        None if forgotten.busy.is_empty() => ExitStatus::Success,
        None => ExitStatus::Failure,
    }
}

/// Confirmation for `prune`; without `--yes` the user is asked, or with `--json` nothing is changed.
struct Confirmation {
    confirmed: bool,
    json: bool,
}

fn prune(store: &SessionStore, age: Duration, consent: &Confirmation) -> ExitStatus {
    let Some(before) = now().checked_sub(age).ok() else {
        return fail("nothing is that old");
    };
    let listing = match store.unused_since(before) {
        Ok(listing) => listing,
        Err(error) => return fail(output::error_with_causes(&error)),
    };
    print_warnings(&listing.notes);
    let idle: Vec<ListedSession> =
        listing.sessions.into_iter().filter(|listed| listed.holder.is_none()).collect();
    let names: Vec<SessionName> = idle.iter().map(|listed| listed.session.name()).collect();
    if consent.json {
        return prune_as_json(store, &names, consent.confirmed);
    }
    if idle.is_empty() {
        output::print_message("no conversation is that old");
        return ExitStatus::Success;
    }
    output::print(table(&idle));
    let question = format!(
        "forget {}? Their transcripts stay with Claude Code.",
        plural(idle.len(), "conversation")
    );
    if !(consent.confirmed || output::confirm(&question)) {
        return fail("nothing was changed; `--yes` forgets them without a question");
    }
    match store.forget(&names) {
        Ok(forgotten) => {
            output::print_message(format_args!(
                "{} forgotten",
                plural(forgotten.removed.len(), "conversation")
            ));
            ExitStatus::Success
        }
        Err(error) => fail(output::error_with_causes(&error)),
    }
}

fn prune_as_json(store: &SessionStore, names: &[SessionName], given: bool) -> ExitStatus {
    let plan: Vec<String> = names.iter().map(ToString::to_string).collect();
    if !given {
        output::print_json(&json!({"plan": plan, "forgotten": []}));
        return if plan.is_empty() { ExitStatus::Success } else { ExitStatus::Failure };
    }
    match store.forget(names) {
        Ok(forgotten) => {
            let gone: Vec<String> =
                forgotten.removed.iter().map(|gone| gone.name().to_string()).collect();
            output::print_json(&json!({"plan": plan, "forgotten": gone}));
            ExitStatus::Success
        }
        Err(error) => fail(output::error_with_causes(&error)),
    }
}

fn retention(settings: &Settings) -> Option<Duration> {
    Catalog::open(settings).snapshot().orchestration().session_retention
}

fn report_unknown(name: &SessionName) -> ExitStatus {
    output::print_error(format_args!(
        "there is no conversation `{name}`; `adjutant sessions list` shows those there are"
    ));
    ExitStatus::Usage
}

fn print_warnings(notes: &[String]) {
    for note in notes {
        output::print_message(format_args!("warning: {note}"));
    }
}

fn fail(text: impl Display) -> ExitStatus {
    output::print_error(text);
    ExitStatus::Failure
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
