//! The built-in tools of Claude Code, by their names and by the names other tools give them.

use crate::base::nearest;

/// Names seen in Claude Code 2.1. A newer one may have others, so an unlike name is only doubted.
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

/// What a written name of a built-in tool turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Builtin {
    /// A known tool, by its own name.
    Known(&'static str),
    /// Unlike any known one: perhaps of a newer version.
    Unknown,
    /// So like a known one that it is a slip of the pen.
    Misspelt(&'static str),
}

/// The name that a built-in tool has itself: `Bash` for `shell`, and any other name as it is.
pub fn canonical_builtin(written: &str) -> &str {
    match recognize(written) {
        Builtin::Known(name) => name,
        Builtin::Unknown | Builtin::Misspelt(_) => written,
    }
}

/// The tool behind a written name.
pub(super) fn recognize(written: &str) -> Builtin {
    if let Some(known) = BUILTINS.iter().find(|known| **known == written) {
        return Builtin::Known(known);
    }
    if let Some((_, known)) = ALIASES.iter().find(|(alias, _)| *alias == written) {
        return Builtin::Known(known);
    }
    let like = |known: &&&str| {
        known.eq_ignore_ascii_case(written) || strsim::damerau_levenshtein(known, written) <= 1
    };
    if let Some(known) = BUILTINS.iter().find(like) {
        return Builtin::Misspelt(known);
    }
    // Short names resemble each other by chance.
    match nearest(written, BUILTINS.iter().copied()).first() {
        Some(near) if strsim::damerau_levenshtein(near, written) <= 2 && written.len() > 4 => {
            BUILTINS
                .iter()
                .find(|known| known == &near)
                .map_or(Builtin::Unknown, |known| Builtin::Misspelt(known))
        }
        _ => Builtin::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case("Bash" => Builtin::Known("Bash"))]
    #[test_case("shell" => Builtin::Known("Bash"))]
    #[test_case("bash" => Builtin::Misspelt("Bash"))]
    #[test_case("WebSerch" => Builtin::Misspelt("WebSearch"))]
    #[test_case("Raed" => Builtin::Misspelt("Read"))]
    #[test_case("Hologram" => Builtin::Unknown)]
    fn names(written: &str) -> Builtin {
        recognize(written)
    }
}
