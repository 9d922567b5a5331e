//! Built-in tools of Claude Code: known names, tools that reach other agents, shells, renamed tools.

use super::permission_rules::MCP_PREFIX;

/// Built-in tools that a pattern such as `builtin:*` can grant.
///
/// Tools that a newer `claude` adds are not listed, so existing patterns do not grant them: they must be named.
pub(crate) const KNOWN_BUILTINS: &[&str] = &[
    "AskUserQuestion",
    "Bash",
    "BashOutput",
    "CronCreate",
    "CronDelete",
    "CronList",
    "Edit",
    "EnterPlanMode",
    "EnterWorktree",
    "ExitPlanMode",
    "ExitWorktree",
    "Glob",
    "Grep",
    "KillShell",
    "LS",
    "LSP",
    "ListMcpResourcesTool",
    "Monitor",
    "MultiEdit",
    "NotebookEdit",
    "NotebookRead",
    "Read",
    "ReadMcpResourceTool",
    "ReportFindings",
    "ScheduleWakeup",
    "Skill",
    "TaskCreate",
    "TaskGet",
    "TaskList",
    "TaskOutput",
    "TaskStop",
    "TaskUpdate",
    "TodoWrite",
    "ToolSearch",
    "WebFetch",
    "WebSearch",
    "Write",
];

/// Tools that start or reach other agents; granted only if `tools` names them.
const AGENT_TOOLS: &[&str] = &[
    "Agent",
    "ListAgents",
    "ListPeers",
    "RemoteTrigger",
    "RunWorkflow",
    "SendMessage",
    "SendUserMessage",
    "Task",
    "TeamCreate",
    "TeamDelete",
    "Workflow",
];

/// Tools that run commands: they can change every file that the user can.
///
/// `REPL` (alias `Eval` in 2.1.325) runs JavaScript with shell commands in it (`sh(…)`).
const SHELL_TOOLS: &[&str] = &["Bash", "Eval", "Monitor", "PowerShell", "REPL"];

/// Names of the same tool across releases of `claude`.
const TOOL_ALIASES: &[&[&str]] = &[
    &["Agent", "Task"],
    &["TaskOutput", "AgentOutputTool", "BashOutputTool", "AgentOutput", "BashOutput"],
    &["TaskStop", "KillShell", "KillBash"],
    &["ListMcpResourcesTool", "ListMcpResources"],
    &["ReadMcpResourceTool", "ReadMcpResource"],
    &["Workflow", "RunWorkflow"],
    &["REPL", "Eval"],
];

pub(crate) fn reaches_agents(tool: &str) -> bool {
    AGENT_TOOLS.contains(&tool)
}

pub(crate) fn runs_commands(tool: &str) -> bool {
    SHELL_TOOLS.contains(&tool)
}

/// True for valid names of built-in tools. Other text could add a second tool to `--tools`.
pub(crate) fn is_builtin_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !text.is_empty() && text.chars().all(plain) && !text.starts_with(MCP_PREFIX)
}

/// Returns all current and former names of a tool, `tool` first.
pub(crate) fn all_names(tool: &str) -> impl Iterator<Item = &str> + Clone {
    let others =
        TOOL_ALIASES.iter().find(|names| names.contains(&tool)).copied().unwrap_or_default();
    std::iter::once(tool).chain(others.iter().copied().filter(move |name| *name != tool))
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case("Bash")]
    #[test_case("Monitor")]
    #[test_case("PowerShell")]
    #[test_case("REPL")]
    #[test_case("Eval"; "the name of REPL in newer releases")]
    fn tools_that_run_commands(tool: &str) {
        assert!(runs_commands(tool));
    }

    #[test_case("Read")]
    #[test_case("Write")]
    #[test_case("KillShell")]
    fn tools_that_run_no_commands(tool: &str) {
        assert!(!runs_commands(tool));
    }
}
