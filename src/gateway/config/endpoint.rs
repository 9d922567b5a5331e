//! From what is written in a server's entry to what it is started with.
//!
//! The only place where secrets exist in the clear; the types print nothing of them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::{env, fmt};

use super::launch::Launch;
use super::secrets::Secrets;
use super::server_config::ServerSpec;
use crate::base::find_program;
use crate::catalog::{Dialect, ServerLaunch, Template};

/// What a server is started with, secrets included.
pub(super) enum Resolved {
    /// A process.
    Process(Launch),
    /// A place on the network.
    Network(Network),
}

/// Where a server is and what is sent with every request.
pub(super) struct Network {
    pub(super) url: String,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) dialect: Dialect,
    /// The client that was registered by hand, if one was.
    pub(super) client_id: Option<String>,
    pub(super) client_secret: Option<String>,
}

impl Network {
    /// Whether its entry says itself who we are.
    pub(super) fn has_own_authorization(&self) -> bool {
        self.headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"))
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").field("dialect", &self.dialect).finish_non_exhaustive()
    }
}

impl ServerSpec {
    /// What keeps the server from being started here, seen without starting it: a variable that is not set, a program
    /// that is not there. Relative folders are under `root`.
    pub fn obstacle(&self, root: &Path) -> Option<String> {
        match resolve(self, root, &|name| env::var(name).ok()) {
            Err(reason) => Some(reason),
            Ok((Resolved::Process(launch), _)) => {
                let own_path = launch.variables.get("PATH").map(OsString::from);
                let folders = own_path.or_else(|| env::var_os("PATH"));
                // With a folder in its name it is looked for from the server's own.
                let name = match launch.program.contains('/') {
                    true => launch.folder.join(&launch.program),
                    false => launch.program.into(),
                };
                let found = find_program(&name, folders.as_deref());
                let ServerLaunch::Stdio { command, .. } = &self.launch else { return None };
                // As written: a variable in it may be a secret.
                found.is_none().then(|| format!("there is no program `{}`", command.as_written()))
            }
            Ok((Resolved::Network(_), _)) => None,
        }
    }
}

/// Resolves `spec` with the variables of `lookup`; the error is a sentence about the server.
pub(super) fn resolve(
    spec: &ServerSpec,
    root: &Path,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<(Resolved, Secrets), String> {
    let seen = RefCell::new(Vec::new());
    let noting = |name: &str| {
        let value = lookup(name)?;
        seen.borrow_mut().push((value.clone(), format!("${{{name}}}")));
        Some(value)
    };
    let resolved = resolve_launch(spec, root, &noting)?;
    let mut secrets = seen.into_inner();
    // What is written out is as secret as what a variable brings; a variable's own name says more.
    let values = match &resolved {
        Resolved::Process(launch) => &launch.variables,
        Resolved::Network(network) => &network.headers,
    };
    secrets.extend(values.iter().map(|(name, value)| (value.clone(), format!("[{name}]"))));
    Ok((resolved, Secrets::new(secrets)))
}

fn resolve_launch(
    spec: &ServerSpec,
    root: &Path,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<Resolved, String> {
    let home = dirs::home_dir();
    let home = home.as_deref().and_then(Path::to_str);
    let text =
        |template: &Template| template.resolve(lookup, home).map_err(|unset| unset.to_string());
    let map = |map: &BTreeMap<String, Template>| {
        map.iter()
            .map(|(name, value)| Ok((name.clone(), text(value)?)))
            .collect::<Result<_, String>>()
    };
    match &spec.launch {
        ServerLaunch::Stdio { command, args, env, cwd } => Ok(Resolved::Process(Launch {
            program: text(command)?,
            arguments: args.iter().map(text).collect::<Result<_, String>>()?,
            variables: map(env)?,
            folder: match cwd {
                // Relative folders are the project's, wherever the gateway was started from.
                Some(cwd) => root.join(text(cwd)?),
                None => root.to_path_buf(),
            },
        })),
        ServerLaunch::Http { url, headers, dialect } => Ok(Resolved::Network(Network {
            url: text(url)?,
            headers: map(headers)?,
            dialect: *dialect,
            client_id: spec.sign_in.client_id.as_ref().map(text).transpose()?,
            client_secret: spec.sign_in.client_secret.as_ref().map(text).transpose()?,
        })),
        ServerLaunch::Shared => Err("its entry says nothing about how to reach it".to_owned()),
    }
}
