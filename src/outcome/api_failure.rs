//! What is wrong with the API: whether it may pass by itself, and what to do about it if not.

/// Trouble with the API, as far as its status and the CLI's words tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The key or the sign-in is not accepted.
    BadKey,
    /// The account has no money left.
    NoCredit,
    /// There is no such model, or not for this account.
    UnknownModel,
    /// The request is too large, or otherwise not taken.
    Refused,
    /// Too many requests for this account just now.
    RateLimited,
    /// The API has too much to do, or is down.
    Overloaded,
    /// The API cannot be reached.
    Unreachable,
    /// Something else.
    Unknown,
}

/// What both versions were seen to say when there was no answer at all, and what Node says.
const NETWORK: [&str; 9] = [
    "unable to connect",
    "connection refused",
    "connection dropped",
    "can't reach the api",
    "connection error",
    "econnreset",
    "fetch failed",
    "socket",
    "timed out",
];

impl Trouble {
    /// From the HTTP status, where there was an answer, the CLI's word for the kind of trouble, and what was said.
    ///
    /// The words that 2.1.197 and 2.1.325 were seen to use, each for the same: `billing_error` (400, no credit),
    /// `authentication_failed` (401, 403), `model_not_found` (404), `rate_limit` (429), `invalid_request` (413),
    /// `unknown` (400), and `server_error` for 500, 529 and everything that never had an answer.
    pub fn of(status: Option<u64>, kind: Option<&str>, said: &str) -> Self {
        let said = said.to_lowercase();
        match (status, kind.unwrap_or_default()) {
            (_, "billing_error") | (Some(402), _) => Self::NoCredit,
            _ if said.contains("credit balance") => Self::NoCredit,
            (Some(401 | 403), _) | (None, "authentication_failed") => Self::BadKey,
            (Some(404), _) | (None, "model_not_found") => Self::UnknownModel,
            (Some(429), _) | (None, "rate_limit") => Self::RateLimited,
            (Some(500..), _) | (None, "overloaded") => Self::Overloaded,
            (Some(408 | 409), _) | (None, "server_error") => Self::Unreachable,
            (Some(_), _) | (None, "invalid_request") => Self::Refused,
            (None, _) if NETWORK.iter().any(|words| said.contains(words)) => Self::Unreachable,
            (None, _) => Self::Unknown,
        }
    }

    /// Whether it may be gone the next time.
    pub fn may_pass(self) -> bool {
        match self {
            Self::RateLimited | Self::Overloaded | Self::Unreachable => true,
            Self::BadKey | Self::NoCredit | Self::UnknownModel | Self::Refused | Self::Unknown => {
                false
            }
        }
    }

    /// Whether it will certainly be there the next time, so that trying again is no use.
    pub fn will_stay(self) -> bool {
        match self {
            Self::BadKey | Self::NoCredit | Self::UnknownModel | Self::Refused => true,
            Self::RateLimited | Self::Overloaded | Self::Unreachable | Self::Unknown => false,
        }
    }

    /// What to do, one sentence without a full stop.
    pub fn help(self) -> &'static str {
        match self {
            Self::BadKey => {
                "the credentials are not accepted, and trying again will not help: sign in to Claude Code, or set ANTHROPIC_API_KEY"
            }
            Self::NoCredit => {
                "the account has no credit left, and trying again will not help: add credit, or use another account"
            }
            Self::UnknownModel => {
                "the API does not know the model, or not for this account, and trying again will not help: look at `model` in its agent.md or agents/defaults.yaml"
            }
            Self::Refused => {
                "the API does not take the request, and trying again will not help: ask for less, or look at what it said"
            }
            Self::RateLimited => {
                "the account makes too many requests just now; it may pass: try again later"
            }
            Self::Overloaded => "the API is busy or down; it may pass: try again later",
            Self::Unreachable => {
                "the API cannot be reached; it may pass: look at the network and ANTHROPIC_BASE_URL, and try again"
            }
            Self::Unknown => "try again; if it stays so, run `adjutant doctor --live`",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    // Word for word what the CLI said of a scripted API: 2.1.325, and 2.1.197 where it differs.
    #[test_case(Some(400), "billing_error", "Credit balance is too low" => Trouble::NoCredit)]
    #[test_case(Some(400), "unknown", "API Error: 400 messages.1: bad thing" => Trouble::Refused)]
    #[test_case(Some(401), "authentication_failed", "Invalid API key · Fix external API key" => Trouble::BadKey)]
    #[test_case(Some(403), "authentication_failed", "Failed to authenticate. API Error: 403 no" => Trouble::BadKey)]
    #[test_case(Some(404), "model_not_found", "There's an issue with the selected model (x)." => Trouble::UnknownModel)]
    #[test_case(Some(413), "invalid_request", "Request too large (max 32MB)." => Trouble::Refused)]
    #[test_case(Some(429), "rate_limit", "API Error: Request rejected (429) · later" => Trouble::RateLimited)]
    #[test_case(Some(500), "server_error", "API Error: 500 Internal server error." => Trouble::Overloaded)]
    #[test_case(Some(529), "server_error", "API Error: Repeated 529 Overloaded errors." => Trouble::Overloaded)]
    #[test_case(None, "server_error", "API Error: Connection refused — a firewall or proxy may be blocking it (ECONNREFUSED)" => Trouble::Unreachable)]
    #[test_case(None, "server_error", "API Error: Connection dropped (ECONNRESET)." => Trouble::Unreachable)]
    #[test_case(None, "server_error", "API Error: Unable to connect to API (ConnectionRefused)" => Trouble::Unreachable)]
    fn what_the_cli_says(status: Option<u64>, kind: &str, said: &str) -> Trouble {
        // Where a release says it in other words, the kind is enough; where it has no kind, the words are.
        let without_kind = Trouble::of(status, None, said);
        assert_eq!(Trouble::of(status, Some(kind), "other words"), without_kind);
        without_kind
    }

    #[test_case(None, Some("rate_limit") => Trouble::RateLimited)]
    #[test_case(None, Some("overloaded") => Trouble::Overloaded)]
    #[test_case(None, Some("unknown") => Trouble::Unknown)]
    #[test_case(None, None => Trouble::Unknown)]
    fn without_a_status(status: Option<u64>, kind: Option<&str>) -> Trouble {
        Trouble::of(status, kind, "something else")
    }

    #[test]
    fn a_name_that_is_not_found_is_the_network() {
        for said in [
            "API Error: Can't reach the API server — check your internet or DNS (ENOTFOUND)",
            "API Error: Unable to connect to API (FailedToOpenSocket)",
        ] {
            assert_eq!(Trouble::of(None, None, said), Trouble::Unreachable);
        }
    }
}
