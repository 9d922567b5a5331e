//! What all files together say about rights, as `explain` and `matrix` need it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::base::{Lined, ReadRefused, nearest, parse_json_lines, read_bounded};
use crate::catalog::{
    Agent, ServerLaunch, Snapshot, State, canonical_builtin, public_servers, rule_line,
};
use crate::config::{GatewayFile, GatewayFiles, Settings};
use crate::policy::{
    Evaluation, GatewayRules, evaluate, judge_builtin, judge_mcp_tool, judge_server,
};

/// Rules and servers are written by hand; a file beyond this is neither.
const MAX_BYTES: u64 = 4 << 20;

/// Everything that grants or takes away, as it is on the disk now.
pub(super) struct Rights<'s> {
    settings: &'s Settings,
    pub(super) snapshot: Snapshot,
    /// The gateway's rules, or why there are none.
    pub(super) rules: Result<LoadedRules, String>,
}

impl<'s> Rights<'s> {
    pub(super) fn load(settings: &'s Settings) -> Self {
        let snapshot = Snapshot::load(settings);
        Self { settings, snapshot, rules: load_rules(settings) }
    }

    /// May this agent use this built-in tool? Only agents of the catalog have any that we know of.
    pub(super) fn judge_builtin(&self, agent: &str, tool: &str) -> Result<Evaluation, String> {
        let found = self.agent(agent)?.ok_or_else(|| self.no_agent(agent))?;
        Ok(self.with_line(&found, judge_builtin(&found, canonical_builtin(tool))))
    }

    /// May this agent use this server or tool? Its own file decides for the servers it declares, else the rules.
    pub(super) fn judge_mcp(
        &self,
        agent: &str,
        server: &str,
        tool: Option<&str>,
    ) -> Result<Evaluation, String> {
        let found = self.agent(agent)?;
        let declared = |found: &Arc<Agent>| {
            found
                .servers
                .iter()
                .find(|entry| entry.name == server)
                .map(|entry| entry.launch.clone())
        };
        match found.as_ref().and_then(|found| Some((found, declared(found)?))) {
            Some((found, launch)) => self.judge_scoped(found, &launch, server, tool),
            None => Ok(evaluate(&self.rules()?.rules, agent, server, tool)),
        }
    }

    fn judge_scoped(
        &self,
        agent: &Agent,
        launch: &ServerLaunch,
        server: &str,
        tool: Option<&str>,
    ) -> Result<Evaluation, String> {
        let rules = match launch {
            ServerLaunch::Shared => Some(&self.rules()?.rules),
            ServerLaunch::Stdio { .. } | ServerLaunch::Http { .. } => None,
        };
        let judged = match tool {
            Some(tool) => judge_mcp_tool(agent, server, tool, rules),
            None => judge_server(agent, server, rules),
        };
        Ok(self.with_line(agent, judged))
    }

    /// The agent of the catalog, if there is one; a broken one is an error.
    pub(super) fn agent(&self, name: &str) -> Result<Option<Arc<Agent>>, String> {
        let Some(entry) = self.snapshot.get(name) else { return Ok(None) };
        match &entry.state {
            State::Sound(agent) => Ok(Some(Arc::clone(agent))),
            State::Broken => {
                let reason = entry.reason().unwrap_or_default();
                Err(format!("agent `{name}` is broken, so nothing can be said: {reason}"))
            }
        }
    }

    pub(super) fn rules(&self) -> Result<&LoadedRules, String> {
        self.rules.as_ref().map_err(Clone::clone)
    }

    fn no_agent(&self, name: &str) -> String {
        let names = self.snapshot.entries().iter().map(|entry| entry.name.as_str());
        let near = nearest(name, names);
        let help = match near.first() {
            Some(near) => format!("did you mean `{near}`?"),
            None => "run `adjutant list` to see what is available".to_owned(),
        };
        format!("there is no agent `{name}`; {help}")
    }

    /// The place of a rule in an agent's file; the sentence stays the one that the agent is told.
    fn with_line(&self, agent: &Agent, mut judged: Evaluation) -> Evaluation {
        let own = judged.rule.file.as_deref() == Some(agent.file.as_path());
        if own && judged.rule.line.is_none() {
            judged.rule.line = rule_line(self.settings, agent, &judged.rule.path);
        }
        judged
    }
}

/// The names of the shared servers: those of `.mcp.json`, then the public ones of extensions.
pub(super) fn shared_servers(settings: &Settings) -> Vec<String> {
    let mut names = configured_servers(settings);
    let taken = names.iter().cloned().collect();
    names.extend(public_servers(&settings.root, &taken).into_iter().map(|(name, _)| name));
    names
}

/// None where there is no such file, or no sound one.
fn configured_servers(settings: &Settings) -> Vec<String> {
    let path = GatewayFiles::locate(settings).mcp_config.path;
    let text = read_bounded(&path, MAX_BYTES).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let Some(Lined::Object(members)) =
        text.and_then(|text| parse_json_lines(&text).ok()).map(|value| value.value)
    else {
        return Vec::new();
    };
    let servers = members.into_iter().find(|member| member.key == "mcpServers");
    match servers.map(|member| member.value.value) {
        Some(Lined::Object(servers)) => servers.into_iter().map(|member| member.key).collect(),
        _ => Vec::new(),
    }
}

/// The gateway's rules, and whether there is a file of them; what is odd about them is for `check` to say.
#[derive(Debug)]
pub(super) struct LoadedRules {
    pub(super) rules: GatewayRules,
    pub(super) found: bool,
}

/// Reads the gateway's rules. No file at all means that nobody may do anything; a broken one is an error.
fn load_rules(settings: &Settings) -> Result<LoadedRules, String> {
    let file = GatewayFiles::locate(settings).rules;
    match read_bounded(&file.path, MAX_BYTES) {
        Ok(bytes) => parse(&file.path, bytes),
        Err(ReadRefused::Io(error)) if is_absent(&file, &error) => {
            Ok(LoadedRules { rules: GatewayRules::deny_all(&file.path), found: false })
        }
        Err(error) => Err(unreadable(&file, &error)),
    }
}

/// A file that nobody asked for by name may be missing.
fn is_absent(file: &GatewayFile, error: &io::Error) -> bool {
    file.named_by.is_none() && error.kind() == io::ErrorKind::NotFound
}

fn unreadable(file: &GatewayFile, error: &ReadRefused) -> String {
    let named = file.named_by.map(|name| format!(" (named by `{name}`)")).unwrap_or_default();
    format!("the rules `{}`{named} cannot be read: {error}", file.path.display())
}

fn parse(path: &Path, bytes: Vec<u8>) -> Result<LoadedRules, String> {
    let text = String::from_utf8(bytes)
        .map_err(|_| format!("the rules `{}` are not UTF-8 text", path.display()))?;
    match GatewayRules::parse(&text, path) {
        Ok((rules, _)) => Ok(LoadedRules { rules, found: true }),
        Err(problems) => {
            let lines: Vec<String> =
                problems.iter().map(|problem| problem.located().to_string()).collect();
            Err(format!("the rules are broken, so nothing can be said\n  {}", lines.join("\n  ")))
        }
    }
}
