//! Flags that a `claude` binary supports, parsed from its `--help`: they change with every release.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// Version and flags of one `claude` binary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CliFeatures {
    /// Output of `claude --version` without the product name.
    pub version: String,
    flags: BTreeSet<String>,
}

/// Flags without which an agent cannot be isolated. All of them are listed in `--help`.
const REQUIRED_FLAGS: [&str; 6] = [
    "--input-format",
    "--mcp-config",
    "--setting-sources",
    "--settings",
    "--strict-mcp-config",
    "--tools",
];

impl CliFeatures {
    /// Parses the output of `claude --help` and `claude --version`.
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

    /// Returns `true` if `--help` lists this flag.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.contains(flag)
    }

    /// Returns the required flags that are missing; without them no agent is started.
    pub fn missing_required(&self) -> Vec<&'static str> {
        REQUIRED_FLAGS.into_iter().filter(|flag| !self.has(flag)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: &str = "Usage: claude\n  --add-dir <directories...>  Additional\n  -r, --resume [value]  Resume, see --continue\n  --tools <tools...>\n      text with --not-a-flag\n";

    #[test]
    fn flags_are_read_from_help_and_not_from_prose() {
        let features = CliFeatures::parse(HELP, "2.1.325 (Claude Code)\n");
        assert_eq!(features.version, "2.1.325");
        assert!(features.has("--resume") && features.has("--tools") && features.has("--add-dir"));
        assert!(!features.has("--not-a-flag"));
        assert_eq!(features.missing_required().len(), 5);
    }
}
