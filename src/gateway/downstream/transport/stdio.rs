//! Child process of a stdio server: minimal environment, exit described in words.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

use super::super::notifications::ServerLogWriter;
use crate::process::{
    ProcessEnd, ProcessHandle, ProcessSpec as ProcessLaunch, StopMode, SymlinkPolicy, spawn_process,
};
use crate::util::{RunId, one_line};

/// Environment variables that a server inherits.
///
/// Enough to find programs and to select the language; nothing that changes what a program does or holds a secret.
const INHERITED_VARIABLES: [&str; 12] = [
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

/// Time from SIGTERM to SIGKILL.
const KILL_GRACE_PERIOD: Duration = Duration::from_millis(500);
/// Characters of stderr that an exit reason quotes.
const MAX_QUOTED_STDERR_CHARS: usize = 400;

/// Program, arguments and environment of a stdio server.
///
/// `Debug` prints only the program, because the rest can be secret.
pub(crate) struct StdioCommand {
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) variables: BTreeMap<String, String>,
    pub(crate) dir: PathBuf,
}

impl fmt::Debug for StdioCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launch").field("program", &self.program).finish_non_exhaustive()
    }
}

/// The process of a server; dropping it kills the process and its descendants.
pub(crate) struct ServerProcess(ProcessHandle);

impl ServerProcess {
    /// Starts the process and returns its stdout and stdin. Stderr goes to the log. The error is one line.
    pub(crate) async fn start(
        server: &str,
        launch: &StdioCommand,
        log: ServerLogWriter,
    ) -> Result<(Self, impl AsyncRead + Send + use<>, impl AsyncWrite + Send + use<>), String> {
        let started = spawn_process(ProcessLaunch {
            label: server.to_owned(),
            run: RunId::new(),
            program: PathBuf::from(&launch.program),
            arguments: launch.arguments.iter().map(OsString::from).collect(),
            environment: environment(&launch.variables),
            working_dir: launch.dir.clone(),
            symlinks: SymlinkPolicy::Follow,
        });
        let mut process = started.await.map_err(|error| error.to_string())?;
        process.tap_stderr(log.into_stderr_callback());
        match (process.stdout.take(), process.stdin.take()) {
            (Some(stdout), Some(stdin)) => Ok((Self(process), stdout, stdin)),
            _ => Err("its process has no pipes".to_owned()),
        }
    }

    /// Waits for the exit and describes it.
    pub(crate) async fn wait(&mut self) -> String {
        let end = self.0.wait().await;
        self.describe_end(end)
    }

    /// Sends SIGTERM, after 500 ms SIGKILL, and describes the exit. Stdin must be closed already.
    pub(crate) async fn stop(&mut self) -> String {
        let end = self.0.stop(StopMode::Graceful { grace: KILL_GRACE_PERIOD }).await;
        self.describe_end(end)
    }

    fn describe_end(&self, end: ProcessEnd) -> String {
        let how = match end {
            ProcessEnd::Exited(code) => format!("it exited with code {code}"),
            ProcessEnd::Signaled(signal) => format!("it was ended by signal {signal}"),
            ProcessEnd::Lost => "it ended with its supervisor".to_owned(),
        };
        match quoted_stderr(&self.0.stderr_tail()) {
            Some(words) => format!("{how}; its last words: {words}"),
            None => how,
        }
    }
}

fn environment(variables: &BTreeMap<String, String>) -> Vec<(OsString, OsString)> {
    let inherited = INHERITED_VARIABLES
        .iter()
        .filter(|name| !variables.contains_key(**name))
        .filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)));
    let configured = variables.iter().map(|(name, value)| (name.into(), value.into()));
    inherited.chain(configured).collect()
}

fn quoted_stderr(stderr: &str) -> Option<String> {
    let text = one_line(stderr);
    let surplus = text.chars().count().saturating_sub(MAX_QUOTED_STDERR_CHARS);
    let end: String = text.chars().skip(surplus).collect();
    (!end.is_empty()).then_some(end)
}
