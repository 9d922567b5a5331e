//! `adjutant auth`: OAuth sign-in to remote MCP servers: login, status, logout.

use clap::{Args, Subcommand};

use super::auth_login::sign_in;
use super::auth_servers::{SignInSubject, find_subject, list_subjects};
use crate::cli::command::{CliCommand, CommandAccess};
use crate::cli::exit_status::ExitStatus;
use crate::cli::{output, runtime};
use crate::config::Settings;
use crate::gateway::{CredentialRecord, SignInError, SignInStatus};
use crate::util::now;

/// Sign in to MCP servers on the network, and see or undo it
///
/// For servers that answer 401 and speak OAuth, as the MCP specification has it. Tokens lie in the
/// desktop's keyring or in a private file, never in the project; they are renewed without you.
#[derive(Debug, Subcommand)]
#[command(after_long_help = "Examples:\n  adjutant auth login linear\n  \
    adjutant auth login linear --no-browser   # over ssh\n  adjutant auth status")]
pub(crate) enum AuthCommand {
    /// Sign in to a server: opens the browser and waits for its answer
    ///
    /// Exit code 0; 1 if the sign-in was refused, denied or failed; 2 if there is no such server.
    #[command(after_long_help = "Examples:\n  adjutant auth login linear\n  \
        adjutant auth login linear --no-browser\n  adjutant auth login crm --agent dev")]
    Login(LoginArguments),
    /// Show what is signed in
    ///
    /// Exit code 0.
    #[command(
        after_long_help = "Example:\n  adjutant auth status --json | jq -r '.[] | select(.state != \"signed in\") | .server'"
    )]
    Status(StatusArguments),
    /// Forget a sign-in on this machine
    ///
    /// Exit code 0; 1 if there was none; 2 if there is no such server.
    #[command(after_long_help = "Example:\n  adjutant auth logout linear")]
    Logout(LogoutArguments),
}

#[derive(Debug, Args)]
pub(crate) struct LoginArguments {
    #[command(flatten)]
    whose: AccountArguments,
    /// Print the address instead of opening a browser, and take the code from stdin
    #[arg(long)]
    pub(crate) no_browser: bool,
    /// Ask for this scope besides; may be given more than once
    #[arg(long = "scope", value_name = "SCOPE")]
    pub(crate) scopes: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LogoutArguments {
    #[command(flatten)]
    whose: AccountArguments,
}

#[derive(Debug, Args)]
struct AccountArguments {
    /// The server's name
    server: String,
    /// For this agent alone: a server of its own, or one with `"auth": {"isolation": "agent"}`
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
}

impl CliCommand for AuthCommand {
    fn access(&self) -> CommandAccess {
        match self {
            Self::Status(_) => CommandAccess::ReadsOnly,
            Self::Login(_) | Self::Logout(_) => CommandAccess::ActsOrChanges,
        }
    }

    fn run(&self, settings: &Settings) -> ExitStatus {
        match self {
            Self::Login(arguments) => login(settings, arguments),
            Self::Status(arguments) => status(settings, arguments),
            Self::Logout(arguments) => logout(settings, &arguments.whose),
        }
    }
}

fn login(settings: &Settings, arguments: &LoginArguments) -> ExitStatus {
    with_subject(settings, &arguments.whose, |subject| {
        runtime::block_on(async { sign_in(settings, &subject, arguments).await })
    })
}

fn logout(settings: &Settings, whose: &AccountArguments) -> ExitStatus {
    with_subject(settings, whose, |subject| {
        runtime::block_on(async {
            let target = match subject.target(settings) {
                Ok(target) => target,
                Err(error) => return report_failure(&error),
            };
            match target.forget().await {
                Ok(true) => {
                    output::print_message(format_args!(
                        "the sign-in to `{}` is forgotten",
                        whose.server
                    ));
                    ExitStatus::Success
                }
                Ok(false) => {
                    output::print_error(format_args!("nobody is signed in to `{}`", whose.server));
                    ExitStatus::Failure
                }
                Err(error) => report_failure(&error),
            }
        })
    })
}

fn with_subject(
    settings: &Settings,
    whose: &AccountArguments,
    act: impl FnOnce(SignInSubject) -> ExitStatus,
) -> ExitStatus {
    match find_subject(settings, &whose.server, whose.agent.as_deref()) {
        Ok(subject) => act(subject),
        Err(reason) => {
            output::print_error(reason);
            ExitStatus::Usage
        }
    }
}

/// Prints the error and returns exit status 1.
pub(crate) fn report_failure(error: &SignInError) -> ExitStatus {
    output::print_error(error);
    ExitStatus::Failure
}

fn status(settings: &Settings, arguments: &StatusArguments) -> ExitStatus {
    let lines: Vec<AuthRow> = match list_subjects(settings) {
        Ok(subjects) => subjects.iter().map(|subject| AuthRow::load(settings, subject)).collect(),
        Err(reason) => {
            output::print_error(reason);
            return ExitStatus::Usage;
        }
    };
    if arguments.json {
        output::print_json(&lines);
    } else if lines.is_empty() {
        output::print_message("no server of this project asks for a sign-in");
    } else {
        for line in &lines {
            output::print(line.to_text());
        }
    }
    ExitStatus::Success
}

/// A row of `auth status`.
#[derive(serde::Serialize)]
struct AuthRow {
    server: String,
    agent: Option<String>,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<crate::util::Timestamp>,
    renewable: bool,
    scopes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_in: Option<&'static str>,
}

impl AuthRow {
    fn load(settings: &Settings, subject: &SignInSubject) -> Self {
        let record = subject.target(settings).and_then(|target| target.record());
        let mut line = Self {
            server: subject.spec.name.clone(),
            agent: subject.agent.clone(),
            state: "not signed in",
            detail: None,
            expires_at: None,
            renewable: false,
            scopes: Vec::new(),
            kept_in: None,
        };
        match record {
            Ok(Some(record)) => line.apply_record(&record),
            Ok(None) => {}
            Err(error) => (line.state, line.detail) = ("unknown", Some(error.to_string())),
        }
        line
    }

    fn apply_record(&mut self, record: &CredentialRecord) {
        self.state = match record.status(now()) {
            SignInStatus::SignedIn => "signed in",
            SignInStatus::Expired => "expired",
            SignInStatus::Ended => "ended",
        };
        self.kept_in = record.ended.is_none().then(|| record.storage_name());
        self.detail.clone_from(&record.ended);
        self.expires_at = record.expires_at;
        self.renewable = record.renewable;
        self.scopes.clone_from(&record.scopes);
    }

    fn to_text(&self) -> String {
        let agent = self.agent.as_ref().map(|agent| format!(" for {agent}")).unwrap_or_default();
        let mut parts = vec![format!("{}{agent}: {}", self.server, self.state)];
        parts.extend(self.detail.clone());
        if self.state == "signed in" {
            parts.push(match (self.expires_at, self.renewable) {
                (_, true) => "renews itself".to_owned(),
                (Some(end), false) => format!("until {end:.0}"),
                (None, false) => "without an end".to_owned(),
            });
        }
        if !self.scopes.is_empty() {
            parts.push(format!("scopes {}", self.scopes.join(" ")));
        }
        parts.extend(self.kept_in.map(|place| format!("kept in the {place}")));
        parts.join("; ")
    }
}
