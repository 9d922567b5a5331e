//! Classification of API failures: transient or permanent, and the remedy.

/// API failure, classified by HTTP status, error type and text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiFailure {
    /// The API key or the sign-in is rejected.
    Unauthorized,
    NoCredit,
    /// The model does not exist, or not for this account.
    UnknownModel,
    /// The request is invalid, for example too large.
    InvalidRequest,
    RateLimited,
    Overloaded,
    Unreachable,
    Unknown,
}

/// Texts of network errors, as printed by Claude Code 2.1.197 and 2.1.325 and by Node.js.
const NETWORK_ERRORS: [&str; 9] = [
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

impl ApiFailure {
    /// Classifies by HTTP status (if there was a response), the CLI's error type, and the error text.
    ///
    /// Error types of 2.1.197 and 2.1.325: `billing_error` (400, no credit), `authentication_failed` (401, 403),
    /// `model_not_found` (404), `rate_limit` (429), `invalid_request` (413), `unknown` (400), and `server_error` for
    /// 500, 529 and requests without response.
    pub(crate) fn classify(status: Option<u64>, kind: Option<&str>, text: &str) -> Self {
        let text = text.to_lowercase();
        match (status, kind.unwrap_or_default()) {
            (_, "billing_error") | (Some(402), _) => Self::NoCredit,
            _ if text.contains("credit balance") => Self::NoCredit,
            (Some(401 | 403), _) | (None, "authentication_failed") => Self::Unauthorized,
            (Some(404), _) | (None, "model_not_found") => Self::UnknownModel,
            (Some(429), _) | (None, "rate_limit") => Self::RateLimited,
            (Some(500..), _) | (None, "overloaded") => Self::Overloaded,
            (Some(408 | 409), _) | (None, "server_error") => Self::Unreachable,
            (Some(_), _) | (None, "invalid_request") => Self::InvalidRequest,
            (None, _) if NETWORK_ERRORS.iter().any(|words| text.contains(words)) => {
                Self::Unreachable
            }
            (None, _) => Self::Unknown,
        }
    }

    /// Returns `true` if a retry may succeed.
    pub(crate) fn is_transient(self) -> bool {
        match self {
            Self::RateLimited | Self::Overloaded | Self::Unreachable => true,
            Self::Unauthorized
            | Self::NoCredit
            | Self::UnknownModel
            | Self::InvalidRequest
            | Self::Unknown => false,
        }
    }

    /// Returns `true` if a retry cannot succeed.
    ///
    /// Neither this nor [`Self::is_transient`] holds for unknown failures.
    pub(crate) fn is_permanent(self) -> bool {
        match self {
            Self::Unauthorized | Self::NoCredit | Self::UnknownModel | Self::InvalidRequest => true,
            Self::RateLimited | Self::Overloaded | Self::Unreachable | Self::Unknown => false,
        }
    }

    /// Returns the remedy: one sentence without a full stop.
    pub(crate) fn help(self) -> &'static str {
        match self {
            Self::Unauthorized => {
                "the credentials are not accepted, and trying again will not help: sign in to Claude Code, or set ANTHROPIC_API_KEY"
            }
            Self::NoCredit => {
                "the account has no credit left, and trying again will not help: add credit, or use another account"
            }
            Self::UnknownModel => {
                "the API does not know the model, or not for this account, and trying again will not help: look at `model` in its agent.md or agents/defaults.yaml"
            }
            Self::InvalidRequest => {
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

    // Literal output of the CLI against a scripted API: 2.1.325, and 2.1.197 if it differs.
    #[test_case(Some(400), "billing_error", "Credit balance is too low" => ApiFailure::NoCredit)]
    #[test_case(Some(400), "unknown", "API Error: 400 messages.1: bad thing" => ApiFailure::InvalidRequest)]
    #[test_case(Some(401), "authentication_failed", "Invalid API key · Fix external API key" => ApiFailure::Unauthorized)]
    #[test_case(Some(403), "authentication_failed", "Failed to authenticate. API Error: 403 no" => ApiFailure::Unauthorized)]
    #[test_case(Some(404), "model_not_found", "There's an issue with the selected model (x)." => ApiFailure::UnknownModel)]
    #[test_case(Some(413), "invalid_request", "Request too large (max 32MB)." => ApiFailure::InvalidRequest)]
    #[test_case(Some(429), "rate_limit", "API Error: Request rejected (429) · later" => ApiFailure::RateLimited)]
    #[test_case(Some(500), "server_error", "API Error: 500 Internal server error." => ApiFailure::Overloaded)]
    #[test_case(Some(529), "server_error", "API Error: Repeated 529 Overloaded errors." => ApiFailure::Overloaded)]
    #[test_case(None, "server_error", "API Error: Connection refused — a firewall or proxy may be blocking it (ECONNREFUSED)" => ApiFailure::Unreachable)]
    #[test_case(None, "server_error", "API Error: Connection dropped (ECONNRESET)." => ApiFailure::Unreachable)]
    #[test_case(None, "server_error", "API Error: Unable to connect to API (ConnectionRefused)" => ApiFailure::Unreachable)]
    fn errors_of_the_cli_are_classified(status: Option<u64>, kind: &str, text: &str) -> ApiFailure {
        // The type suffices if a release changes the text, and the text if there is no type.
        let without_kind = ApiFailure::classify(status, None, text);
        assert_eq!(ApiFailure::classify(status, Some(kind), "other words"), without_kind);
        without_kind
    }

    #[test_case(None, Some("rate_limit") => ApiFailure::RateLimited)]
    #[test_case(None, Some("overloaded") => ApiFailure::Overloaded)]
    #[test_case(None, Some("unknown") => ApiFailure::Unknown)]
    #[test_case(None, None => ApiFailure::Unknown)]
    fn errors_without_a_status_are_classified(
        status: Option<u64>,
        kind: Option<&str>,
    ) -> ApiFailure {
        ApiFailure::classify(status, kind, "something else")
    }

    #[test]
    fn dns_failures_are_network_failures() {
        for text in [
            "API Error: Can't reach the API server — check your internet or DNS (ENOTFOUND)",
            "API Error: Unable to connect to API (FailedToOpenSocket)",
        ] {
            assert_eq!(ApiFailure::classify(None, None, text), ApiFailure::Unreachable);
        }
    }
}
