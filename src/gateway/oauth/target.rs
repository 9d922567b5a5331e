//! Which server a person signs in to, and as whom.

use std::path::Path;

use reqwest::Url;

use super::super::resolved::{Network, Resolved, resolve};
use super::super::secrets::Secrets as Hidden;
use super::super::server_config::ServerSpec;
use super::drawer::{Drawer, Drawers, Label};
use super::failure::SignInFailed;
use super::keeper::Keeper;
use super::record::Record;
use crate::catalog::{ServerLaunch, SignIn};

/// A server, with every variable put in, and the place where its sign-in lies.
pub struct SignInTarget {
    pub(super) server: String,
    pub(super) agent: Option<String>,
    pub(super) project: std::path::PathBuf,
    pub(super) url: Url,
    pub(super) written_url: String,
    pub(super) network: Network,
    pub(super) settings: SignIn,
    pub(super) hidden: Hidden,
    pub(super) drawer: Drawer,
}

impl SignInTarget {
    /// The server of `spec` in the project at `root`, signed in to by `agent` alone where there is one.
    pub fn new(root: &Path, spec: &ServerSpec, agent: Option<&str>) -> Result<Self, SignInFailed> {
        let failed = |reason: String| SignInFailed::Failed { server: spec.name.clone(), reason };
        let ServerLaunch::Http { url: written, .. } = &spec.launch else {
            let reason = "it is a program on this machine".to_owned();
            return Err(SignInFailed::NotAsked { server: spec.name.clone(), reason });
        };
        let lookup = |name: &str| std::env::var(name).ok();
        let (resolved, hidden) = resolve(spec, root, &lookup).map_err(failed)?;
        let Resolved::Network(network) = resolved else {
            return Err(failed("it is no server on the network".to_owned()));
        };
        if network.has_own_authorization() {
            let reason = "its entry has an `Authorization` header of its own".to_owned();
            return Err(SignInFailed::NotAsked { server: spec.name.clone(), reason });
        }
        let url =
            Url::parse(&network.url).map_err(|_| failed("its `url` is malformed".to_owned()))?;
        let drawers = Drawers::of_user().map_err(|reason| SignInFailed::Store { reason })?;
        let label = Label { project: root, server: &spec.name, agent, url: &network.url };
        Ok(Self {
            server: spec.name.clone(),
            agent: agent.map(str::to_owned),
            project: root.to_path_buf(),
            drawer: drawers.drawer(label),
            url,
            written_url: written.as_written().to_owned(),
            network,
            settings: spec.sign_in.clone(),
            hidden,
        })
    }

    /// What is there of a sign-in, without its secrets.
    pub fn record(&self) -> Result<Option<Record>, SignInFailed> {
        self.drawer.record().map_err(|reason| SignInFailed::Store { reason })
    }

    /// Forgets the sign-in; whether there was one.
    pub async fn forget(&self) -> Result<bool, SignInFailed> {
        let store = |reason| SignInFailed::Store { reason };
        let _lock = self.drawer.lock().await.map_err(store)?;
        self.drawer.clear().await.map_err(store)
    }

    /// The server's name.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// What a person types to sign in.
    pub fn command(&self) -> String {
        command(&self.server, self.agent.as_deref())
    }

    pub(in super::super) fn into_keeper(self) -> Keeper {
        Keeper::new(self)
    }
}

/// What a person types to sign in to `server`.
fn command(server: &str, agent: Option<&str>) -> String {
    let agent = agent.map(|agent| format!(" --agent {}", quoted(agent))).unwrap_or_default();
    format!("adjutant auth login {}{agent}", quoted(server))
}

/// A word as a shell takes it: names come from files, and this is copied into a terminal.
fn quoted(word: &str) -> String {
    let plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':' | '@');
    if !word.is_empty() && !word.starts_with('-') && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_can_be_copied_into_a_terminal() {
        assert_eq!(command("linear", None), "adjutant auth login linear");
        assert_eq!(command("x", Some("dev")), "adjutant auth login x --agent dev");
        assert_eq!(command("a; rm 'x'", None), r"adjutant auth login 'a; rm '\''x'\'''");
    }
}
