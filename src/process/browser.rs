//! The one program that is not held by a keeper: the person's browser.
//!
//! What `xdg-open` starts is the person's own and goes on when Adjutant ends, so no keeper may end it.
//! It gets one argument, no shell in between, and only what a program needs to find the desktop.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// What a browser needs to find the person's desktop.
const VARIABLES: [&str; 18] = [
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

/// Hands an address to the program that the desktop opens addresses with. The error is one line.
pub async fn open_address(address: &str) -> Result<(), String> {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let variables = VARIABLES.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
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
    // It may stay as long as the browser does; nobody waits for it then.
    match tokio::task::spawn_blocking(move || child.wait()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        _ => Err(format!("`{program}` found no browser")),
    }
}
