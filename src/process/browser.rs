//! Opens a URL in the user's browser, the only program without a supervisor.
//!
//! `xdg-open` may start the browser itself, which must survive Adjutant. It gets one argument, no shell, and only the
//! environment variables that it needs to find the desktop.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Environment variables passed to the browser.
const PASSED_VARIABLES: [&str; 18] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "TZ",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_RUNTIME_DIR",
    "XDG_CURRENT_DESKTOP",
    "XDG_SESSION_TYPE",
    "XDG_DATA_DIRS",
    "XDG_DATA_HOME",
    "XDG_CONFIG_HOME",
    "XDG_CONFIG_DIRS",
    "DBUS_SESSION_BUS_ADDRESS",
];

/// Opens a URL with `xdg-open` (`open` on macOS) and waits for the exit of that program.
///
/// # Errors
///
/// A one-line message, if the program cannot be started or exits with an error.
pub(crate) async fn open_url(address: &str) -> Result<(), String> {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let variables =
        PASSED_VARIABLES.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    let mut child = Command::new(program)
        .arg(address)
        .env_clear()
        .envs(variables)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Ctrl-C in the terminal is meant for us, not for the browser.
        .process_group(0)
        .spawn()
        .map_err(|error| format!("`{program}` cannot be started: {error}"))?;
    // `xdg-open` may live as long as the browser; dropping the future does not kill it.
    match tokio::task::spawn_blocking(move || child.wait()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        _ => Err(format!("`{program}` found no browser")),
    }
}
