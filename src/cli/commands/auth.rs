//! `adjutant auth`: sign in to servers on the network, see it, undo it.

use clap::{Args, Subcommand};

use super::exit::Exit;
use super::nesting::refuse_inside_a_run;
use super::sign_in_desk::sign_in;
use super::sign_in_servers::{Subject, find, subjects};
use super::{render, runtime};
use crate::base::now;
use crate::config::Settings;
use crate::gateway::{Record, SignInFailed, Standing};

/// Sign in to MCP servers on the network, and see or undo it
///
/// For servers that answer 401 and speak OAuth, as the MCP specification has it. Tokens lie in the
/// desktop's keyring or in a private file, never in the project; they are renewed without you.
#[derive(Debug, Subcommand)]
#[command(after_long_help = "Examples:\n  adjutant auth login linear\n  \
    adjutant auth login linear --no-browser   # over ssh\n  adjutant auth status")]
pub(super) enum AuthCommand {
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
pub(super) struct LoginArguments {
    #[command(flatten)]
    whose: Whose,
    /// Print the address instead of opening a browser, and take the code from stdin
    #[arg(long)]
    pub(super) no_browser: bool,
    /// Ask for this scope besides; may be given more than once
    #[arg(long = "scope", value_name = "SCOPE")]
    pub(super) scopes: Vec<String>,
}

#[derive(Debug, Args)]
pub(super) struct StatusArguments {
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct LogoutArguments {
    #[command(flatten)]
    whose: Whose,
}

#[derive(Debug, Args)]
struct Whose {
    /// The server's name
    server: String,
    /// For this agent alone: a server of its own, or one with `"auth": {"isolation": "agent"}`
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
}

pub(super) fn run(settings: &Settings, command: &AuthCommand) -> Exit {
    match command {
        AuthCommand::Login(arguments) => login(settings, arguments),
        AuthCommand::Status(arguments) => status(settings, arguments),
        AuthCommand::Logout(arguments) => logout(settings, &arguments.whose),
    }
}

fn login(settings: &Settings, arguments: &LoginArguments) -> Exit {
    if let Some(refused) = refuse_inside_a_run("auth login") {
        return refused;
    }
    with_subject(settings, &arguments.whose, |subject| {
        runtime::block_on(async { sign_in(settings, &subject, arguments).await })
    })
}

fn logout(settings: &Settings, whose: &Whose) -> Exit {
    if let Some(refused) = refuse_inside_a_run("auth logout") {
        return refused;
    }
    with_subject(settings, whose, |subject| {
        runtime::block_on(async {
            let target = match subject.target(settings) {
                Ok(target) => target,
                Err(error) => return failed(&error),
            };
            match target.forget().await {
                Ok(true) => {
                    render::talk(format_args!("the sign-in to `{}` is forgotten", whose.server));
                    Exit::Success
                }
                Ok(false) => {
                    render::problem(format_args!("nobody is signed in to `{}`", whose.server));
                    Exit::Failure
                }
                Err(error) => failed(&error),
            }
        })
    })
}

fn with_subject(settings: &Settings, whose: &Whose, act: impl FnOnce(Subject) -> Exit) -> Exit {
    match find(settings, &whose.server, whose.agent.as_deref()) {
        Ok(subject) => act(subject),
        Err(reason) => {
            render::problem(reason);
            Exit::Usage
        }
    }
}

/// Says why, and that the answer is no.
pub(super) fn failed(error: &SignInFailed) -> Exit {
    render::problem(error);
    Exit::Failure
}

fn status(settings: &Settings, arguments: &StatusArguments) -> Exit {
    let lines: Vec<Line> = match subjects(settings) {
        Ok(subjects) => subjects.iter().map(|subject| Line::of(settings, subject)).collect(),
        Err(reason) => {
            render::problem(reason);
            return Exit::Usage;
        }
    };
    if arguments.json {
        render::json(&lines);
    } else if lines.is_empty() {
        render::talk("no server of this project asks for a sign-in");
    } else {
        for line in &lines {
            render::data(line.text());
        }
    }
    Exit::Success
}

/// One server in `auth status`.
#[derive(serde::Serialize)]
struct Line {
    server: String,
    agent: Option<String>,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<crate::base::Timestamp>,
    renewable: bool,
    scopes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_in: Option<&'static str>,
}

impl Line {
    fn of(settings: &Settings, subject: &Subject) -> Self {
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
            Ok(Some(record)) => line.fill(record),
            Ok(None) => {}
            Err(error) => (line.state, line.detail) = ("unknown", Some(error.to_string())),
        }
        line
    }

    fn fill(&mut self, record: Record) {
        self.state = match record.standing(now()) {
            Standing::SignedIn => "signed in",
            Standing::Expired => "expired",
            Standing::Ended => "ended",
        };
        self.kept_in = record.ended.is_none().then(|| record.kept_in());
        self.detail = record.ended;
        self.expires_at = record.expires_at;
        self.renewable = record.renewable;
        self.scopes = record.scopes;
    }

    fn text(&self) -> String {
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
