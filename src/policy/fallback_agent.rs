//! Fallback agent of the gateway: the agent of a call whose caller is not verified.

use super::gateway_rules::GatewayRules;
use super::verdict::quote;
use crate::identity::{Caller, KnownBy};

/// Fallback agent if `GATEWAY_DEFAULT_AGENT` is not set and the rules have an entry for it.
pub(crate) const DEFAULT_AGENT: &str = "default";

/// Returns the named agent, or the fallback agent if the rules permit one.
///
/// `explicit` is the `agent_id` argument, `default_agent` is `GATEWAY_DEFAULT_AGENT`; an empty string counts as
/// missing. A verified or attested identity takes precedence and is handled before this call.
pub(crate) fn resolve_caller<'a>(
    rules: &GatewayRules,
    explicit: Option<&'a str>,
    default_agent: Option<&'a str>,
) -> Result<Caller, FallbackError> {
    let given = |name: Option<&'a str>| name.filter(|name| !name.is_empty());
    match (given(explicit), given(default_agent)) {
        (Some(name), _) if rules.has_agent(name) => Ok(Caller::new(name, KnownBy::Asserted)),
        (Some(name), _) => Err(FallbackError::UnknownAgent { name: quote(name) }),
        (None, _) if rules.deny_on_missing_agent => Err(FallbackError::MissingAgent),
        (None, Some(name)) if rules.has_agent(name) => Ok(fallback_caller(name)),
        (None, Some(name)) => Err(FallbackError::FallbackNotInRules { name: quote(name) }),
        (None, None) if rules.has_agent(DEFAULT_AGENT) => Ok(fallback_caller(DEFAULT_AGENT)),
        (None, None) => Err(FallbackError::NoFallback),
    }
}

fn fallback_caller(name: &str) -> Caller {
    Caller::new(name, KnownBy::Fallback)
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FallbackError {
    #[error("the rules have no agent {name}; give the `agent_id` of one that they have")]
    UnknownAgent {
        /// Quoted name.
        name: String,
    },
    /// No `agent_id`, and the rules set `deny_on_missing_agent`.
    #[error("`agent_id` is missing; say which agent is calling")]
    MissingAgent,
    #[error(
        "`agent_id` is missing and the fallback agent {name} is not in the rules; add it to the rules or change `GATEWAY_DEFAULT_AGENT`"
    )]
    FallbackNotInRules {
        /// Quoted name.
        name: String,
    },
    #[error(
        "`agent_id` is missing and there is no fallback; set `GATEWAY_DEFAULT_AGENT` or add an agent `default` to the rules"
    )]
    NoFallback,
}

impl FallbackError {
    /// Error code of the gateway.
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownAgent { .. } | Self::MissingAgent => "INVALID_AGENT_ID",
            Self::FallbackNotInRules { .. } => "FALLBACK_AGENT_NOT_IN_RULES",
            Self::NoFallback => "NO_FALLBACK_CONFIGURED",
        }
    }
}
