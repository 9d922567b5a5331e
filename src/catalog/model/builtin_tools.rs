//! Names of Claude Code's built-in tools and their aliases.

use crate::util::nearest_names;

/// Names as of Claude Code 2.1. Newer versions may add tools, so an unknown name is only a warning.
const BUILTINS: &[&str] = &[
    "Agent",
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
    "KillBash",
    "KillShell",
    "LS",
    "LSP",
    "ListAgents",
    "ListMcpResources",
    "ListMcpResourcesTool",
    "ListPeers",
    "Monitor",
    "MultiEdit",
    "NotebookEdit",
    "NotebookRead",
    "PowerShell",
    "PushNotification",
    "REPL",
    "Read",
    "ReadMcpResource",
    "ReadMcpResourceTool",
    "RemoteTrigger",
    "ReportFindings",
    "RunWorkflow",
    "ScheduleWakeup",
    "SendMessage",
    "SendUserMessage",
    "Skill",
    "SlashCommand",
    "Task",
    "TaskCreate",
    "TaskGet",
    "TaskList",
    "TaskOutput",
    "TaskStop",
    "TaskUpdate",
    "TeamCreate",
    "TeamDelete",
    "TodoRead",
    "TodoWrite",
    "ToolSearch",
    "WebFetch",
    "WebSearch",
    "Workflow",
    "Write",
];

const ALIASES: &[(&str, &str)] = &[
    ("shell", "Bash"),
    ("read_file", "Read"),
    ("write_file", "Write"),
    ("edit", "Edit"),
    ("glob", "Glob"),
    ("grep", "Grep"),
    ("web_fetch", "WebFetch"),
    ("web_search", "WebSearch"),
];

/// Classification of a tool name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BuiltinTool {
    /// Canonical name of a known tool.
    Known(&'static str),
    /// Unlike any known name; possibly a tool of a newer version.
    Unknown,
    /// Most likely a typo of this known name.
    Misspelled(&'static str),
}

/// Returns the canonical name (`Bash` for `shell`); unknown names are returned unchanged.
pub(crate) fn canonical_builtin(written: &str) -> &str {
    match classify(written) {
        BuiltinTool::Known(name) => name,
        BuiltinTool::Unknown | BuiltinTool::Misspelled(_) => written,
    }
}

/// Classifies a name: exact match, alias, or typo within an edit distance of 2.
pub(crate) fn classify(written: &str) -> BuiltinTool {
    if let Some(known) = BUILTINS.iter().find(|known| **known == written) {
        return BuiltinTool::Known(known);
    }
    if let Some((_, known)) = ALIASES.iter().find(|(alias, _)| *alias == written) {
        return BuiltinTool::Known(known);
    }
    let like = |known: &&&str| {
        known.eq_ignore_ascii_case(written) || strsim::damerau_levenshtein(known, written) <= 1
    };
    if let Some(known) = BUILTINS.iter().find(like) {
        return BuiltinTool::Misspelled(known);
    }
    // Names of at most 4 characters are too short for an edit distance of 2.
    match nearest_names(written, BUILTINS.iter().copied()).first() {
        Some(near) if strsim::damerau_levenshtein(near, written) <= 2 && written.len() > 4 => {
            BUILTINS
                .iter()
                .find(|known| known == &near)
                .map_or(BuiltinTool::Unknown, |known| BuiltinTool::Misspelled(known))
        }
        _ => BuiltinTool::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case("Bash" => BuiltinTool::Known("Bash"))]
    #[test_case("shell" => BuiltinTool::Known("Bash"))]
    #[test_case("bash" => BuiltinTool::Misspelled("Bash"))]
    #[test_case("WebSerch" => BuiltinTool::Misspelled("WebSearch"))]
    #[test_case("Raed" => BuiltinTool::Misspelled("Read"))]
    #[test_case("Hologram" => BuiltinTool::Unknown)]
    fn classifies_names(written: &str) -> BuiltinTool {
        classify(written)
    }
}
