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

/// What the CLI says when there was no answer at all.
const NETWORK: [&str; 8] = [
    "connection error",
    "unable to connect",
    "connection refused",
    "econnrefused",
    "econnreset",
    "fetch failed",
    "socket",
    "timed out",
];

impl Trouble {
    /// From the HTTP status, where there was an answer, and what was said.
    pub fn of(status: Option<u64>, said: &str) -> Self {
        let said = said.to_lowercase();
        match status {
            _ if said.contains("credit balance") => Self::NoCredit,
            Some(402) => Self::NoCredit,
            Some(401 | 403) => Self::BadKey,
            Some(404) => Self::UnknownModel,
            Some(408 | 409) => Self::Unreachable,
            Some(429) => Self::RateLimited,
            Some(500..) => Self::Overloaded,
            Some(_) => Self::Refused,
            None if NETWORK.iter().any(|words| said.contains(words)) => Self::Unreachable,
            None => Self::Unknown,
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

    #[test_case(Some(400), "Credit balance is too low" => Trouble::NoCredit)]
    #[test_case(Some(400), "API Error: 400 bad thing" => Trouble::Refused)]
    #[test_case(Some(401), "Invalid API key" => Trouble::BadKey)]
    #[test_case(Some(404), "There's an issue with the selected model" => Trouble::UnknownModel)]
    #[test_case(Some(529), "Overloaded" => Trouble::Overloaded)]
    #[test_case(Some(429), "rate limit" => Trouble::RateLimited)]
    #[test_case(None, "API Error: Connection error." => Trouble::Unreachable)]
    #[test_case(None, "something else" => Trouble::Unknown)]
    fn statuses_and_words(status: Option<u64>, said: &str) -> Trouble {
        Trouble::of(status, said)
    }
}
