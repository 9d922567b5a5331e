//! `adjutant token new`, `list` and `revoke`: who may come in over HTTP.

use std::time::Duration;

use clap::Subcommand;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use serde_json::{Value, json};

use super::dispatch::refuse;
use super::exit::Exit;
use super::fit::fit_around;
use super::{nesting, render};
use crate::base::{Timestamp, nearest, now, parse_age};
use crate::config::Settings;
use crate::identity::{TokenEntry, TokenError, TokenFile};

/// What to do with the tokens for `--http`.
#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Make a token for a caller, and print it this once
    ///
    /// Whoever shows the token over HTTP *is* that caller: for `allowed_callers`, for the gateway's rules and
    /// in the audit log. Only a hash of it is kept, in data/tokens.json. A running server takes it at once.
    /// Exit code 0; 2 if it cannot be made.
    #[command(after_long_help = "Examples:\n  adjutant token new ci-bot --expires 30d\n  \
        export ADJUTANT_TOKEN=$(adjutant token new editor)")]
    New {
        /// The name of the caller that the token is for
        caller: String,
        /// For how long it is good, such as `30d` [default: until it is revoked]
        #[arg(long, value_name = "AGE", value_parser = lifetime)]
        expires: Option<Duration>,
        /// Print JSON for a program
        #[arg(long)]
        json: bool,
    },
    /// Show the tokens: for whom, since when, until when; never the tokens themselves
    ///
    /// Exit code 0; 2 if data/tokens.json cannot be read.
    #[command(after_long_help = "Example:\n  adjutant token list")]
    List {
        /// Print JSON for a program
        #[arg(long)]
        json: bool,
    },
    /// Take a token back, or all tokens of a caller; a running server refuses them at once
    ///
    /// Exit code 0; 1 if there is no such token.
    #[command(
        after_long_help = "Examples:\n  adjutant token revoke 3f9a01bc\n  adjutant token revoke ci-bot"
    )]
    Revoke {
        /// A token's id, as `token list` shows it, or a caller's name
        #[arg(value_name = "ID|CALLER")]
        which: String,
    },
}

pub(super) fn run(settings: &Settings, command: &TokenCommand) -> Exit {
    // An agent that could make tokens could be anybody.
    if let Some(refused) = nesting::refuse_inside_a_run("token") {
        return refused;
    }
    let file = TokenFile::new(&settings.data_dir());
    let done = match command {
        TokenCommand::New { caller, expires, json } => new(&file, caller, *expires, *json),
        TokenCommand::List { json } => list(&file, *json),
        TokenCommand::Revoke { which } => revoke(&file, which),
    };
    done.unwrap_or_else(|error| refuse(&error))
}

fn lifetime(text: &str) -> Result<Duration, String> {
    match parse_age(text) {
        Some(age) if !age.is_zero() => Ok(age),
        _ => Err("write a number and a unit, such as `30d`, `12h` or `45m`".to_owned()),
    }
}

fn new(
    file: &TokenFile,
    caller: &str,
    expires: Option<Duration>,
    json: bool,
) -> Result<Exit, TokenError> {
    let (entry, text) = file.add(caller, expires)?;
    if json {
        let mut shown = described(&entry);
        if let Some(shown) = shown.as_object_mut() {
            shown.insert("token".to_owned(), text.expose().into());
        }
        render::json(&shown);
    } else {
        // The token alone on stdout, so that it can go straight into a variable.
        render::data(text.expose());
        let end = entry.expires.map_or("until it is revoked".to_owned(), |at| until(at, now()));
        render::talk(format_args!(
            "token `{}` for `{caller}`, good {end}; it is not shown again",
            entry.id
        ));
    }
    Ok(Exit::Success)
}

fn list(file: &TokenFile, json: bool) -> Result<Exit, TokenError> {
    let entries = file.entries()?;
    if json {
        render::json(&entries.iter().map(described).collect::<Vec<_>>());
    } else if entries.is_empty() {
        render::talk("there are no tokens; make one with `adjutant token new CALLER`");
    } else {
        render::data(table(&entries));
    }
    Ok(Exit::Success)
}

fn revoke(file: &TokenFile, which: &str) -> Result<Exit, TokenError> {
    let known = file.entries()?;
    let gone = file.revoke(which)?;
    for entry in &gone {
        render::data(format_args!("revoked `{}` of `{}`", entry.id, entry.caller));
    }
    if !gone.is_empty() {
        return Ok(Exit::Success);
    }
    let names = known.iter().flat_map(|entry| [entry.id.as_str(), entry.caller.as_str()]);
    let hint = nearest(which, names).first().map(|near| format!("; is `{near}` meant?"));
    render::problem(format_args!(
        "there is no token `{which}` and no token of such a caller{}",
        hint.unwrap_or_default()
    ));
    Ok(Exit::Failure)
}

fn table(entries: &[TokenEntry]) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header(["ID", "CALLER", "MADE", "GOOD"]);
    let at = now();
    for entry in entries {
        let good = entry.expires.map_or("until revoked".to_owned(), |end| until(end, at));
        table.add_row([entry.id.clone(), entry.caller.clone(), day(entry.created), good]);
    }
    fit_around(&mut table, 0);
    table
}

fn described(entry: &TokenEntry) -> Value {
    json!({
        "id": entry.id, "caller": entry.caller, "created": entry.created, "expires": entry.expires,
        "expired": entry.is_expired(now()),
    })
}

fn until(end: Timestamp, at: Timestamp) -> String {
    let word = if end <= at { "no more, since" } else { "until" };
    format!("{word} {}", day(end))
}

fn day(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M UTC").to_string()
}
