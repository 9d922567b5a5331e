//! Which servers of a project can be signed in to, and by whom.

use std::sync::Arc;

use crate::base::{nearest, read_bounded};
use crate::catalog::{Agent, ServerLaunch, Snapshot};
use crate::config::{GatewayFiles, Settings};
use crate::gateway::{Drawers, Scope, ServerSet, ServerSpec, SignInFailed, SignInTarget};

const LARGEST_FILE: u64 = 4 * 1024 * 1024;

/// A server, and the agent that signs in alone, if one does.
pub(super) struct Subject {
    pub(super) spec: Arc<ServerSpec>,
    pub(super) agent: Option<String>,
    private: bool,
}

impl Subject {
    /// Where its sign-in lies.
    pub(super) fn target(&self, settings: &Settings) -> Result<SignInTarget, SignInFailed> {
        SignInTarget::new(&settings.root, &self.spec, self.agent.as_deref())
    }

    /// As the gateway uses it.
    pub(super) fn scope(&self) -> Scope {
        match (&self.agent, self.private) {
            (Some(agent), true) => Scope::Private(agent.clone()),
            (Some(agent), false) => Scope::Agent(agent.clone()),
            (None, _) => Scope::Shared,
        }
    }
}

/// The server of this name; the error is one line.
pub(super) fn find(
    settings: &Settings,
    server: &str,
    agent: Option<&str>,
) -> Result<Subject, String> {
    if let Some(subject) = agent.and_then(|agent| private(settings, agent, server)) {
        return Ok(subject);
    }
    let set = servers(settings)?;
    let Some(entry) = set.get(server) else {
        let near = nearest(server, set.names());
        let hint = near.first().map(|near| format!("; is `{near}` meant?")).unwrap_or_default();
        let whose = agent.map(|agent| format!(", and `{agent}` has none of its own"));
        let whose = whose.unwrap_or_default();
        return Err(format!("`.mcp.json` has no server `{server}`{whose}{hint}"));
    };
    let spec = entry.spec.clone().map_err(|reason| format!("server `{server}`: {reason}"))?;
    match (spec.sign_in.per_agent, agent) {
        (true, None) => Err(format!(
            "every agent signs in to `{server}` by itself: say which with `--agent AGENT`"
        )),
        (false, Some(agent)) => Err(format!(
            "all agents share the sign-in to `{server}`: leave `--agent {agent}` out, or put `\"auth\": {{\"isolation\": \"agent\"}}` into its entry"
        )),
        (_, agent) => Ok(Subject { spec, agent: agent.map(str::to_owned), private: false }),
    }
}

/// Every server on the network that has no `Authorization` header of its own, and everybody who signed in.
pub(super) fn subjects(settings: &Settings) -> Result<Vec<Subject>, String> {
    let set = servers(settings)?;
    let signed_in = Drawers::of_user()?.of_project(&settings.root);
    let mut subjects = Vec::new();
    for spec in set.entries().iter().filter_map(|entry| entry.spec.as_ref().ok()) {
        if !asks(&spec.launch) {
            continue;
        }
        if !spec.sign_in.per_agent {
            subjects.push(Subject { spec: Arc::clone(spec), agent: None, private: false });
            continue;
        }
        let mut agents: Vec<&String> = signed_in
            .iter()
            .filter(|record| record.server == spec.name)
            .filter_map(|record| record.agent.as_ref())
            .collect();
        agents.sort();
        agents.dedup();
        subjects.extend(agents.into_iter().map(|agent| Subject {
            spec: Arc::clone(spec),
            agent: Some(agent.clone()),
            private: false,
        }));
    }
    subjects.extend(private_ones(settings));
    Ok(subjects)
}

fn private_ones(settings: &Settings) -> Vec<Subject> {
    let snapshot = Snapshot::load(settings);
    let agents = snapshot.entries().iter().filter_map(|entry| entry.agent());
    let mut subjects = Vec::new();
    for agent in agents {
        let servers = agent.servers.iter().filter(|entry| asks(&entry.launch));
        let names = servers.map(|entry| entry.name.as_str());
        subjects.extend(names.filter_map(|name| private_of(agent, name)));
    }
    subjects
}

fn private(settings: &Settings, agent: &str, server: &str) -> Option<Subject> {
    let snapshot = Snapshot::load(settings);
    let entry = snapshot.entries().iter().find(|entry| entry.name == agent)?;
    private_of(entry.agent()?, server)
}

fn private_of(agent: &Agent, server: &str) -> Option<Subject> {
    let entry = agent.servers.iter().find(|entry| entry.name == server)?;
    let spec = Arc::new(ServerSpec::from_agent(entry)?);
    Some(Subject { spec, agent: Some(agent.name.to_string()), private: true })
}

fn asks(launch: &ServerLaunch) -> bool {
    match launch {
        ServerLaunch::Http { headers, .. } => {
            !headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"))
        }
        ServerLaunch::Stdio { .. } | ServerLaunch::Shared => false,
    }
}

fn servers(settings: &Settings) -> Result<ServerSet, String> {
    let file = GatewayFiles::locate(settings).mcp_config;
    if !file.found {
        return Ok(ServerSet::default());
    }
    let unreadable = |reason: String| format!("`{}` cannot be read: {reason}", file.path.display());
    let bytes =
        read_bounded(&file.path, LARGEST_FILE).map_err(|error| unreadable(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| unreadable("it is no text".to_owned()))?;
    ServerSet::parse(&text).map_err(|error| unreadable(error.to_string()))
}
