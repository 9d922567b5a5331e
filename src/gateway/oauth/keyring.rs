//! The keyring of the desktop, through the program that the system has for it.
//!
//! `secret-tool` (libsecret) on Linux and `security` on macOS are what the keyring's own people
//! maintain. A library for the same would bring a D-Bus client of a hundred crates or a C library, for
//! something that most servers and containers do not have. A keyring that is locked, or a desktop that
//! is not there, makes these programs wait for a person: they have a few seconds.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::base::RunId;
use crate::config::env_vars;
use crate::worker::{self, Launch, Links, ProcessEnd, Urgency};

/// A keyring that is open answers within milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);
const LARGEST: u64 = 1024 * 1024;
/// What these programs need to find the desktop.
const VARIABLES: [&str; 9] = [
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

/// Which keyring there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keyring {
    None,
    SecretTool,
    Security,
}

impl Keyring {
    /// The one of this desktop, if there is a desktop and `ADJUTANT_KEYRING` does not say `off`.
    pub(super) fn of_desktop() -> Self {
        if env::var(env_vars::ADJUTANT_KEYRING).is_ok_and(|word| word.eq_ignore_ascii_case("off")) {
            return Self::None;
        }
        if cfg!(target_os = "macos") {
            return Self::Security;
        }
        match has_session_bus() && is_installed("secret-tool") {
            true => Self::SecretTool,
            false => Self::None,
        }
    }

    /// Keeps `secret` under `id`; false where there is no keyring.
    pub(super) async fn store(self, id: &str, secret: &str) -> Result<bool, String> {
        let (arguments, input) = match self {
            Self::None => return Ok(false),
            Self::SecretTool => (
                vec!["store", "--label=Adjutant sign-in", "service", "adjutant", "account", id],
                secret.to_owned(),
            ),
            // Commands on its stdin: an argument could be read by others.
            Self::Security => (
                vec!["-i"],
                format!(
                    "add-generic-password -U -s adjutant -a {id} -X {}\n",
                    hexadecimal(secret.as_bytes())
                ),
            ),
        };
        self.run(&arguments, &input).await?;
        Ok(true)
    }

    /// What is kept under `id`.
    pub(super) async fn look_up(self, id: &str) -> Result<Option<String>, String> {
        let arguments = match self {
            Self::None => {
                return Err("the sign-in is kept in a keyring, and there is none here".to_owned());
            }
            Self::SecretTool => vec!["lookup", "service", "adjutant", "account", id],
            Self::Security => vec!["find-generic-password", "-s", "adjutant", "-a", id, "-w"],
        };
        let text = self.run(&arguments, "").await?;
        let text = text.trim_end_matches('\n');
        Ok((!text.is_empty()).then(|| text.to_owned()))
    }

    /// Forgets what is kept under `id`.
    pub(super) async fn clear(self, id: &str) -> Result<(), String> {
        let arguments = match self {
            Self::None => return Ok(()),
            Self::SecretTool => vec!["clear", "service", "adjutant", "account", id],
            Self::Security => vec!["delete-generic-password", "-s", "adjutant", "-a", id],
        };
        self.run(&arguments, "").await.map(drop)
    }

    fn program(self) -> &'static str {
        match self {
            Self::Security => "security",
            Self::None | Self::SecretTool => "secret-tool",
        }
    }

    /// Runs the program within its few seconds and returns what it wrote.
    async fn run(self, arguments: &[&str], input: &str) -> Result<String, String> {
        let program = self.program();
        let variables = VARIABLES.iter();
        let launch = Launch {
            label: program.to_owned(),
            run: RunId::new(),
            program: program.into(),
            arguments: arguments.iter().map(OsString::from).collect(),
            environment: variables
                .filter_map(|name| Some((OsString::from(name), env::var_os(name)?)))
                .collect(),
            folder: "/".into(),
            links: Links::Follow,
        };
        let mut process = worker::start(launch).await.map_err(|error| error.to_string())?;
        let (stdin, stdout) = (process.stdin.take(), process.stdout.take());
        let talk = async {
            if let Some(mut stdin) = stdin {
                let _ = stdin.write_all(input.as_bytes()).await;
            }
            let mut said = String::new();
            if let Some(stdout) = stdout {
                let _ = stdout.take(LARGEST).read_to_string(&mut said).await;
            }
            (process.wait().await, said)
        };
        let talked = timeout(PATIENCE, talk).await;
        match talked {
            Ok((ProcessEnd::Exited(0), said)) => Ok(said),
            // Nothing is kept under that name.
            Ok((ProcessEnd::Exited(1), said)) if input.is_empty() && said.is_empty() => Ok(said),
            Ok(_) => Err(format!("the keyring refused (`{program}` failed)")),
            Err(_) => {
                process.end(Urgency::Now).await;
                let waited = PATIENCE.as_secs();
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

fn hexadecimal(bytes: &[u8]) -> String {
    let digits =
        |byte: &u8| [byte >> 4, byte & 15].map(|half| char::from_digit(u32::from(half), 16));
    bytes.iter().flat_map(digits).flatten().collect()
}
