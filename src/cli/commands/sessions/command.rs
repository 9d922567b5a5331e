//! `adjutant sessions list`, `show`, `forget` and `prune`: the conversations that go on.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Subcommand;
use serde::Serialize;
use serde_json::json;

use super::super::exit::Exit;
use super::super::render;
use super::text::{counted, details, obituary, spoken, table, transcript_of};
use crate::base::{now, parse_age};
use crate::catalog::Catalog;
use crate::config::Settings;
use crate::sessions::{
    Conversation, ConversationName, Exchange, Holder, Listed, SessionStore, last_exchanges,
};

/// What to do with the conversations of agents with `session: true`.
#[derive(Debug, Subcommand)]
pub(in crate::cli) enum SessionsCommand {
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
        name: ConversationName,
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
        names: Vec<ConversationName>,
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

/// One conversation as JSON: what the store has, and who is using it.
#[derive(Serialize)]
struct ForPrograms<'a> {
    #[serde(flatten)]
    conversation: &'a Conversation,
    in_use_by: Option<&'a Holder>,
}

impl<'a> ForPrograms<'a> {
    fn new(listed: &'a Listed) -> Self {
        Self { conversation: &listed.conversation, in_use_by: listed.holder.as_ref() }
    }
}

#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    listed: ForPrograms<'a>,
    transcript: Option<PathBuf>,
    last: Vec<Exchange>,
}

pub(in crate::cli) fn run(settings: &Settings, command: &SessionsCommand) -> Exit {
    let store = SessionStore::open(&settings.data_dir());
    match command {
        SessionsCommand::List { json } => list(&store, *json),
        SessionsCommand::Show { name, last, json } => show(&store, name, *last, *json),
        SessionsCommand::Forget { names, json } => forget(&store, names, *json),
        SessionsCommand::Prune { older_than, yes, json } => {
            let Some(age) = older_than.or_else(|| retention(settings)) else { return no_age() };
            prune(&store, age, &Consent { given: *yes, json: *json })
        }
    }
}

fn no_age() -> Exit {
    render::problem(
        "how long is long? give `--older-than 30d`, or write `session_retention: 30d` into agents/defaults.yaml",
    );
    Exit::Usage
}

fn list(store: &SessionStore, json: bool) -> Exit {
    let listing = store.list();
    warn(&listing.notes);
    if json {
        render::json(&listing.conversations.iter().map(ForPrograms::new).collect::<Vec<_>>());
    } else if listing.conversations.is_empty() {
        render::talk("there are no conversations");
    } else {
        render::data(table(&listing.conversations));
    }
    Exit::Success
}

fn show(store: &SessionStore, name: &ConversationName, last: usize, json: bool) -> Exit {
    let listing = store.list();
    warn(&listing.notes);
    let found =
        listing.conversations.into_iter().find(|listed| listed.conversation.name() == *name);
    let Some(listed) = found else { return unknown(name) };
    let transcript = transcript_of(&listed.conversation);
    let said = transcript.as_deref().map_or_else(Vec::new, |path| read(path, last));
    if json {
        let listed = ForPrograms::new(&listed);
        render::json(&Shown { listed, transcript, last: said });
    } else {
        render::data(details(&listed, transcript.as_deref()));
        for exchange in &said {
            render::data(spoken(exchange));
        }
    }
    Exit::Success
}

fn forget(store: &SessionStore, names: &[ConversationName], json: bool) -> Exit {
    let forgotten = match store.forget(names) {
        Ok(forgotten) => forgotten,
        Err(error) => return no(render::with_causes(&error)),
    };
    for (name, holder) in &forgotten.busy {
        render::problem(format_args!("`{name}` is in use by {holder}, and was left as it is"));
    }
    let unknown = forgotten.unknown.iter().map(unknown).next_back();
    if json {
        let names = forgotten.conversations.iter().map(|gone| gone.name().to_string());
        render::json(&json!({"forgotten": names.collect::<Vec<_>>()}));
    } else {
        forgotten.conversations.iter().for_each(|gone| render::data(obituary(gone)));
    }
    match unknown {
        Some(exit) => exit,
        None if forgotten.busy.is_empty() => Exit::Success,
        None => Exit::Failure,
    }
}

/// Whether things may be changed without a question.
struct Consent {
    given: bool,
    json: bool,
}

fn prune(store: &SessionStore, age: Duration, consent: &Consent) -> Exit {
    let Some(before) = now().checked_sub(age).ok() else {
        return no("nothing is that old");
    };
    let listing = store.unused_since(before);
    warn(&listing.notes);
    let idle: Vec<Listed> =
        listing.conversations.into_iter().filter(|listed| listed.holder.is_none()).collect();
    let names: Vec<ConversationName> =
        idle.iter().map(|listed| listed.conversation.name()).collect();
    if consent.json {
        return prune_as_json(store, &names, consent.given);
    }
    if idle.is_empty() {
        render::talk("no conversation is that old");
        return Exit::Success;
    }
    render::data(table(&idle));
    let question =
        format!("forget {}? Their transcripts stay with Claude Code.", counted(idle.len()));
    if !(consent.given || render::ask(&question)) {
        return no("nothing was changed; `--yes` forgets them without a question");
    }
    match store.forget(&names) {
        Ok(forgotten) => {
            render::talk(format_args!("{} forgotten", counted(forgotten.conversations.len())));
            Exit::Success
        }
        Err(error) => no(render::with_causes(&error)),
    }
}

fn prune_as_json(store: &SessionStore, names: &[ConversationName], given: bool) -> Exit {
    let plan: Vec<String> = names.iter().map(ToString::to_string).collect();
    if !given {
        render::json(&json!({"plan": plan, "forgotten": []}));
        return if plan.is_empty() { Exit::Success } else { Exit::Failure };
    }
    match store.forget(names) {
        Ok(forgotten) => {
            let gone: Vec<String> =
                forgotten.conversations.iter().map(|gone| gone.name().to_string()).collect();
            render::json(&json!({"plan": plan, "forgotten": gone}));
            Exit::Success
        }
        Err(error) => no(render::with_causes(&error)),
    }
}

fn retention(settings: &Settings) -> Option<Duration> {
    Catalog::open(settings).snapshot().orchestration().session_retention
}

fn unknown(name: &ConversationName) -> Exit {
    render::problem(format_args!(
        "there is no conversation `{name}`; `adjutant sessions list` shows those there are"
    ));
    Exit::Usage
}

fn warn(notes: &[String]) {
    for note in notes {
        render::talk(format_args!("warning: {note}"));
    }
}

fn no(text: impl Display) -> Exit {
    render::problem(text);
    Exit::Failure
}

fn age(text: &str) -> Result<Duration, String> {
    parse_age(text)
        .ok_or_else(|| "an age is a number and a unit, such as `30d`, `12h` or `45m`".to_owned())
}

fn read(transcript: &Path, last: usize) -> Vec<Exchange> {
    last_exchanges(transcript, last).unwrap_or_else(|error| {
        render::problem(format_args!("the transcript cannot be read: {error}"));
        Vec::new()
    })
}
