//! Desktop keyring, through `secret-tool` (libsecret) on Linux and `security` on macOS.
//!
//! Both programs are maintained together with the keyring. A library would add a D-Bus client with about 100 crates, or
//! a C library, for a feature that servers and containers do not have. A locked keyring or a missing desktop makes
//! these programs wait for a person, so they are killed after 5 s.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::config::env_vars;
use crate::process::{ProcessEnd, ProcessSpec, StopMode, SymlinkPolicy, spawn_process};
use crate::util::RunId;

/// Timeout of a keyring program; an unlocked keyring answers within milliseconds.
const KEYRING_TIMEOUT: Duration = Duration::from_secs(5);
const NO_KEYRING: &str = "the sign-in is kept in a keyring, and there is none here";
const MAX_SECRET_BYTES: u64 = 1024 * 1024;
/// Environment variables with which these programs find the desktop.
const INHERITED_VARIABLES: [&str; 9] = [
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
    "XAUTHORITY",
];

/// Available keyring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keyring {
    None,
    SecretTool,
    Security,
}

impl Keyring {
    /// Returns the keyring for new sign-ins; none if `ADJUTANT_KEYRING` is `off`.
    pub(crate) fn of_desktop() -> Self {
        if env::var(env_vars::ADJUTANT_KEYRING).is_ok_and(|word| word.eq_ignore_ascii_case("off")) {
            return Self::None;
        }
        Self::installed()
    }

    fn installed() -> Self {
        if cfg!(target_os = "macos") {
            return Self::Security;
        }
        match has_session_bus() && is_installed("secret-tool") {
            true => Self::SecretTool,
            false => Self::None,
        }
    }

    /// Stores `secret` under `id`; returns false without a keyring.
    pub(crate) async fn store(self, id: &str, secret: &str) -> Result<bool, String> {
        let (arguments, input) = match self {
            Self::None => return Ok(false),
            Self::SecretTool => (
                vec!["store", "--label=Adjutant sign-in", "service", "adjutant", "account", id],
                secret.to_owned(),
            ),
            // On stdin: other users can read the arguments of a process.
            Self::Security => (
                vec!["-i"],
                format!(
                    "add-generic-password -U -s adjutant -a {id} -X {}\n",
                    to_hex(secret.as_bytes())
                ),
            ),
        };
        self.run(&arguments, &input).await?;
        Ok(true)
    }

    /// Returns the secret stored under `id`.
    pub(crate) async fn look_up(self, id: &str) -> Result<Option<String>, String> {
        let arguments = match self {
            Self::None => return Err(NO_KEYRING.to_owned()),
            Self::SecretTool => vec!["lookup", "service", "adjutant", "account", id],
            Self::Security => vec!["find-generic-password", "-s", "adjutant", "-a", id, "-w"],
        };
        let text = self.run(&arguments, "").await?;
        let text = text.trim_end_matches('\n');
        Ok((!text.is_empty()).then(|| text.to_owned()))
    }

    /// Deletes the secret stored under `id`, even if `ADJUTANT_KEYRING` is `off` by now.
    pub(crate) async fn clear(id: &str) -> Result<(), String> {
        let keyring = Self::installed();
        let arguments = match keyring {
            Self::None => return Err(NO_KEYRING.to_owned()),
            Self::SecretTool => vec!["clear", "service", "adjutant", "account", id],
            Self::Security => vec!["delete-generic-password", "-s", "adjutant", "-a", id],
        };
        keyring.run(&arguments, "").await.map(drop)
    }

    fn program(self) -> &'static str {
        match self {
            Self::Security => "security",
            Self::None | Self::SecretTool => "secret-tool",
        }
    }

    /// Runs the keyring program for at most 5 s and returns its stdout.
    async fn run(self, arguments: &[&str], input: &str) -> Result<String, String> {
        let program = self.program();
        let variables = INHERITED_VARIABLES.iter();
        let launch = ProcessSpec {
            label: program.to_owned(),
            run: RunId::new(),
            program: program.into(),
            arguments: arguments.iter().map(OsString::from).collect(),
            environment: variables
                .filter_map(|name| Some((OsString::from(name), env::var_os(name)?)))
                .collect(),
            working_dir: "/".into(),
            symlinks: SymlinkPolicy::Follow,
        };
        let mut process = spawn_process(launch).await.map_err(|error| error.to_string())?;
        let (stdin, stdout) = (process.stdin.take(), process.stdout.take());
        let talk = async {
            if let Some(mut stdin) = stdin {
                let _ = stdin.write_all(input.as_bytes()).await;
            }
            let mut said = String::new();
            if let Some(stdout) = stdout {
                let _ = stdout.take(MAX_SECRET_BYTES).read_to_string(&mut said).await;
            }
            (process.wait().await, said)
        };
        let talked = timeout(KEYRING_TIMEOUT, talk).await;
        match talked {
            Ok((ProcessEnd::Exited(0), said)) => Ok(said),
            // Exit code 1 without output: no secret with that id.
            Ok((ProcessEnd::Exited(1), said)) if input.is_empty() && said.is_empty() => Ok(said),
            Ok(_) => Err(format!("the keyring refused (`{program}` failed)")),
            Err(_) => {
                process.stop(StopMode::Kill).await;
                let waited = KEYRING_TIMEOUT.as_secs();
                Err(format!("the keyring did not answer within {waited} s (is it locked?)"))
            }
        }
    }
}

fn has_session_bus() -> bool {
    let named = env::var_os("DBUS_SESSION_BUS_ADDRESS").is_some_and(|address| !address.is_empty());
    let usual =
        || env::var_os("XDG_RUNTIME_DIR").is_some_and(|dir| Path::new(&dir).join("bus").exists());
    named || usual()
}

fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn to_hex(bytes: &[u8]) -> String {
    let digits =
        |byte: &u8| [byte >> 4, byte & 15].map(|half| char::from_digit(u32::from(half), 16));
    bytes.iter().flat_map(digits).flatten().collect()
}
