//! A server's process: a minimal environment, and the end of it said in words.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

use super::client_side::ServerLog;
use crate::base::{RunId, one_line};
use crate::worker::{self, Process, ProcessEnd, Urgency};

/// What a child may have of our environment without asking: enough to find programs and speak
/// the user's language, nothing that changes what a program does or holds a secret.
const INHERITED: [&str; 12] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "TERM",
    "XDG_RUNTIME_DIR",
];

/// From SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_millis(500);
/// The end of stderr that is part of a reason.
const LAST_WORDS: usize = 400;

/// What to start. Prints only the program: arguments and variables may be secrets.
pub(super) struct Launch {
    pub(super) program: String,
    pub(super) arguments: Vec<String>,
    pub(super) variables: BTreeMap<String, String>,
    pub(super) folder: PathBuf,
}

impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launch").field("program", &self.program).finish_non_exhaustive()
    }
}

/// A server's process; it and all it started end when this is dropped.
pub(super) struct ServerProcess(Process);

impl ServerProcess {
    /// Starts it and returns its pipes; the error is one line. Its stderr goes to the log.
    pub(super) async fn start(
        server: &str,
        launch: &Launch,
        log: ServerLog,
    ) -> Result<(Self, impl AsyncRead + Send + use<>, impl AsyncWrite + Send + use<>), String> {
        let started = worker::start(worker::Launch {
            label: server.to_owned(),
            run: RunId::new(),
            program: PathBuf::from(&launch.program),
            arguments: launch.arguments.iter().map(OsString::from).collect(),
            environment: environment(&launch.variables),
            folder: launch.folder.clone(),
            links: worker::Links::Follow,
        });
        let mut process = started.await.map_err(|error| error.to_string())?;
        process.tap_stderr(log.tap());
        match (process.stdout.take(), process.stdin.take()) {
            (Some(stdout), Some(stdin)) => Ok((Self(process), stdout, stdin)),
            _ => Err("its process has no pipes".to_owned()),
        }
    }

    /// Waits for its end and says how it was.
    pub(super) async fn wait(&mut self) -> String {
        let end = self.0.wait().await;
        self.describe(end)
    }

    /// Ends it; its stdin is closed already.
    pub(super) async fn end(&mut self) -> String {
        let end = self.0.end(Urgency::Polite { grace: GRACE }).await;
        self.describe(end)
    }

    fn describe(&self, end: ProcessEnd) -> String {
        let how = match end {
            ProcessEnd::Exited(code) => format!("it exited with code {code}"),
            ProcessEnd::Signaled(signal) => format!("it was ended by signal {signal}"),
            ProcessEnd::Lost => "it ended with its keeper".to_owned(),
        };
        match last_words(&self.0.stderr_tail()) {
            Some(words) => format!("{how}; its last words: {words}"),
            None => how,
        }
    }
}

fn environment(variables: &BTreeMap<String, String>) -> Vec<(OsString, OsString)> {
    let inherited = INHERITED
        .iter()
        .filter(|name| !variables.contains_key(**name))
        .filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)));
    let configured = variables.iter().map(|(name, value)| (name.into(), value.into()));
    inherited.chain(configured).collect()
}

fn last_words(stderr: &str) -> Option<String> {
    let text = one_line(stderr);
    let surplus = text.chars().count().saturating_sub(LAST_WORDS);
    let end: String = text.chars().skip(surplus).collect();
    (!end.is_empty()).then_some(end)
}
