//! Servers of a project that support sign-in, and the accounts to use for them.

use std::sync::Arc;

use crate::catalog::{Agent, ServerLaunch, Snapshot};
use crate::config::{GatewayFiles, Settings};
use crate::gateway::{
    CredentialStore, ServerScope, ServerSet, ServerSpec, SignInError, SignInTarget,
};
use crate::store::read_bounded;
use crate::util::nearest_names;

const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// A server to sign in to, and the agent with an account of its own, if any.
pub(crate) struct SignInSubject {
    pub(crate) spec: Arc<ServerSpec>,
    pub(crate) agent: Option<String>,
    private: bool,
}

impl SignInSubject {
    /// Returns the target whose credentials are stored.
    pub(crate) fn target(&self, settings: &Settings) -> Result<SignInTarget, SignInError> {
        SignInTarget::new(&settings.root, &self.spec, self.agent.as_deref())
    }

    /// Returns the scope under which the gateway uses the server.
    pub(crate) fn scope(&self) -> ServerScope {
        match (&self.agent, self.private) {
            (Some(agent), true) => ServerScope::Private(agent.clone()),
            (Some(agent), false) => ServerScope::Agent(agent.clone()),
            (None, _) => ServerScope::Shared,
        }
    }
}

/// Finds a server by name. The error is one line for the user.
pub(crate) fn find_subject(
    settings: &Settings,
    server: &str,
    agent: Option<&str>,
) -> Result<SignInSubject, String> {
    if let Some(subject) = agent.and_then(|agent| private_subject(settings, agent, server)) {
        return Ok(subject);
    }
    let set = read_servers(settings)?;
    let Some(entry) = set.get(server) else {
        let near = nearest_names(server, set.names());
        let hint = near.first().map(|near| format!("; is `{near}` meant?")).unwrap_or_default();
        let whose = agent.map(|agent| format!(", and `{agent}` has none of its own"));
        let whose = whose.unwrap_or_default();
        return Err(format!("`.mcp.json` has no server `{server}`{whose}{hint}"));
    };
    let spec = entry.spec.clone().map_err(|reason| format!("server `{server}`: {reason}"))?;
    match (spec.oauth.per_agent, agent) {
        (true, None) => Err(format!(
            "every agent signs in to `{server}` by itself: say which with `--agent AGENT`"
        )),
        (false, Some(agent)) => Err(format!(
            "all agents share the sign-in to `{server}`: leave `--agent {agent}` out, or put `\"auth\": {{\"isolation\": \"agent\"}}` into its entry"
        )),
        (_, agent) => Ok(SignInSubject { spec, agent: agent.map(str::to_owned), private: false }),
    }
}

/// Returns all remote servers without an `Authorization` header of their own.
///
/// A server with per-agent accounts appears once for each agent that has signed in.
pub(crate) fn list_subjects(settings: &Settings) -> Result<Vec<SignInSubject>, String> {
    let set = read_servers(settings)?;
    let signed_in = CredentialStore::of_user()?.records_of_project(&settings.root);
    let mut subjects = Vec::new();
    for spec in set.entries().iter().filter_map(|entry| entry.spec.as_ref().ok()) {
        if !needs_sign_in(&spec.launch) {
            continue;
        }
        if !spec.oauth.per_agent {
            subjects.push(SignInSubject { spec: Arc::clone(spec), agent: None, private: false });
            continue;
        }
        let mut agents: Vec<&String> = signed_in
            .iter()
            .filter(|record| record.server == spec.name)
            .filter_map(|record| record.agent.as_ref())
            .collect();
        agents.sort();
        agents.dedup();
        subjects.extend(agents.into_iter().map(|agent| SignInSubject {
            spec: Arc::clone(spec),
            agent: Some(agent.clone()),
            private: false,
        }));
    }
    subjects.extend(private_subjects(settings));
    Ok(subjects)
}

fn private_subjects(settings: &Settings) -> Vec<SignInSubject> {
    let snapshot = Snapshot::load(settings);
    let agents = snapshot.entries().iter().filter_map(|entry| entry.agent());
    let mut subjects = Vec::new();
    for agent in agents {
        let servers = agent.servers.iter().filter(|entry| needs_sign_in(&entry.launch));
        let names = servers.map(|entry| entry.name.as_str());
        subjects.extend(names.filter_map(|name| private_subject_of(agent, name)));
    }
    subjects
}

fn private_subject(settings: &Settings, agent: &str, server: &str) -> Option<SignInSubject> {
    let snapshot = Snapshot::load(settings);
    let entry = snapshot.entries().iter().find(|entry| entry.name == agent)?;
    private_subject_of(entry.agent()?, server)
}

fn private_subject_of(agent: &Agent, server: &str) -> Option<SignInSubject> {
    let entry = agent.servers.iter().find(|entry| entry.name == server)?;
    let spec = Arc::new(ServerSpec::from_entry(entry)?);
    Some(SignInSubject { spec, agent: Some(agent.name.to_string()), private: true })
}

fn needs_sign_in(launch: &ServerLaunch) -> bool {
    match launch {
        ServerLaunch::Http { headers, .. } => {
            !headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"))
        }
        ServerLaunch::Stdio { .. } | ServerLaunch::Shared => false,
    }
}

fn read_servers(settings: &Settings) -> Result<ServerSet, String> {
    let file = GatewayFiles::locate(settings).mcp_config;
    if !file.found {
        return Ok(ServerSet::default());
    }
    let unreadable = |reason: String| format!("`{}` cannot be read: {reason}", file.path.display());
    let bytes =
        read_bounded(&file.path, MAX_FILE_BYTES).map_err(|error| unreadable(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| unreadable("it is no text".to_owned()))?;
    ServerSet::parse(&text).map_err(|error| unreadable(error.to_string()))
}
