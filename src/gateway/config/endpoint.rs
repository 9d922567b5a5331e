//! Resolves the variables in a server entry.
//!
//! Only the resolved types hold secrets in clear text; their `Debug` output contains none.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::{env, fmt};

use super::servers::ServerSpec;
use crate::catalog::{HttpTransportKind, ServerLaunch, Template};
use crate::gateway::downstream::StdioCommand;
use crate::process::find_program;
use crate::util::Redactor;

/// Resolved entry, including secrets.
pub(crate) enum ServerEndpoint {
    Stdio(StdioCommand),
    Http(HttpEndpoint),
}

/// URL and headers of an HTTP server.
pub(crate) struct HttpEndpoint {
    pub(crate) url: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) transport: HttpTransportKind,
    /// Id of a client that was registered manually, if any.
    pub(crate) client_id: Option<String>,
    pub(crate) client_secret: Option<String>,
}

impl HttpEndpoint {
    /// Returns true if the entry has an `Authorization` header of its own.
    pub(crate) fn has_own_authorization(&self) -> bool {
        self.headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"))
    }
}

impl fmt::Debug for HttpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").field("dialect", &self.transport).finish_non_exhaustive()
    }
}

impl ServerSpec {
    /// Returns the reason why the server cannot be started, without starting it.
    ///
    /// Detects unset variables and a missing program. Relative directories are below `root`.
    pub fn start_obstacle(&self, root: &Path) -> Option<String> {
        match resolve(self, root) {
            Err(reason) => Some(reason),
            Ok((ServerEndpoint::Stdio(launch), _)) => {
                let own_path = launch.variables.get("PATH").map(OsString::from);
                let folders = own_path.or_else(|| env::var_os("PATH"));
                // A program name with a slash is relative to the directory of the server.
                let name = match launch.program.contains('/') {
                    true => launch.dir.join(&launch.program),
                    false => launch.program.into(),
                };
                let found = find_program(&name, folders.as_deref());
                let ServerLaunch::Stdio { command, .. } = &self.launch else { return None };
                // The name as written: a variable in it can be secret.
                found.is_none().then(|| format!("there is no program `{}`", command.as_written()))
            }
            Ok((ServerEndpoint::Http(_), _)) => None,
        }
    }
}

/// Resolves the environment variables in `spec`; the error is a sentence about the server.
pub(crate) fn resolve(
    spec: &ServerSpec,
    root: &Path,
) -> Result<(ServerEndpoint, Redactor), String> {
    let seen = RefCell::new(Vec::new());
    let noting = |name: &str| {
        let value = env::var(name).ok()?;
        seen.borrow_mut().push((value.clone(), format!("${{{name}}}")));
        Some(value)
    };
    let resolved = resolve_launch(spec, root, &noting)?;
    let mut secrets = seen.into_inner();
    // Literal values are as secret as variables. The variable's placeholder comes first, since it says more.
    let values = match &resolved {
        ServerEndpoint::Stdio(launch) => &launch.variables,
        ServerEndpoint::Http(network) => &network.headers,
    };
    secrets.extend(values.iter().map(|(name, value)| (value.clone(), format!("[{name}]"))));
    Ok((resolved, Redactor::new(secrets)))
}

fn resolve_launch(
    spec: &ServerSpec,
    root: &Path,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<ServerEndpoint, String> {
    let home = dirs::home_dir();
    let home = home.as_deref().and_then(Path::to_str);
    let text =
        |template: &Template| template.resolve(lookup, home).map_err(|unset| unset.to_string());
    let map = |map: &BTreeMap<String, Template>| {
        let resolved = map.iter().map(|(name, value)| Ok((name.clone(), text(value)?)));
        resolved.collect::<Result<_, String>>()
    };
    match &spec.launch {
        ServerLaunch::Stdio { command, args, env, cwd } => {
            Ok(ServerEndpoint::Stdio(StdioCommand {
                program: text(command)?,
                arguments: args.iter().map(text).collect::<Result<_, String>>()?,
                variables: map(env)?,
                dir: match cwd {
                    // Relative directories are below the project root, independent of the working directory of the gateway.
                    Some(cwd) => root.join(text(cwd)?),
                    None => root.to_path_buf(),
                },
            }))
        }
        ServerLaunch::Http { url, headers, dialect } => Ok(ServerEndpoint::Http(HttpEndpoint {
            url: text(url)?,
            headers: map(headers)?,
            transport: *dialect,
            client_id: spec.oauth.client_id.as_ref().map(text).transpose()?,
            client_secret: spec.oauth.client_secret.as_ref().map(text).transpose()?,
        })),
        ServerLaunch::Shared => Err("its entry says nothing about how to reach it".to_owned()),
    }
}
