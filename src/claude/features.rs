//! What this `claude` can do, as far as its `--help` and `--version` tell.
//!
//! Options come and go between releases, and an unknown one ends the CLI at once with
//! `error: unknown option '--…'` on stderr. Some work on both versions that were tried but are in
//! no `--help`: those count as there. `--permission-mode default` is taken by both, although the
//! help of 2.1.325 calls it `manual` (which 2.1.197 refuses).

use std::collections::BTreeSet;
use std::fmt;

/// An option that a launch may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flag {
    /// `--tools`: which built-in tools exist.
    Tools,
    /// `--setting-sources`: whose settings are read.
    SettingSources,
    /// `--strict-mcp-config`: no MCP servers but those given.
    StrictMcpConfig,
    /// `--mcp-config`.
    McpConfig,
    /// `--settings`.
    Settings,
    /// `--permission-mode`.
    PermissionMode,
    /// `--permission-prompt-tool`; hidden.
    PermissionPromptTool,
    /// `--permission-prompts`: new in 2.1.325.
    PermissionPrompts,
    /// `--restricted`: new in 2.1.325.
    Restricted,
    /// `--system-prompt-file`; hidden.
    SystemPromptFile,
    /// `--append-system-prompt-file`; hidden.
    AppendSystemPromptFile,
    /// `--exclude-dynamic-system-prompt-sections`.
    ExcludeDynamicSystemPromptSections,
    /// `--no-session-persistence`.
    NoSessionPersistence,
    /// `--session-id`.
    SessionId,
    /// `--resume`.
    Resume,
    /// `--fork-session`.
    ForkSession,
    /// `--json-schema`.
    JsonSchema,
    /// `--max-budget-usd`.
    MaxBudgetUsd,
    /// `--max-turns`; hidden.
    MaxTurns,
    /// `--model`.
    Model,
    /// `--fallback-model`.
    FallbackModel,
    /// `--effort`.
    Effort,
    /// `--add-dir`.
    AddDir,
    /// `--disable-slash-commands`.
    DisableSlashCommands,
    /// `--include-partial-messages`.
    IncludePartialMessages,
    /// `--replay-user-messages`.
    ReplayUserMessages,
    /// `--input-format`, without which there is no conversation at all.
    InputFormat,
}

impl Flag {
    /// All of them.
    pub const ALL: [Self; 27] = [
        Self::Tools,
        Self::SettingSources,
        Self::StrictMcpConfig,
        Self::McpConfig,
        Self::Settings,
        Self::PermissionMode,
        Self::PermissionPromptTool,
        Self::PermissionPrompts,
        Self::Restricted,
        Self::SystemPromptFile,
        Self::AppendSystemPromptFile,
        Self::ExcludeDynamicSystemPromptSections,
        Self::NoSessionPersistence,
        Self::SessionId,
        Self::Resume,
        Self::ForkSession,
        Self::JsonSchema,
        Self::MaxBudgetUsd,
        Self::MaxTurns,
        Self::Model,
        Self::FallbackModel,
        Self::Effort,
        Self::AddDir,
        Self::DisableSlashCommands,
        Self::IncludePartialMessages,
        Self::ReplayUserMessages,
        Self::InputFormat,
    ];

    /// As it is written on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tools => "--tools",
            Self::SettingSources => "--setting-sources",
            Self::StrictMcpConfig => "--strict-mcp-config",
            Self::McpConfig => "--mcp-config",
            Self::Settings => "--settings",
            Self::PermissionMode => "--permission-mode",
            Self::PermissionPromptTool => "--permission-prompt-tool",
            Self::PermissionPrompts => "--permission-prompts",
            Self::Restricted => "--restricted",
            Self::SystemPromptFile => "--system-prompt-file",
            Self::AppendSystemPromptFile => "--append-system-prompt-file",
            Self::ExcludeDynamicSystemPromptSections => "--exclude-dynamic-system-prompt-sections",
            Self::NoSessionPersistence => "--no-session-persistence",
            Self::SessionId => "--session-id",
            Self::Resume => "--resume",
            Self::ForkSession => "--fork-session",
            Self::JsonSchema => "--json-schema",
            Self::MaxBudgetUsd => "--max-budget-usd",
            Self::MaxTurns => "--max-turns",
            Self::Model => "--model",
            Self::FallbackModel => "--fallback-model",
            Self::Effort => "--effort",
            Self::AddDir => "--add-dir",
            Self::DisableSlashCommands => "--disable-slash-commands",
            Self::IncludePartialMessages => "--include-partial-messages",
            Self::ReplayUserMessages => "--replay-user-messages",
            Self::InputFormat => "--input-format",
        }
    }

    /// Works on 2.1.197 and 2.1.325 without being in their help.
    fn is_hidden(self) -> bool {
        matches!(
            self,
            Self::PermissionPromptTool
                | Self::SystemPromptFile
                | Self::AppendSystemPromptFile
                | Self::MaxTurns
        )
    }
}

/// A version of the CLI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
    /// The third number.
    pub patch: u32,
}

impl Version {
    /// The first `a.b.c` in a text such as `2.1.325 (Claude Code)`.
    pub fn parse(text: &str) -> Option<Self> {
        text.split_whitespace().find_map(|word| {
            let mut numbers = word.trim_start_matches('v').splitn(3, '.');
            let major = numbers.next()?.parse().ok()?;
            let minor = numbers.next()?.parse().ok()?;
            let patch = numbers.next()?;
            let digits = patch.split(|c: char| !c.is_ascii_digit()).next()?;
            Some(Self { major, minor, patch: digits.parse().ok()? })
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// What one `claude` can do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    version: Option<Version>,
    flags: BTreeSet<Flag>,
}

impl Features {
    /// Reads the texts of `claude --help` and `claude --version`.
    pub fn parse(help: &str, version: &str) -> Self {
        let listed: BTreeSet<&str> = help
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
            .filter(|word| word.starts_with("--"))
            .collect();
        let is_claude = listed.contains(Flag::InputFormat.name());
        let flags = Flag::ALL
            .into_iter()
            .filter(|flag| listed.contains(flag.name()) || (is_claude && flag.is_hidden()))
            .collect();
        Self { version: Version::parse(version), flags }
    }

    /// Everything there is, for a plan that is only shown.
    pub fn all() -> Self {
        Self { version: None, flags: Flag::ALL.into_iter().collect() }
    }

    /// Its version, where it told one.
    pub fn version(&self) -> Option<Version> {
        self.version
    }

    /// Whether it has this option.
    pub fn has(&self, flag: Flag) -> bool {
        self.flags.contains(&flag)
    }

    /// The options that Adjutant cannot do without and this `claude` has not.
    pub fn missing(&self) -> Vec<Flag> {
        // Without these an agent would get rights of its surroundings, or could not be talked to.
        const NEEDED: [Flag; 6] = [
            Flag::InputFormat,
            Flag::Tools,
            Flag::SettingSources,
            Flag::StrictMcpConfig,
            Flag::Settings,
            Flag::PermissionPromptTool,
        ];
        NEEDED.into_iter().filter(|flag| !self.has(*flag)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    // The lines of the real help that matter, with its habit of naming other options in the text.
    const HELP_2_1_197: &str = "
  --add-dir <directories...>            Additional directories
  --bare                                … via: --system-prompt[-file], --mcp-config, --settings
  --input-format <format>               Input format (only works with --print):
  --setting-sources <sources>           Comma-separated list
  --settings <file-or-json>             Path to a settings JSON file
  --strict-mcp-config                   Only use MCP servers from --mcp-config,
  --tools <tools...>                    Specify the list";

    #[test]
    fn options_are_found_in_the_help() {
        let features = Features::parse(HELP_2_1_197, "2.1.197 (Claude Code)\n");
        assert!(features.has(Flag::Tools) && features.has(Flag::AddDir));
        assert!(features.has(Flag::MaxTurns), "it works, although the help hides it");
        assert!(!features.has(Flag::Restricted) && !features.has(Flag::PermissionPrompts));
        assert_eq!(features.missing(), []);
        assert_eq!(features.version(), Some(Version { major: 2, minor: 1, patch: 197 }));
    }

    #[test]
    fn another_program_has_nothing() {
        let features = Features::parse("Usage: cat [--show-all] [FILE]", "cat (GNU) 9.4");
        assert_eq!(features, Features::default());
        assert_eq!(features.missing().len(), 6);
    }

    #[test]
    fn a_longer_name_is_another_option() {
        let features = Features::parse("--tools-extra --input-format", "");
        assert!(!features.has(Flag::Tools));
    }

    #[test_case("2.1.325 (Claude Code)", Some("2.1.325"))]
    #[test_case("claude v3.0.1-beta.2", Some("3.0.1"))]
    #[test_case("1.2", None)]
    #[test_case("", None)]
    fn versions(text: &str, version: Option<&str>) {
        assert_eq!(Version::parse(text).map(|v| v.to_string()).as_deref(), version);
    }

    #[test]
    fn versions_are_ordered_by_number() {
        assert!(Version::parse("2.1.325") > Version::parse("2.1.197"));
        assert!(Version::parse("2.1.1000") > Version::parse("2.1.325"));
    }
}
