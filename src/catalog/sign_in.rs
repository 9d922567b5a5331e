//! How Adjutant signs in to a server on the network.

use serde::Serialize;

use super::model::Template;
use super::node::{Fields, Node};
use super::problem::Problems;

const KEYS: &[&str] =
    &["client_id", "client_secret", "scopes", "redirect_port", "private_addresses"];

/// What is said about signing in to a server. Most servers tell everything themselves, and nothing
/// is said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SignIn {
    /// The client that was registered by hand; without one, Adjutant registers itself.
    pub client_id: Option<Template>,
    /// Its secret, as written.
    pub client_secret: Option<Template>,
    /// What is asked for, beside what the server asks for itself.
    pub scopes: Vec<String>,
    /// The port of the address that the browser comes back to; any free one where nothing is said.
    pub redirect_port: Option<u16>,
    /// Whether what the server names may lie in a private network.
    pub private_addresses: bool,
    /// Whether every agent signs in by itself.
    pub per_agent: bool,
}

impl SignIn {
    /// Whether nothing is said.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Reads `auth` of a server in an agent's file.
pub(super) fn read(fields: &Fields<'_>, problems: &mut Problems) -> SignIn {
    let node = fields.get("auth");
    let Some(auth) = node.as_ref().and_then(|node| node.fields(problems)) else {
        return SignIn::default();
    };
    auth.refuse_unknown(KEYS, problems);
    if let Some(node) = &node
        && auth.get("client_secret").is_some()
        && auth.get("client_id").is_none()
    {
        let message = format!("`{}` has a `client_secret` and no `client_id`", node.path);
        problems.error("missing-key", node.at_key(), message);
    }
    SignIn {
        client_id: auth.get("client_id").and_then(|node| node.template(problems)),
        client_secret: auth.get("client_secret").and_then(|node| node.template(problems)),
        scopes: auth.get("scopes").map(|node| scopes(&node, problems)).unwrap_or_default(),
        redirect_port: auth
            .get("redirect_port")
            .and_then(|node| node.whole(1..=65_535, problems))
            .and_then(|port| u16::try_from(port).ok()),
        private_addresses: auth
            .get("private_addresses")
            .and_then(|node| node.boolean(problems))
            .unwrap_or(false),
        // A server of an agent's own is signed in to by that agent alone in any case.
        per_agent: false,
    }
}

fn scopes(node: &Node<'_>, problems: &mut Problems) -> Vec<String> {
    let items = node.items_or_text(problems).unwrap_or_default();
    let texts = items.iter().filter_map(|item| item.text(problems));
    texts.flat_map(str::split_whitespace).map(str::to_owned).collect()
}
