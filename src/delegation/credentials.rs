//! Detection of credentials for the model. Values of variables are only tested for being set.

use std::env;
use std::path::PathBuf;

/// Variables that hold credentials for `claude` or select a provider.
const CREDENTIAL_VARIABLES: [&str; 6] = [
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
];

/// Describes the credentials found, for people; `None` if there are none.
pub(crate) fn find_credentials() -> Option<String> {
    let set = |name: &&str| env::var_os(name).is_some_and(|value| !value.is_empty());
    if let Some(name) = CREDENTIAL_VARIABLES.iter().find(|name| set(name)) {
        return Some(format!("the variable {name}"));
    }
    let file = claude_config_dir().join(".credentials.json");
    file.is_file().then(|| format!("the sign-in of Claude Code in `{}`", file.display()))
}

/// Returns Claude Code's configuration directory: `CLAUDE_CONFIG_DIR`, or `~/.claude`.
pub(crate) fn claude_config_dir() -> PathBuf {
    match env::var_os("CLAUDE_CONFIG_DIR").filter(|value| !value.is_empty()) {
        Some(folder) => folder.into(),
        None => dirs::home_dir().unwrap_or_else(|| PathBuf::from("/")).join(".claude"),
    }
}
