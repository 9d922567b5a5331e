//! Decision on one concrete call of a built-in tool, such as `Bash(git push)`, without running it.
//!
//! Whole tools are decided by Adjutant, the text in the parentheses of a permission rule by Claude Code. The answers here are
//! those on which all supported versions of Claude Code agree; `tests/it/explain_calls.rs` compares them. Everything else,
//! such as commands with shell syntax, is [`CallDecision::Undetermined`] and never guessed.

use super::agent_decision::evaluate_builtin;
use super::builtin_tools::{all_names, runs_commands};
use super::verdict::{AccessRequest, Decision, Resource, Rule, Verdict, quote};
use crate::catalog::{Agent, RuleText};
use crate::util::Pattern;

/// Programs that Claude Code starts without a rule, at least with some arguments: they read.
const READING_PROGRAMS: &[&str] = &[
    "[",
    "ag",
    "alias",
    "arch",
    "awk",
    "base64",
    "basename",
    "cal",
    "cat",
    "cd",
    "cmp",
    "column",
    "comm",
    "cut",
    "date",
    "df",
    "diff",
    "dirname",
    "docker",
    "du",
    "echo",
    "egrep",
    "expand",
    "expr",
    "false",
    "fd",
    "fdfind",
    "fgrep",
    "file",
    "find",
    "fmt",
    "fold",
    "free",
    "getconf",
    "gh",
    "grep",
    "groups",
    "head",
    "help",
    "hexdump",
    "history",
    "hostname",
    "id",
    "ifconfig",
    "info",
    "ip",
    "jq",
    "less",
    "locale",
    "ls",
    "lsof",
    "man",
    "md5sum",
    "more",
    "netstat",
    "nl",
    "nproc",
    "numfmt",
    "od",
    "paste",
    "pgrep",
    "pr",
    "printf",
    "ps",
    "pwd",
    "pyright",
    "readlink",
    "realpath",
    "rev",
    "rg",
    "sed",
    "seq",
    "sha1sum",
    "sha256sum",
    "sleep",
    "sort",
    "ss",
    "stat",
    "strings",
    "tac",
    "tail",
    "test",
    "tput",
    "tr",
    "tree",
    "true",
    "tsort",
    "type",
    "uname",
    "unexpand",
    "uniq",
    "uptime",
    "wc",
    "which",
    "whoami",
    "xxd",
    ":",
];

/// Programs of which Claude Code checks the paths in the arguments, also where a rule allows the program.
const PATH_CHECKED_PROGRAMS: &[&str] =
    &["chmod", "chown", "cp", "ln", "mkdir", "mv", "rm", "rmdir", "tee", "touch"];

/// Programs that start another program; Claude Code looks at that one.
const WRAPPERS: &[&str] =
    &["builtin", "command", "env", "exec", "nice", "nohup", "stdbuf", "time", "timeout", "xargs"];

/// Subcommands of `git` that change something, so that they need a rule.
const CHANGING_GIT_COMMANDS: &[&str] = &[
    "add",
    "am",
    "apply",
    "checkout",
    "cherry-pick",
    "clean",
    "clone",
    "commit",
    "fetch",
    "gc",
    "init",
    "merge",
    "mv",
    "pull",
    "push",
    "rebase",
    "reset",
    "restore",
    "revert",
    "rm",
    "switch",
];

/// Names in paths that Claude Code protects whatever a rule allows.
const PROTECTED_NAMES: &[&str] =
    &[".claude", ".git", ".vscode", ".idea", ".mcp.json", ".bash", ".zsh", ".profile"];

/// Decision on a call that is not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallDecision {
    Decided(Verdict),
    /// Only Claude Code or a person can decide; the reason is one sentence.
    Undetermined(String),
}

/// Decides on a call in the syntax of a permission rule: a tool, and its command, domain or file in parentheses.
///
/// A call without parentheses is about the tool as a whole.
pub(crate) fn evaluate_call(agent: &Agent, call: &RuleText) -> CallDecision {
    let whole = evaluate_builtin(agent, &call.tool);
    let Some(argument) = call.specifier.as_deref().map(str::trim).filter(|_| whole.is_allowed())
    else {
        return CallDecision::Decided(whole);
    };
    let rules = RulesForTool { agent, tool: &call.tool };
    let decision = match call.tool.as_str() {
        "Bash" => rules.evaluate_command(argument),
        "WebFetch" => rules.evaluate_domain(argument),
        _ => rules.evaluate_whole_rules(),
    };
    match decision {
        CallDecision::Decided(verdict)
            if verdict.is_allowed() && agent.has_hook_for("PreToolUse") =>
        {
            undetermined("the agent's `PreToolUse` hooks decide as well")
        }
        decision => decision,
    }
}

/// Returns the rules for parts of a tool, if calls of the tool need a rule and none allows the tool as a whole.
pub(crate) fn call_patterns(agent: &Agent, tool: &str) -> Vec<String> {
    let rules = RulesForTool { agent, tool };
    let needs_rule = runs_commands(tool)
        || matches!(tool, "Edit" | "MultiEdit" | "NotebookEdit" | "WebFetch" | "Write");
    if !needs_rule
        || rules.find("allow", covers_tool).is_some()
        || !evaluate_builtin(agent, tool).is_allowed()
    {
        return Vec::new();
    }
    rules.list("allow").map(|(_, rule)| rule.to_string()).collect()
}

fn undetermined(reason: &str) -> CallDecision {
    CallDecision::Undetermined(format!("cannot be determined: {reason}"))
}

/// The permission rules of an agent for one tool.
struct RulesForTool<'a> {
    agent: &'a Agent,
    tool: &'a str,
}

impl<'a> RulesForTool<'a> {
    /// Rules of one list for this tool, with their paths in `agent.md`.
    fn list(&self, name: &'static str) -> impl Iterator<Item = (String, &'a RuleText)> {
        let rules = match name {
            "deny" => &self.agent.permissions.deny,
            "ask" => &self.agent.permissions.ask,
            _ => &self.agent.permissions.allow,
        };
        let tool = self.tool;
        let is_for_tool = move |rule: &RuleText| {
            let pattern = Pattern::new(&rule.tool);
            all_names(tool).any(|name| pattern.matches(name))
        };
        let numbered = rules.iter().enumerate().filter(move |(_, rule)| is_for_tool(rule));
        numbered.map(move |(index, rule)| (format!("permissions.{name}[{index}]"), rule))
    }

    fn find(
        &self,
        name: &'static str,
        fits: impl Fn(&RuleText) -> bool,
    ) -> Option<(String, &'a RuleText)> {
        self.list(name).find(|(_, rule)| fits(rule))
    }

    fn verdict(&self, decision: Decision, path: String, because: &str) -> CallDecision {
        let asked = AccessRequest {
            agent: self.agent.name.as_str(),
            resource: Resource::Builtin(self.tool),
        };
        let rule = Rule::new(Some(&self.agent.file), path);
        CallDecision::Decided(Verdict::new(&asked, decision, rule, because))
    }

    fn denied_by(&self, (path, rule): (String, &RuleText)) -> CallDecision {
        self.verdict(Decision::Deny, path, &format!("{} is denied", quote(&rule.to_string())))
    }

    fn allowed_by(&self, (path, rule): (String, &RuleText)) -> CallDecision {
        self.verdict(
            Decision::Allow,
            path,
            &format!("{} allows this call", quote(&rule.to_string())),
        )
    }

    fn without_rule(&self) -> CallDecision {
        let because = "no rule in `permissions.allow` matches this call";
        self.verdict(Decision::Deny, "permissions.allow".to_owned(), because)
    }

    fn evaluate_command(&self, written: &str) -> CallDecision {
        let command = match SimpleCommand::parse(written) {
            Ok(command) => command,
            Err(reason) => return undetermined(&reason),
        };
        if let Some(denied) = self.find("deny", |rule| command.matches(rule)) {
            return self.denied_by(denied);
        }
        let restricted = ["deny", "ask"].into_iter().any(|list| self.list(list).next().is_some());
        if command.has_quotes && restricted {
            return undetermined(
                "the command has quotes, and rules deny or ask about some commands",
            );
        }
        if let Some(asked) = self.find("ask", |rule| command.matches(rule)) {
            return person_decides(&asked);
        }
        if command.names_protected_file() {
            return undetermined("the command names a file that Claude Code protects");
        }
        if let Some(allowed) = self.find("allow", covers_tool) {
            return self.allowed_by(allowed);
        }
        let allowed = self.find("allow", |rule| command.matches(rule));
        if allowed.is_some() && command.leaves_folder() && command.has_checked_paths() {
            return undetermined("Claude Code checks the paths that this program is given");
        }
        match allowed {
            Some(allowed) => self.allowed_by(allowed),
            None if command.may_need_no_rule() => {
                undetermined("Claude Code permits some commands that only read without a rule")
            }
            None => self.without_rule(),
        }
    }

    fn evaluate_domain(&self, written: &str) -> CallDecision {
        let domain = domain_of(written);
        let names_domain = |rule: &RuleText| {
            covers_tool(rule)
                || rule.specifier.as_deref().and_then(|text| text.strip_prefix("domain:"))
                    == Some(domain)
        };
        let has_pattern =
            |rule: &RuleText| rule.specifier.as_deref().is_some_and(|text| text.contains('*'));
        if let Some(denied) = self.find("deny", names_domain) {
            return self.denied_by(denied);
        }
        if let Some(asked) = self.find("ask", names_domain) {
            return person_decides(&asked);
        }
        if ["deny", "ask"].into_iter().any(|list| self.find(list, has_pattern).is_some()) {
            return undetermined("rules with patterns for domains are Claude Code's to decide");
        }
        match self.find("allow", names_domain) {
            Some(allowed) => self.allowed_by(allowed),
            None => undetermined("Claude Code permits some domains without a rule"),
        }
    }

    /// Decides by rules without parentheses; all other rules, for instance about files, are Claude Code's.
    fn evaluate_whole_rules(&self) -> CallDecision {
        if ["deny", "ask"].into_iter().any(|list| self.list(list).next().is_some()) {
            return undetermined("rules deny or ask about some calls of this tool");
        }
        match self.find("allow", covers_tool) {
            Some(allowed) => self.allowed_by(allowed),
            None => undetermined("the path in the call decides, which Claude Code checks"),
        }
    }
}

fn person_decides((path, rule): &(String, &RuleText)) -> CallDecision {
    undetermined(&format!("a person is asked, because of {} (`{path}`)", quote(&rule.to_string())))
}

/// True for rules about a tool as a whole.
fn covers_tool(rule: &RuleText) -> bool {
    matches!(rule.specifier.as_deref(), None | Some("" | "*" | ":*" | "**"))
}

/// Returns the host of a URL, or the text behind `domain:`.
fn domain_of(written: &str) -> &str {
    let text = written.strip_prefix("domain:").unwrap_or(written);
    let text = text.split_once("://").map_or(text, |(_, rest)| rest);
    text.split(['/', ':', '?', '#']).next().unwrap_or(text)
}

/// A command without shell syntax: a program and its arguments.
struct SimpleCommand {
    text: String,
    /// With single spaces.
    normalized: String,
    has_quotes: bool,
}

impl SimpleCommand {
    /// # Errors
    ///
    /// The reason why only Claude Code can judge the command.
    fn parse(written: &str) -> Result<Self, String> {
        let syntax = |c: char| {
            matches!(
                c,
                '&' | '|'
                    | ';'
                    | '<'
                    | '>'
                    | '('
                    | ')'
                    | '{'
                    | '}'
                    | '$'
                    | '`'
                    | '\\'
                    | '\n'
                    | '\r'
                    | '#'
                    | '!'
            )
        };
        if let Some(found) = written.chars().find(|c| syntax(*c)) {
            return Err(format!(
                "the command has shell syntax (`{}`), which Claude Code takes apart",
                found.escape_default()
            ));
        }
        let normalized = written.split_whitespace().collect::<Vec<_>>().join(" ");
        let program = normalized.split(' ').next().unwrap_or_default();
        if program.is_empty() {
            return Err("the command is empty".to_owned());
        }
        if program.contains(['"', '\'', '=', '*', '?', '[', '~']) && program != "[" {
            return Err("the name of the program is quoted, a pattern or an assignment".to_owned());
        }
        if WRAPPERS.contains(&program) {
            return Err(format!("`{program}` starts another program, which Claude Code looks for"));
        }
        let has_quotes = written.contains(['"', '\'']);
        Ok(Self { text: written.to_owned(), normalized, has_quotes })
    }

    fn program(&self) -> &str {
        self.normalized.split(' ').next().unwrap_or_default()
    }

    fn arguments(&self) -> impl Iterator<Item = &str> {
        self.normalized.split(' ').skip(1)
    }

    /// True if a rule is about this command: exact, `prefix:*`, or with `*` anywhere.
    fn matches(&self, rule: &RuleText) -> bool {
        if covers_tool(rule) {
            return true;
        }
        let Some(specifier) = rule.specifier.as_deref() else { return true };
        if let Some(prefix) = specifier.strip_suffix(":*") {
            let prefix = prefix.split_whitespace().collect::<Vec<_>>().join(" ");
            let rest = self.normalized.strip_prefix(&prefix);
            return rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
        }
        match specifier.split_once('*') {
            None => self.text == specifier,
            Some((head, "")) if head.ends_with(' ') => {
                self.normalized.starts_with(head) || self.normalized == head.trim_end()
            }
            Some(_) => matches_wildcards(specifier, &self.normalized),
        }
    }

    /// True if an argument may name something outside of the working folder.
    fn leaves_folder(&self) -> bool {
        self.arguments().any(|word| {
            word.contains(['/', '~']) && (word.contains("..") || !is_relative(word)) || word == ".."
        })
    }

    fn has_checked_paths(&self) -> bool {
        PATH_CHECKED_PROGRAMS.contains(&self.program())
            || READING_PROGRAMS.contains(&self.program())
    }

    fn names_protected_file(&self) -> bool {
        self.arguments().any(|word| PROTECTED_NAMES.iter().any(|name| word.contains(name)))
    }

    /// True if Claude Code may permit the command without a rule.
    fn may_need_no_rule(&self) -> bool {
        let is_question = |word: &str| {
            matches!(word, "--version" | "--help" | "-v" | "-V" | "-h" | "version" | "help")
        };
        let mut arguments = self.arguments().peekable();
        match self.program() {
            "git" => {
                arguments.peek().is_none_or(|command| !CHANGING_GIT_COMMANDS.contains(command))
            }
            program if READING_PROGRAMS.contains(&program) => true,
            _ => self.arguments().any(is_question),
        }
    }
}

fn is_relative(word: &str) -> bool {
    let path = word.rsplit('=').next().unwrap_or(word).trim_start_matches(['"', '\'']);
    !path.starts_with(['/', '~'])
}

/// Matches `*` against any text, anchored at both ends.
fn matches_wildcards(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use test_case::test_case;

    use super::super::test_support::dev_agent;
    use super::*;

    fn rule(specifier: &str) -> RuleText {
        RuleText { tool: "Bash".to_owned(), specifier: Some(specifier.to_owned()) }
    }

    #[test_case("git log:*", "git log", true)]
    #[test_case("git log:*", "git  log -1", true; "spaces do not count")]
    #[test_case("git log:*", "git logs", false; "a whole word")]
    #[test_case("make *", "make", true; "nothing behind the space")]
    #[test_case("npm run*", "npm runx", true; "no word boundary")]
    #[test_case("* --version", "node --version", true)]
    #[test_case("* --version", "node --version x", false; "anchored at the end")]
    #[test_case("a * c", "a b b c", true)]
    #[test_case("a * c", "a c", false)]
    #[test_case("foo bar", "foo  bar", false; "exact")]
    fn rules_match_commands(specifier: &str, command: &str, expected: bool) {
        let command = SimpleCommand::parse(command).unwrap();
        assert_eq!(command.matches(&rule(specifier)), expected);
    }

    proptest! {
        #[test]
        fn a_command_that_a_deny_rule_matches_is_never_allowed(
            words in "[a-z]{1,4}( [a-z./-]{1,6}){0,3}", program in "[a-z]{1,4}",
        ) {
            let mut agent = dev_agent();
            agent.permissions.allow = vec![RuleText { tool: "Bash".to_owned(), specifier: None }];
            agent.permissions.deny = vec![rule(&format!("{program}:*"))];
            let is_denied = words.split(' ').next() == Some(program.as_str());
            let decision = evaluate_call(&agent, &rule(&words));
            let is_allowed = matches!(&decision, CallDecision::Decided(verdict) if verdict.is_allowed());
            prop_assert!(!(is_denied && is_allowed), "{decision:?}");
        }
    }
}
