//! Claude Code's built-in tools by name: which a pattern may grant, which reach other agents, which were renamed.

use super::permission::MCP_PREFIX;

/// The built-in tools that a pattern such as `builtin:*` can grant.
///
/// A tool that a newer `claude` adds is not here, so that no pattern written before it existed grants it:
/// it has to be named.
pub const KNOWN_BUILTINS: &[&str] = &[
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

/// Tools that start or reach other agents: granted only where `tools` names them.
const SPAWNING: &[&str] = &[
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

/// Names for one and the same tool, over the releases of `claude`.
const RENAMED: &[&[&str]] = &[
    &["Agent", "Task"],
    &["TaskOutput", "AgentOutputTool", "BashOutputTool", "AgentOutput", "BashOutput"],
    &["TaskStop", "KillShell", "KillBash"],
    &["ListMcpResourcesTool", "ListMcpResources"],
    &["ReadMcpResourceTool", "ReadMcpResource"],
    &["Workflow", "RunWorkflow"],
];

/// Whether a tool starts or reaches other agents.
pub fn reaches_agents(tool: &str) -> bool {
    SPAWNING.contains(&tool)
}

/// Whether a text can be a built-in tool's name. Anything else could smuggle a second tool into `--tools`.
pub(super) fn is_builtin_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !text.is_empty() && text.chars().all(plain) && !text.starts_with(MCP_PREFIX)
}

/// Every name a tool has or had, its own first.
pub(super) fn names_of(tool: &str) -> impl Iterator<Item = &str> + Clone {
    let others = RENAMED.iter().find(|names| names.contains(&tool)).copied().unwrap_or_default();
    std::iter::once(tool).chain(others.iter().copied().filter(move |name| *name != tool))
}
