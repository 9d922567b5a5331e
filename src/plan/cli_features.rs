//! What a `claude` binary can do, read from its own help: flags come and go with every release.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// The flags and the version of one `claude` binary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features {
    /// What `claude --version` says, without the product's name.
    pub version: String,
    flags: BTreeSet<String>,
}

/// Flags without which an agent cannot be kept apart from its surroundings; all of them are in `--help`.
const NEEDED: [&str; 6] = [
    "--input-format",
    "--mcp-config",
    "--setting-sources",
    "--settings",
    "--strict-mcp-config",
    "--tools",
];

impl Features {
    /// Reads the output of `claude --help` and `claude --version`.
    pub fn parse(help: &str, version: &str) -> Self {
        let is_flag = |word: &&str| word.len() > 2 && word.starts_with("--");
        let flags = help
            .lines()
            .filter(|line| line.trim_start().starts_with('-'))
            .flat_map(|line| line.split([' ', ',']).take_while(|word| !word.starts_with('<')))
            .filter(is_flag)
            .map(str::to_owned)
            .collect();
        let version = version.split_whitespace().next().unwrap_or_default().to_owned();
        Self { version, flags }
    }

    /// Whether `--help` names this flag.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.contains(flag)
    }

    /// The flags that are missing and without which no agent is started.
    pub fn missing(&self) -> Vec<&'static str> {
        NEEDED.into_iter().filter(|flag| !self.has(flag)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: &str = "Usage: claude\n  --add-dir <directories...>  Additional\n  -r, --resume [value]  Resume, see --continue\n  --tools <tools...>\n      text with --not-a-flag\n";

    #[test]
    fn flags_are_read_from_help_and_not_from_prose() {
        let features = Features::parse(HELP, "2.1.325 (Claude Code)\n");
        assert_eq!(features.version, "2.1.325");
        assert!(features.has("--resume") && features.has("--tools") && features.has("--add-dir"));
        assert!(!features.has("--not-a-flag"));
        assert_eq!(features.missing().len(), 5);
    }
}
