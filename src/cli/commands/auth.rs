//! `adjutant auth`: OAuth sign-in to remote MCP servers: login, status, logout.

use std::collections::BTreeSet;
use std::io::{self, BufRead, IsTerminal};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::{Args, Subcommand};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::api::{ServerObject, SignInObject};
use crate::catalog::{ServerEntry, ServerLaunch, Snapshot};
use crate::cli::format::plural;
use crate::cli::{
    CliCommand, CommandAccess, CommandError, CommandReport, CommandResult, ErrorCode, JsonArgument,
    output, runtime, store_unavailable, usage,
};
use crate::config::{GatewayFiles, Settings};
use crate::gateway::{
    CallbackParams, CredentialStore, DownstreamRegistry, LoginFlow, ServerScope, ServerSet,
    ServerSpec, SignInError, SignInStatus, SignInTarget, open_browser,
};
use crate::store::read_bounded;
use crate::util::{Timestamp, nearest_names, now};

/// Time limit of a sign-in; users may have to look up a password first.
const SIGN_IN_TIMEOUT: Duration = Duration::from_mins(10);
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

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
    /// Exit code 0; 1 if the sign-in was refused, denied or failed; 3 if there is no such server.
    #[command(after_long_help = "Examples:\n  adjutant auth login linear\n  \
        adjutant auth login linear --no-browser\n  adjutant auth login crm --agent dev")]
    Login(LoginArguments),
    /// Show what is signed in
    ///
    /// Exit code 0.
    #[command(
        after_long_help = "Example:\n  adjutant auth status --json | jq -r '.[] | select(.sign_in.state != \"signed_in\") | .server'"
    )]
    Status(StatusArguments),
    /// Forget a sign-in on this machine
    ///
    /// Exit code 0; 3 if there was none, or no such server.
    #[command(after_long_help = "Example:\n  adjutant auth logout linear")]
    Logout(LogoutArguments),
}

#[derive(Debug, Args)]
pub(crate) struct LoginArguments {
    #[command(flatten)]
    whose: AccountArguments,
    /// Print the address instead of opening a browser, and take the code from stdin
    #[arg(long)]
    no_browser: bool,
    /// Ask for this scope besides; may be given more than once
    #[arg(long = "scope", value_name = "SCOPE")]
    scopes: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    format: JsonArgument,
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
    #[command(flatten)]
    format: JsonArgument,
}

impl AuthCommand {
    pub(crate) fn access(&self) -> CommandAccess {
        match self {
            Self::Status(_) => CommandAccess::ReadsOnly,
            Self::Login(_) | Self::Logout(_) => CommandAccess::ActsOrChanges,
        }
    }
}

impl CliCommand for AuthCommand {
    fn run(&self, settings: &Settings) -> CommandResult {
        match self {
            Self::Login(arguments) => arguments.whose.find(settings)?.login(arguments),
            Self::Status(arguments) => status(settings)?.print(arguments.format),
            Self::Logout(arguments) => {
                arguments.whose.find(settings)?.logout(arguments.whose.format)
            }
        }
    }
}

impl AccountArguments {
    /// Finds the server. The error is one line for the user.
    fn find<'s>(&self, settings: &'s Settings) -> Result<SignInSubject<'s>, CommandError> {
        find_subject(settings, &self.server, self.agent.as_deref())
    }
}

/// A server to sign in to, and the agent with an account of its own, if any.
struct SignInSubject<'s> {
    settings: &'s Settings,
    spec: Arc<ServerSpec>,
    agent: Option<String>,
    /// True if the agent declares the server itself.
    private: bool,
}

impl SignInSubject<'_> {
    /// Returns the target whose credentials are stored.
    fn target(&self) -> Result<SignInTarget, SignInError> {
        SignInTarget::new(&self.settings.root, &self.spec, self.agent.as_deref())
    }

    /// Returns the scope under which the gateway uses the server.
    fn scope(&self) -> ServerScope {
        match (&self.agent, self.private) {
            (Some(agent), true) => ServerScope::Private(agent.clone()),
            (Some(agent), false) => ServerScope::Agent(agent.clone()),
            (None, _) => ServerScope::Shared,
        }
    }

    /// Signs in, then verifies the token by listing the server's tools.
    fn login(&self, arguments: &LoginArguments) -> CommandResult {
        runtime::block_on(async {
            let signed_in = async {
                let target = self.target()?;
                let mut flow = LoginFlow::begin(&target, &arguments.scopes).await?;
                let server = &target.server;
                let answer = wait_for_callback(
                    &mut flow,
                    server,
                    arguments.no_browser,
                    arguments.whose.format,
                )
                .await?;
                flow.exchange_code(answer).await
            };
            signed_in.await?;
            let pool = DownstreamRegistry::new(self.settings.root.clone());
            let tools = pool.get_or_create(self.scope(), &self.spec).tools().await;
            pool.close().await;
            let list = tools.map_err(|error| {
                let message = format!("the sign-in is there, but {error}");
                CommandError::new(ErrorCode::SignInFailed, message)
            })?;
            let (name, tools) = (&self.spec.name, plural(list.tools.len(), "tool"));
            AuthRow::load(self)
                .output()
                .message(format_args!("Signed in to `{name}`, which offers {tools}."))
                .print(arguments.whose.format)
        })
    }

    fn logout(&self, format: JsonArgument) -> CommandResult {
        let server = &self.spec.name;
        runtime::block_on(async {
            if !self.target()?.forget().await? {
                let message = format!("nobody is signed in to `{server}`");
                return Err(CommandError::new(ErrorCode::SignInNotFound, message));
            }
            AuthRow::load(self)
                .output()
                .message(format_args!("the sign-in to `{server}` is forgotten"))
                .print(format)
        })
    }
}

fn status(settings: &Settings) -> Result<CommandReport, CommandError> {
    let subjects = list_subjects(settings)?;
    let rows: Vec<AuthRow> = subjects.iter().map(AuthRow::load).collect();
    let servers: Vec<ServerObject> = rows.iter().map(AuthRow::to_object).collect();
    Ok(CommandReport::list(&servers, "no server of this project asks for a sign-in", || {
        rows.iter().map(AuthRow::to_text).collect::<Vec<_>>().join("\n")
    }))
}

/// A row of `auth status`.
#[derive(Default)]
struct AuthRow {
    server: String,
    agent: Option<String>,
    state: &'static str,
    detail: Option<String>,
    expires_at: Option<Timestamp>,
    renewable: bool,
    scopes: Vec<String>,
    kept_in: Option<&'static str>,
}

impl AuthRow {
    fn load(subject: &SignInSubject<'_>) -> Self {
        let mut row = Self {
            server: subject.spec.name.clone(),
            agent: subject.agent.clone(),
            state: "not signed in",
            ..Self::default()
        };
        match subject.target().and_then(|target| target.record()) {
            Ok(None) => {}
            Ok(Some(record)) => {
                row.state = match record.status(now()) {
                    SignInStatus::SignedIn => "signed in",
                    SignInStatus::Expired => "expired",
                    SignInStatus::Ended => "ended",
                };
                row.kept_in = record.ended.is_none().then(|| record.storage_name());
                row.detail.clone_from(&record.ended);
                row.expires_at = record.expires_at;
                row.renewable = record.renewable;
                row.scopes.clone_from(&record.scopes);
            }
            Err(error) => (row.state, row.detail) = ("unknown", Some(error.to_string())),
        }
        row
    }

    fn to_object(&self) -> ServerObject {
        let sign_in = SignInObject {
            state: self.state.replace(' ', "_"),
            reason: self.detail.clone(),
            expires_at: self.expires_at.map(Into::into),
            renewable: self.renewable,
            scopes: self.scopes.clone(),
            kept_in: self.kept_in.map(str::to_owned),
        };
        ServerObject {
            server: self.server.clone(),
            agent: self.agent.clone(),
            sign_in: Some(sign_in),
            ..ServerObject::default()
        }
    }

    fn output(&self) -> CommandReport {
        CommandReport::new(&self.to_object())
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

async fn wait_for_callback(
    flow: &mut LoginFlow<'_>,
    server: &str,
    no_browser: bool,
    format: JsonArgument,
) -> Result<CallbackParams, SignInError> {
    let address = flow.address().to_owned();
    output::print_message(format_args!("To sign in to `{server}`, open this page:"));
    // With `--json` stdout has the result alone.
    if format.json {
        output::print_message(&address);
    } else {
        output::print(&address);
    }
    let mut opening = None;
    if !no_browser {
        opening = Some(tokio::spawn(async move { open_browser(&address).await }));
    }
    let mut pasted = match no_browser || io::stdin().is_terminal() {
        true => {
            output::print_message(
                "If the browser runs on another machine, it ends on a page that cannot be opened: \
                 paste the address of that page here.",
            );
            spawn_stdin_reader()
        }
        false => mpsc::channel(1).1,
    };
    let waiting = async {
        loop {
            tokio::select! {
                answer = flow.wait_for_callback() => return answer,
                Some(text) = pasted.recv() => match flow.parse_pasted(&text) {
                    Err(SignInError::Refused { reason, .. }) => output::print_error(reason),
                    read => return read,
                },
                said = async { opening.as_mut()?.await.ok() }, if opening.is_some() => {
                    opening = None;
                    if let Some(Err(reason)) = said {
                        output::print_message(format_args!("{reason}: open the page yourself"));
                    }
                }
            }
        }
    };
    let late = || SignInError::Failed {
        server: server.to_owned(),
        reason: format!("nobody answered within {} minutes", SIGN_IN_TIMEOUT.as_secs() / 60),
    };
    timeout(SIGN_IN_TIMEOUT, waiting).await.unwrap_or_else(|_| Err(late()))
}

/// Reads stdin on a separate thread, because a blocking read cannot be cancelled.
fn spawn_stdin_reader() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(1);
    thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if !line.trim().is_empty() && sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Finds a server by name: one that the agent declares, else a shared one.
fn find_subject<'s>(
    settings: &'s Settings,
    server: &str,
    agent: Option<&str>,
) -> Result<SignInSubject<'s>, CommandError> {
    if let Some(agent) = agent {
        let mut private =
            private_subjects(settings, |own, entry| own == agent && entry.name == server);
        if let Some(subject) = private.pop() {
            return Ok(subject);
        }
    }
    let set = read_servers(settings)?;
    let Some(entry) = set.get(server) else {
        let near = nearest_names(server, set.names());
        let whose = agent.map(|agent| format!(", and `{agent}` has none of its own"));
        let whose = whose.unwrap_or_default();
        let message = format!("`.mcp.json` has no server `{server}`{whose}");
        let error = CommandError::new(ErrorCode::ServerNotFound, message);
        return Err(match near.first() {
            Some(near) => error.with_help(format_args!("did you mean `{near}`?")),
            None => error,
        });
    };
    let spec = entry.spec.clone().map_err(|reason| {
        CommandError::new(
            ErrorCode::ProjectFileInvalid,
            format_args!("server `{server}`: {reason}"),
        )
    })?;
    match (spec.oauth.per_agent, agent) {
        (true, None) => Err(usage(format_args!(
            "every agent signs in to `{server}` by itself: say which with `--agent AGENT`"
        ))),
        (false, Some(agent)) => Err(usage(format_args!(
            "all agents share the sign-in to `{server}`: leave `--agent {agent}` out, or put `\"auth\": {{\"isolation\": \"agent\"}}` into its entry"
        ))),
        (_, agent) => {
            Ok(SignInSubject { settings, spec, agent: agent.map(str::to_owned), private: false })
        }
    }
}

/// Returns all remote servers without an `Authorization` header of their own.
///
/// A server with per-agent accounts appears once for each agent that has signed in.
fn list_subjects(settings: &Settings) -> Result<Vec<SignInSubject<'_>>, CommandError> {
    let set = read_servers(settings)?;
    let signed_in =
        CredentialStore::of_user().map_err(store_unavailable)?.records_of_project(&settings.root);
    let mut subjects = Vec::new();
    for spec in set.entries().iter().filter_map(|entry| entry.spec.as_ref().ok()) {
        if !needs_sign_in(&spec.launch) {
            continue;
        }
        let accounts: BTreeSet<Option<&String>> = if spec.oauth.per_agent {
            let own = signed_in.iter().filter(|record| record.server == spec.name);
            own.filter_map(|record| record.agent.as_ref()).map(Some).collect()
        } else {
            [None].into()
        };
        subjects.extend(accounts.into_iter().map(|agent| SignInSubject {
            settings,
            spec: Arc::clone(spec),
            agent: agent.cloned(),
            private: false,
        }));
    }
    subjects.extend(private_subjects(settings, |_, entry| needs_sign_in(&entry.launch)));
    Ok(subjects)
}

/// Returns the servers that agents declare, as far as `wanted` accepts the agent and the entry.
fn private_subjects(
    settings: &Settings,
    wanted: impl Fn(&str, &ServerEntry) -> bool,
) -> Vec<SignInSubject<'_>> {
    let snapshot = Snapshot::load(settings);
    let mut subjects = Vec::new();
    for agent in snapshot.entries().iter().filter_map(|entry| entry.agent()) {
        let entries = agent.servers.iter().filter(|entry| wanted(agent.name.as_str(), entry));
        subjects.extend(entries.filter_map(ServerSpec::from_entry).map(|spec| SignInSubject {
            settings,
            spec: Arc::new(spec),
            agent: Some(agent.name.to_string()),
            private: true,
        }));
    }
    subjects
}

fn needs_sign_in(launch: &ServerLaunch) -> bool {
    match launch {
        ServerLaunch::Http { headers, .. } => {
            !headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"))
        }
        ServerLaunch::Stdio { .. } | ServerLaunch::Shared => false,
    }
}

fn read_servers(settings: &Settings) -> Result<ServerSet, CommandError> {
    let file = GatewayFiles::locate(settings).mcp_config;
    if !file.found {
        return Ok(ServerSet::default());
    }
    let unreadable = |reason: String| {
        let message = format!("`{}` cannot be read: {reason}", file.path.display());
        CommandError::new(ErrorCode::ProjectFileInvalid, message)
    };
    let bytes =
        read_bounded(&file.path, MAX_FILE_BYTES).map_err(|error| unreadable(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| unreadable("it is no text".to_owned()))?;
    ServerSet::parse(&text).map_err(|error| unreadable(error.to_string()))
}
