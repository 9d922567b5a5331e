//! From what is written in a server's entry to what it is started with.
//!
//! The only place where secrets exist in the clear; the types print nothing of them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use super::launch::Launch;
use super::secrets::Secrets;
use super::server_config::{ServerSpec, Wire};
use crate::catalog::{ServerLaunch, Template};

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
    pub(super) wire: Wire,
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
        f.debug_struct("Network").field("wire", &self.wire).finish_non_exhaustive()
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
    Ok((resolved, Secrets::new(seen.into_inner())))
}

fn resolve_launch(
    spec: &ServerSpec,
    root: &Path,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<Resolved, String> {
    let text = |template: &Template| expand(&template.0, lookup);
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
        ServerLaunch::Http { url, headers } => Ok(Resolved::Network(Network {
            url: text(url)?,
            headers: map(headers)?,
            wire: spec.wire,
            client_id: spec.sign_in.client_id.as_ref().map(text).transpose()?,
            client_secret: spec.sign_in.client_secret.as_ref().map(text).transpose()?,
        })),
        ServerLaunch::Shared => Err("its entry says nothing about how to reach it".to_owned()),
    }
}

/// Puts in `${VAR}` and `${VAR:-default}`; everything else, a lone `$` included, stays.
fn expand(written: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = written;
    while let Some((before, from)) = rest.split_once("${") {
        let Some((inside, behind)) = from.split_once('}') else { break };
        out.push_str(before);
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        let value = lookup(name).filter(|value| default.is_none() || !value.is_empty());
        let value = value.or_else(|| default.map(str::to_owned));
        out.push_str(&value.ok_or_else(|| format!("the variable `{name}` is not set"))?);
        rest = behind;
    }
    out.push_str(rest);
    Ok(shellexpand::tilde(&out).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case("a${KEY}b", Ok("ak-1b"))]
    #[test_case("${NONE:-x y}", Ok("x y"))]
    #[test_case("${EMPTY:-x}", Ok("x"))]
    #[test_case("^a$ $KEY ${", Ok("^a$ $KEY ${"); "only braces count")]
    #[test_case("${NONE}", Err("the variable `NONE` is not set"))]
    fn variables_are_put_in(written: &str, expected: Result<&str, &str>) {
        let lookup = |name: &str| match name {
            "KEY" => Some("k-1".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        let expected = expected.map(str::to_owned).map_err(str::to_owned);
        assert_eq!(expand(written, &lookup), expected);
    }
}
