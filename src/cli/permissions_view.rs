//! Permissions of all agents, combined from all files, for `explain`, `matrix` and `show`.

use std::io;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;

use crate::catalog::{
    Agent, AgentState, RuleText, ServerLaunch, Snapshot, canonical_builtin, public_servers,
    rule_line,
};
use crate::config::{GatewayFile, GatewayFiles, Settings};
use crate::delegation::{ControlFiles, FileRequest};
use crate::identity::Caller;
use crate::policy::{
    CallDecision, Decision, GatewayRules, Rule, Verdict, call_patterns, evaluate, evaluate_builtin,
    evaluate_call, evaluate_delegation, evaluate_mcp_tool, evaluate_server,
};
use crate::store::{BoundedReadError, read_bounded};
use crate::util::{SpannedKind, nearest_names, parse_spanned_json};

/// Size limit in bytes of the rules and of `.mcp.json`, which are written by hand.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Agents and gateway rules as they are on disk at the time of loading.
pub(crate) struct PermissionsView<'s> {
    settings: &'s Settings,
    pub(crate) snapshot: Snapshot,
    /// The gateway rules, or the reason why they cannot be used.
    pub(crate) rules: Result<LoadedRules, String>,
}

impl<'s> PermissionsView<'s> {
    pub(crate) fn load(settings: &'s Settings) -> Self {
        let snapshot = Snapshot::load(settings);
        Self { settings, snapshot, rules: load_rules(settings) }
    }

    /// Returns the verdict on a built-in tool. Only agents of the catalog have built-in tools.
    pub(crate) fn evaluate_builtin(&self, agent: &str, tool: &str) -> Result<Verdict, String> {
        let found = self.agent(agent)?.ok_or_else(|| self.unknown_agent_message(agent))?;
        Ok(self.with_line(&found, evaluate_builtin(&found, canonical_builtin(tool))))
    }

    /// Returns the rules that allow some calls of a built-in tool, if none allows the tool as a whole.
    pub(crate) fn call_patterns(&self, agent: &str, tool: &str) -> Vec<String> {
        let found = self.agent(agent).ok().flatten();
        found.map(|agent| call_patterns(&agent, canonical_builtin(tool))).unwrap_or_default()
    }

    /// Returns the decision on a call in the syntax of a permission rule: `Bash(git push)`, `Write(src/x)`.
    pub(crate) fn evaluate_call(&self, agent: &str, call: &str) -> Result<CallDecision, String> {
        let mut call = RuleText::split(call);
        if let Some((server, tool)) =
            call.tool.strip_prefix("mcp__").and_then(|name| name.split_once("__"))
        {
            return self.evaluate_mcp(agent, server, Some(tool)).map(CallDecision::Decided);
        }
        let found = self.agent(agent)?.ok_or_else(|| self.unknown_agent_message(agent))?;
        call.tool = canonical_builtin(&call.tool).to_owned();
        let mut decision = evaluate_call(&found, &call);
        let is_denied =
            matches!(&decision, CallDecision::Decided(verdict) if !verdict.is_allowed());
        if let Some(reason) = self.file_denial(&found, &call).filter(|_| !is_denied) {
            let rule = Rule::new(Some(&found.file), "may_change_project_config");
            decision = CallDecision::Decided(Verdict { decision: Decision::Deny, rule, reason });
        }
        Ok(match decision {
            CallDecision::Decided(verdict) => {
                CallDecision::Decided(self.with_line(&found, verdict))
            }
            undetermined @ CallDecision::Undetermined(_) => undetermined,
        })
    }

    /// Returns the reason why a file tool may not be used for this file: it is a control file.
    fn file_denial(&self, agent: &Agent, call: &RuleText) -> Option<String> {
        let path = call.specifier.as_deref()?;
        let input =
            json!({ "file_path": path, "notebook_path": path, "path": path, "pattern": path });
        let request = FileRequest::new(&call.tool, &input, self.settings.root.to_str())?;
        ControlFiles::from_settings(self.settings).denial(agent, &request)
    }

    /// Returns the verdict on a server or one of its tools.
    ///
    /// The agent's file decides on servers that it declares, the gateway rules on all others.
    pub(crate) fn evaluate_mcp(
        &self,
        agent: &str,
        server: &str,
        tool: Option<&str>,
    ) -> Result<Verdict, String> {
        let found = self.agent(agent)?;
        let declared = |found: &Arc<Agent>| {
            found
                .servers
                .iter()
                .find(|entry| entry.name == server)
                .map(|entry| entry.launch.clone())
        };
        match found.as_ref().and_then(|found| Some((found, declared(found)?))) {
            Some((found, launch)) => self.evaluate_declared(found, &launch, server, tool),
            None => Ok(evaluate(&self.rules()?.rules, agent, server, tool)),
        }
    }

    /// Returns the verdict on a call of `agent` by a caller of this name whom nothing attests.
    pub(crate) fn evaluate_delegation(&self, caller: &str, agent: &str) -> Result<Verdict, String> {
        let entry = self.snapshot.get(agent).ok_or_else(|| self.unknown_agent_message(agent))?;
        let identity = self.snapshot.orchestration().identity;
        let evaluated = evaluate_delegation(entry, &Caller::named(caller), identity);
        let verdict = Arc::unwrap_or_clone(evaluated.verdict);
        Ok(match entry.agent() {
            Some(agent) => self.with_line(agent, verdict),
            None => verdict,
        })
    }

    fn evaluate_declared(
        &self,
        agent: &Agent,
        launch: &ServerLaunch,
        server: &str,
        tool: Option<&str>,
    ) -> Result<Verdict, String> {
        let rules = match launch {
            ServerLaunch::Shared => Some(&self.rules()?.rules),
            ServerLaunch::Stdio { .. } | ServerLaunch::Http { .. } => None,
        };
        let verdict = match tool {
            Some(tool) => evaluate_mcp_tool(agent, server, tool, rules),
            None => evaluate_server(agent, server, rules),
        };
        Ok(self.with_line(agent, verdict))
    }

    /// Returns the agent, or `None` if the catalog does not contain it. A broken agent is an error.
    pub(crate) fn agent(&self, name: &str) -> Result<Option<Arc<Agent>>, String> {
        let Some(entry) = self.snapshot.get(name) else { return Ok(None) };
        match &entry.state {
            AgentState::Valid(agent) => Ok(Some(Arc::clone(agent))),
            AgentState::Invalid => {
                let reason = entry.reason().unwrap_or_default();
                Err(format!("agent `{name}` is broken, so nothing can be said: {reason}"))
            }
        }
    }

    pub(crate) fn rules(&self) -> Result<&LoadedRules, String> {
        self.rules.as_ref().map_err(Clone::clone)
    }

    fn unknown_agent_message(&self, name: &str) -> String {
        let names = self.snapshot.entries().iter().map(|entry| entry.name.as_str());
        let near = nearest_names(name, names);
        let help = match near.first() {
            Some(near) => format!("did you mean `{near}`?"),
            None => "run `adjutant list` to see what is available".to_owned(),
        };
        format!("there is no agent `{name}`; {help}")
    }

    /// Adds the line of a rule in the agent's file; the message stays unchanged.
    fn with_line(&self, agent: &Agent, mut judged: Verdict) -> Verdict {
        let own = judged.rule.file.as_deref() == Some(agent.file.as_path());
        if own && judged.rule.line.is_none() {
            judged.rule.line = rule_line(self.settings, agent, &judged.rule.path);
        }
        judged
    }
}

/// Returns the names of the shared servers: those of `.mcp.json`, then the public ones of extensions.
pub(crate) fn shared_servers(settings: &Settings) -> Vec<String> {
    let mut names = configured_servers(settings);
    let taken = names.iter().cloned().collect();
    names.extend(public_servers(&settings.root, &taken).into_iter().map(|(name, _)| name));
    names
}

/// Returns the servers of `.mcp.json`; empty if the file is missing or invalid.
fn configured_servers(settings: &Settings) -> Vec<String> {
    let path = GatewayFiles::locate(settings).mcp_config.path;
    let text =
        read_bounded(&path, MAX_FILE_BYTES).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let Some(SpannedKind::Object(members)) =
        text.and_then(|text| parse_spanned_json(&text).ok()).map(|value| value.kind)
    else {
        return Vec::new();
    };
    let servers = members.into_iter().find(|member| member.key == "mcpServers");
    match servers.map(|member| member.value.kind) {
        Some(SpannedKind::Object(servers)) => {
            servers.into_iter().map(|member| member.key).collect()
        }
        _ => Vec::new(),
    }
}

/// The gateway rules, and whether their file exists. Warnings are left to `check`.
#[derive(Debug)]
pub(crate) struct LoadedRules {
    pub(crate) rules: GatewayRules,
    pub(crate) file_exists: bool,
}

/// Reads the gateway rules. A missing file denies everything; a broken file is an error.
fn load_rules(settings: &Settings) -> Result<LoadedRules, String> {
    let file = GatewayFiles::locate(settings).rules;
    match read_bounded(&file.path, MAX_FILE_BYTES) {
        Ok(bytes) => parse_rules(&file.path, bytes),
        Err(BoundedReadError::Io(error)) if is_absent(&file, &error) => {
            Ok(LoadedRules { rules: GatewayRules::deny_all(&file.path), file_exists: false })
        }
        Err(error) => Err(unreadable_message(&file, &error)),
    }
}

/// Returns true if the file does not exist and was not configured explicitly.
fn is_absent(file: &GatewayFile, error: &io::Error) -> bool {
    file.named_by.is_none() && error.kind() == io::ErrorKind::NotFound
}

fn unreadable_message(file: &GatewayFile, error: &BoundedReadError) -> String {
    let named = file.named_by.map(|name| format!(" (named by `{name}`)")).unwrap_or_default();
    format!("the rules `{}`{named} cannot be read: {error}", file.path.display())
}

fn parse_rules(path: &Path, bytes: Vec<u8>) -> Result<LoadedRules, String> {
    let text = String::from_utf8(bytes)
        .map_err(|_| format!("the rules `{}` are not UTF-8 text", path.display()))?;
    match GatewayRules::parse(&text, path) {
        Ok((rules, _)) => Ok(LoadedRules { rules, file_exists: true }),
        Err(problems) => {
            let lines: Vec<String> =
                problems.iter().map(|problem| problem.located().to_string()).collect();
            Err(format!("the rules are broken, so nothing can be said\n  {}", lines.join("\n  ")))
        }
    }
}
