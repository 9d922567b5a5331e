//! Test fixtures: a minimal agent, permission rules, tools and servers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::catalog::{
    Agent, AgentOrigin, AgentState, AllowedCallers, CatalogEntry, Diagnostic, Limits, OutputFormat,
    OutputSpec, Permissions, PolicyRules, RuleText, ServerEntry, ServerLaunch, Severity, Template,
    ToolRef,
};

/// An agent named `dev` without any grant.
pub(crate) fn dev_agent() -> Agent {
    Agent {
        name: "dev".parse().unwrap(),
        display_name: None,
        description: "develops".to_owned(),
        origin: AgentOrigin::Project,
        file: PathBuf::from("/p/agents/dev/agent.md"),
        prompt: String::new(),
        memory: None,
        session: false,
        allowed_callers: AllowedCallers::Anyone,
        model: None,
        effort: None,
        cwd: None,
        add_dirs: Vec::new(),
        env: BTreeMap::new(),
        permissions: Permissions::default(),
        tools: None,
        policy: PolicyRules::default(),
        may_change_project_config: false,
        sandbox: None,
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

/// The catalog's entry of a valid agent.
#[expect(clippy::default_trait_access, reason = "`policy` does not import `store`")]
pub(crate) fn catalog_entry(agent: Agent) -> CatalogEntry {
    CatalogEntry {
        name: agent.name.to_string(),
        origin: agent.origin.clone(),
        file: agent.file.clone(),
        state: AgentState::Valid(Arc::new(agent)),
        diagnostics: [].into(),
        dependencies: Default::default(),
    }
}

/// The catalog's entry of the agent `dev` with a misspelt key in line 4.
pub(crate) fn invalid_entry() -> CatalogEntry {
    let error = Diagnostic {
        severity: Severity::Error,
        code: "unknown-key",
        file: PathBuf::from("agents/dev/agent.md"),
        line: 4,
        column: 1,
        length: 4,
        message: "there is no key `alow`".to_owned(),
        help: None,
    };
    CatalogEntry {
        state: AgentState::Invalid,
        diagnostics: [error].into(),
        ..catalog_entry(dev_agent())
    }
}

/// Permission rules such as `Bash` or `Bash(curl:*)`.
pub(crate) fn permission_rules(texts: &[&str]) -> Vec<RuleText> {
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

/// Tools such as `builtin:Bash` or `mcp:server:tool`.
pub(crate) fn tools(texts: &[&str]) -> Vec<ToolRef> {
    let read = |text: &&str| match *text.split(':').collect::<Vec<_>>() {
        ["builtin", name] => ToolRef::Builtin(name.to_owned()),
        ["mcp", server, tool] => ToolRef::Mcp { server: server.to_owned(), tool: tool.to_owned() },
        _ => panic!("no tool: {text}"),
    };
    texts.iter().map(read).collect()
}

pub(crate) fn names(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// A private stdio server.
pub(crate) fn private_server(name: &str) -> ServerEntry {
    let launch = ServerLaunch::Stdio {
        command: Template("server".to_owned()),
        args: Vec::new(),
        env: BTreeMap::new(),
        cwd: None,
    };
    ServerEntry::new(name, launch)
}

pub(crate) fn shared_server(name: &str) -> ServerEntry {
    ServerEntry { launch: ServerLaunch::Shared, ..private_server(name) }
}
