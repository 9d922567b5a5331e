//! `adjutant token`: creates, lists and revokes the bearer tokens of HTTP callers.

use std::time::Duration;

use clap::Subcommand;
use comfy_table::Table;
use serde::Serialize;

use crate::cli::format::format_time;
use crate::cli::table::{fit_width_around, plain_table};
use crate::cli::{CliCommand, CommandError, CommandResult, ErrorCode, ExitStatus, output};
use crate::config::Settings;
use crate::identity::{TokenEntry, TokenStore};
use crate::util::{Timestamp, now, parse_age};

/// Make, show and revoke the tokens of callers that come over HTTP
#[derive(Debug, Subcommand)]
#[command(
    after_long_help = "Examples:\n  adjutant token new ci-bot --expires 30d\n  adjutant token list"
)]
pub(crate) enum TokenCommand {
    /// Make a token for a caller, and print it this once
    ///
    /// Whoever shows the token over HTTP *is* that caller: for `allowed_callers`, for the gateway's rules and
    /// in the audit log. Only a hash of it is kept, in data/tokens.json. A running server takes it at once.
    /// Exit code 0; 2 if the name cannot be used; 4 if data/tokens.json cannot be used.
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
    /// Exit code 0; 4 if data/tokens.json cannot be read.
    #[command(after_long_help = "Example:\n  adjutant token list")]
    List {
        /// Print JSON for a program
        #[arg(long)]
        json: bool,
    },
    /// Take a token back, or all tokens of a caller; a running server refuses them at once
    ///
    /// Exit code 0; 3 if there is no such token.
    #[command(
        after_long_help = "Examples:\n  adjutant token revoke 3f9a01bc\n  adjutant token revoke ci-bot"
    )]
    Revoke {
        /// A token's id, as `token list` shows it, or a caller's name
        #[arg(value_name = "ID|CALLER")]
        which: String,
    },
}

/// A token as JSON. Only `token new` has the token itself.
#[derive(Serialize)]
struct TokenReport<'a> {
    id: &'a str,
    caller: &'a str,
    created: Timestamp,
    expires: Option<Timestamp>,
    expired: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
}

impl<'a> TokenReport<'a> {
    fn new(entry: &'a TokenEntry) -> Self {
        let TokenEntry { id, caller, created, expires, .. } = entry;
        let (created, expires, expired) = (*created, *expires, entry.is_expired(now()));
        Self { id, caller, created, expires, expired, token: None }
    }
}

impl CliCommand for TokenCommand {
    fn run(&self, settings: &Settings) -> CommandResult {
        let file = TokenStore::new(&settings.data_dir());
        match self {
            Self::New { caller, expires, json } => create(&file, caller, *expires, *json),
            Self::List { json } => list(&file, *json),
            Self::Revoke { which } => revoke(&file, which),
        }
    }
}

fn lifetime(text: &str) -> Result<Duration, String> {
    match parse_age(text) {
        Some(age) if !age.is_zero() => Ok(age),
        _ => Err("write a number and a unit, such as `30d`, `12h` or `45m`".to_owned()),
    }
}

fn create(file: &TokenStore, caller: &str, expires: Option<Duration>, json: bool) -> CommandResult {
    let (entry, text) = file.add(caller, expires)?;
    if json {
        let token = Some(text.expose());
        output::print_json(&TokenReport { token, ..TokenReport::new(&entry) });
    } else {
        // Only the token goes to stdout, so that a shell can assign it to a variable.
        output::print(text.expose());
        let end =
            entry.expires.map_or("until it is revoked".to_owned(), |at| format_expiry(at, now()));
        output::print_message(format_args!(
            "token `{}` for `{caller}`, good {end}; it is not shown again",
            entry.id
        ));
    }
    Ok(ExitStatus::Success)
}

fn list(file: &TokenStore, json: bool) -> CommandResult {
    let entries = file.read()?.map_or_else(Vec::new, |table| table.tokens.clone());
    let reports: Vec<_> = entries.iter().map(TokenReport::new).collect();
    let none = "there are no tokens; make one with `adjutant token new CALLER`";
    output::print_list(json, &reports, none, || table(&entries));
    Ok(ExitStatus::Success)
}

fn revoke(file: &TokenStore, which: &str) -> CommandResult {
    let known = file.read()?;
    let gone = file.revoke(which)?;
    for entry in &gone {
        output::print(format_args!("revoked `{}` of `{}`", entry.id, entry.caller));
    }
    if !gone.is_empty() {
        return Ok(ExitStatus::Success);
    }
    let known = known.iter().flat_map(|table| &table.tokens);
    let names = known.flat_map(|entry| [entry.id.as_str(), entry.caller.as_str()]);
    Err(CommandError::not_found(
        ErrorCode::TokenNotFound,
        "token",
        which,
        names,
        "adjutant token list",
    ))
}

fn table(entries: &[TokenEntry]) -> Table {
    let mut table = plain_table(["ID", "CALLER", "MADE", "GOOD"]);
    let at = now();
    for entry in entries {
        let good = entry.expires.map_or("until revoked".to_owned(), |end| format_expiry(end, at));
        table.add_row([entry.id.clone(), entry.caller.clone(), format_time(entry.created), good]);
    }
    fit_width_around(&mut table, 0);
    table
}

fn format_expiry(end: Timestamp, at: Timestamp) -> String {
    let word = if end <= at { "no more, since" } else { "until" };
    format!("{word} {}", format_time(end))
}
