//! Whether there are credentials for the model, and where. Their values are looked at by nobody here.

use std::env;
use std::path::PathBuf;

/// Variables that sign `claude` in, or say where the model is.
const VARIABLES: [&str; 6] = [
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
];

/// Where the credentials are, in words for a person; `None` where none were found.
pub fn credentials() -> Option<String> {
    let set = |name: &&str| env::var_os(name).is_some_and(|value| !value.is_empty());
    if let Some(name) = VARIABLES.iter().find(|name| set(name)) {
        return Some(format!("the variable {name}"));
    }
    let file = config_dir().join(".credentials.json");
    file.is_file().then(|| format!("the sign-in of Claude Code in `{}`", file.display()))
}

/// Claude Code's configuration folder.
pub fn config_dir() -> PathBuf {
    match env::var_os("CLAUDE_CONFIG_DIR").filter(|value| !value.is_empty()) {
        Some(folder) => folder.into(),
        None => dirs::home_dir().unwrap_or_else(|| PathBuf::from("/")).join(".claude"),
    }
}
