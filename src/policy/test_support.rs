//! An agent for tests, in a few words.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::catalog::{
    Agent, Callers, Limits, Origin, OutputFormat, OutputSpec, Permissions, PolicyRules, RuleText,
    ServerEntry, ServerLaunch, Template, ToolRef,
};

/// An agent called `dev` to whom nothing is granted.
pub(super) fn dev() -> Agent {
    Agent {
        name: "dev".parse().unwrap(),
        display_name: None,
        description: "develops".to_owned(),
        origin: Origin::Project,
        file: PathBuf::from("/p/agents/dev/agent.md"),
        prompt: String::new(),
        memory: None,
        session: false,
        allowed_callers: Callers::Anyone,
        model: None,
        effort: None,
        cwd: None,
        add_dirs: Vec::new(),
        env: BTreeMap::new(),
        permissions: Permissions::default(),
        tools: None,
        policy: PolicyRules::default(),
        servers: Vec::new(),
        output: OutputSpec { format: OutputFormat::Text, schema: None, retries: 0 },
        limits: Limits {
            timeout: Duration::from_secs(1),
            idle_timeout: None,
            max_turns: None,
            max_budget_usd: None,
            max_output_chars: 1,
            max_concurrent: None,
            approval_timeout: Duration::from_secs(1),
        },
        warm: 0,
        keep_alive: Duration::ZERO,
        hooks: Vec::new(),
    }
}

/// `Bash`, `Bash(curl:*)`.
pub(super) fn rules(texts: &[&str]) -> Vec<RuleText> {
    texts
        .iter()
        .map(|text| match text.strip_suffix(')').and_then(|text| text.split_once('(')) {
            Some((tool, specifier)) => {
                RuleText { tool: tool.to_owned(), specifier: Some(specifier.to_owned()) }
            }
            None => RuleText { tool: (*text).to_owned(), specifier: None },
        })
        .collect()
}

/// `builtin:Bash`, `mcp:server:tool`.
pub(super) fn tools(texts: &[&str]) -> Vec<ToolRef> {
    let read = |text: &&str| match *text.split(':').collect::<Vec<_>>() {
        ["builtin", name] => ToolRef::Builtin(name.to_owned()),
        ["mcp", server, tool] => ToolRef::Mcp { server: server.to_owned(), tool: tool.to_owned() },
        _ => panic!("no tool: {text}"),
    };
    texts.iter().map(read).collect()
}

/// Plain names.
pub(super) fn names(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// A private server.
pub(super) fn private(name: &str) -> ServerEntry {
    let launch = ServerLaunch::Stdio {
        command: Template("server".to_owned()),
        args: Vec::new(),
        env: BTreeMap::new(),
        cwd: None,
    };
    ServerEntry::new(name, launch)
}

/// A reference to a shared server.
pub(super) fn shared(name: &str) -> ServerEntry {
    ServerEntry { launch: ServerLaunch::Shared, ..private(name) }
}
