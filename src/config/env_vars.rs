//! Every environment variable that Adjutant reads, by name.

/// The project's root; `--root` wins over it.
pub const ADJUTANT_ROOT: &str = "ADJUTANT_ROOT";
/// The `claude` to start instead of the one on the `PATH`.
pub const ADJUTANT_CLAUDE: &str = "ADJUTANT_CLAUDE";
/// The project's root as Claude Code tells its MCP servers and hooks.
pub const CLAUDE_PROJECT_DIR: &str = "CLAUDE_PROJECT_DIR";
