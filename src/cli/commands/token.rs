//! `adjutant token`: creates, lists and revokes the bearer tokens of HTTP callers.

use std::time::Duration;

use clap::Subcommand;

use crate::api::TokenObject;
use crate::cli::format::format_time;
use crate::cli::table::{Column, Table};
use crate::cli::{CliCommand, CommandError, CommandReport, CommandResult, ErrorCode, JsonArgument};
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
        #[command(flatten)]
        format: JsonArgument,
    },
    /// Show the tokens: for whom, since when, until when; never the tokens themselves
    ///
    /// Exit code 0; 4 if data/tokens.json cannot be read.
    #[command(after_long_help = "Example:\n  adjutant token list")]
    List {
        #[command(flatten)]
        format: JsonArgument,
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
        #[command(flatten)]
        format: JsonArgument,
    },
}

impl CliCommand for TokenCommand {
    fn run(&self, settings: &Settings) -> CommandResult {
        let file = TokenStore::new(&settings.data_dir());
        match self {
            Self::New { caller, expires, format } => {
                create(&file, caller, *expires)?.print(*format)
            }
            Self::List { format } => list(&file)?.print(*format),
            Self::Revoke { which, format } => revoke(&file, which)?.print(*format),
        }
    }
}

fn lifetime(text: &str) -> Result<Duration, String> {
    match parse_age(text) {
        Some(age) if !age.is_zero() => Ok(age),
        _ => Err("write a number and a unit, such as `30d`, `12h` or `45m`".to_owned()),
    }
}

fn token_object(entry: &TokenEntry) -> TokenObject {
    TokenObject {
        token_id: entry.id.clone(),
        caller: entry.caller.clone(),
        created_at: entry.created.into(),
        expires_at: entry.expires.map(Into::into),
        expired: entry.is_expired(now()),
        token: None,
    }
}

fn create(
    file: &TokenStore,
    caller: &str,
    expires: Option<Duration>,
) -> Result<CommandReport, CommandError> {
    let (entry, text) = file.add(caller, expires)?;
    let token = Some(text.expose().to_owned());
    let end = entry.expires.map_or("until it is revoked".to_owned(), |at| format_expiry(at, now()));
    // Only the token goes to stdout, so that a shell can assign it to a variable.
    let output = CommandReport::new(&TokenObject { token, ..token_object(&entry) });
    Ok(output.data(text.expose()).message(format_args!(
        "token `{}` for `{caller}`, good {end}; it is not shown again",
        entry.id
    )))
}

fn list(file: &TokenStore) -> Result<CommandReport, CommandError> {
    let entries = file.read()?.map_or_else(Vec::new, |table| table.tokens.clone());
    let tokens: Vec<_> = entries.iter().map(token_object).collect();
    let none = "there are no tokens; make one with `adjutant token new CALLER`";
    Ok(CommandReport::list(&tokens, none, || table(&entries)))
}

fn revoke(file: &TokenStore, which: &str) -> Result<CommandReport, CommandError> {
    let known = file.read()?;
    let gone = file.revoke(which)?;
    if gone.is_empty() {
        let known = known.iter().flat_map(|table| &table.tokens);
        return Err(CommandError::not_found(
            ErrorCode::TokenNotFound,
            "token",
            which,
            known.flat_map(|entry| [entry.id.as_str(), entry.caller.as_str()]),
            "adjutant token list",
        ));
    }
    let output = CommandReport::new(&gone.iter().map(token_object).collect::<Vec<_>>());
    let lines = gone.iter().map(|entry| format!("revoked `{}` of `{}`", entry.id, entry.caller));
    Ok(lines.fold(output, CommandReport::data))
}

fn table(entries: &[TokenEntry]) -> Table {
    let mut table = Table::new([
        Column::whole("ID"),
        Column::text("CALLER"),
        Column::whole("MADE").drop(1),
        Column::text("GOOD"),
    ]);
    let at = now();
    for entry in entries {
        let good = entry.expires.map_or("until revoked".to_owned(), |end| format_expiry(end, at));
        table.add_row([entry.id.clone(), entry.caller.clone(), format_time(entry.created), good]);
    }
    table
}

fn format_expiry(end: Timestamp, at: Timestamp) -> String {
    let word = if end <= at { "no more, since" } else { "until" };
    format!("{word} {}", format_time(end))
}
