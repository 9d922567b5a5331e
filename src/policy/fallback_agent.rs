//! The gateway's chain: which agent is meant where nothing sure is known about the caller.

use super::evaluation::quoted;
use super::rules::GatewayRules;
use crate::identity::{Caller, KnownBy};

/// The agent that stands in where none is named, if the rules have it.
pub const DEFAULT_AGENT: &str = "default";

/// Finds the agent: the one that is named, or the fallback where the rules permit one.
///
/// `explicit` is `agent_id`, `default_agent` is `GATEWAY_DEFAULT_AGENT`; an empty text counts as missing.
/// A certain or attested identity comes before all of this and is not asked about here.
pub fn resolve_agent<'a>(
    rules: &GatewayRules,
    explicit: Option<&'a str>,
    default_agent: Option<&'a str>,
) -> Result<Caller, ChainError> {
    let given = |name: Option<&'a str>| name.filter(|name| !name.is_empty());
    match (given(explicit), given(default_agent)) {
        (Some(name), _) if rules.knows(name) => Ok(Caller::new(name, KnownBy::Asserted)),
        (Some(name), _) => Err(ChainError::UnknownAgent { name: quoted(name) }),
        (None, _) if rules.deny_on_missing_agent => Err(ChainError::MissingAgent),
        (None, Some(name)) if rules.knows(name) => Ok(fallback(name)),
        (None, Some(name)) => Err(ChainError::FallbackNotInRules { name: quoted(name) }),
        (None, None) if rules.knows(DEFAULT_AGENT) => Ok(fallback(DEFAULT_AGENT)),
        (None, None) => Err(ChainError::NoFallback),
    }
}

fn fallback(name: &str) -> Caller {
    Caller::new(name, KnownBy::Fallback)
}

/// Why no agent was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// `agent_id` is not in the rules.
    #[error("the rules have no agent {name}; give the `agent_id` of one that they have")]
    UnknownAgent {
        /// The name that was given, quoted.
        name: String,
    },
    /// No `agent_id`, and the rules want one.
    #[error("`agent_id` is missing; say which agent is calling")]
    MissingAgent,
    /// `GATEWAY_DEFAULT_AGENT` is not in the rules.
    #[error(
        "`agent_id` is missing and the fallback agent {name} is not in the rules; add it to the rules or change `GATEWAY_DEFAULT_AGENT`"
    )]
    FallbackNotInRules {
        /// The fallback's name, quoted.
        name: String,
    },
    /// Nothing to fall back to.
    #[error(
        "`agent_id` is missing and there is no fallback; set `GATEWAY_DEFAULT_AGENT` or add an agent `default` to the rules"
    )]
    NoFallback,
}

impl ChainError {
    /// The code of the gateway's error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownAgent { .. } | Self::MissingAgent => "INVALID_AGENT_ID",
            Self::FallbackNotInRules { .. } => "FALLBACK_AGENT_NOT_IN_RULES",
            Self::NoFallback => "NO_FALLBACK_CONFIGURED",
        }
    }
}
