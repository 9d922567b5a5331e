//! Environment variables of an agent's process: an allow-list, never the whole environment of the
//! server.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::catalog::{Agent, Template};
use crate::config::ADJUTANT_AGENT;

/// An environment variable, without its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct PlannedVariable {
    pub name: String,
    pub source: VariableSource,
    pub reason: &'static str,
}

/// Source of a variable's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum VariableSource {
    /// Environment of Adjutant.
    Inherited,
    /// Agent file, as written there.
    Agent(Template),
    /// Fixed value.
    Fixed(String),
}

/// Allow-listed names with a common reason. A trailing `*` matches any suffix.
struct VariableGroup {
    reason: &'static str,
    /// Variable that must be set for the group to apply.
    required_variable: Option<&'static str>,
    names: &'static [&'static str],
}

/// Variables that say how to reach the network. A sandbox has no network, so none of them enters it.
pub(super) const NETWORK_VARIABLES: &[&str] = &[
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
];

const INHERITED_GROUPS: &[VariableGroup] = &[
    VariableGroup {
        reason: "programs and shells need it",
        required_variable: None,
        names: &[
            "PATH",
            "HOME",
            "USER",
            "LOGNAME",
            "SHELL",
            "TMPDIR",
            "TZ",
            "LANG",
            "LANGUAGE",
            "LC_*",
            "XDG_CONFIG_HOME",
            "XDG_CACHE_HOME",
            "XDG_DATA_HOME",
            "XDG_STATE_HOME",
        ],
    },
    VariableGroup {
        reason: "the way to the network",
        required_variable: None,
        names: NETWORK_VARIABLES,
    },
    VariableGroup {
        reason: "the model's API",
        required_variable: None,
        names: &[
            "ANTHROPIC_*",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "CLAUDE_CONFIG_DIR",
            "CLAUDE_CODE_USE_BEDROCK",
            "CLAUDE_CODE_USE_VERTEX",
            "CLAUDE_CODE_USE_FOUNDRY",
            "CLAUDE_CODE_SKIP_BEDROCK_AUTH",
            "CLAUDE_CODE_SKIP_VERTEX_AUTH",
            "CLAUDE_CODE_SKIP_FOUNDRY_AUTH",
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
            "MAX_THINKING_TOKENS",
            "API_TIMEOUT_MS",
        ],
    },
    VariableGroup {
        reason: "the user's choice about traffic",
        required_variable: None,
        names: &[
            "DISABLE_TELEMETRY",
            "DISABLE_ERROR_REPORTING",
            "DO_NOT_TRACK",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        ],
    },
    VariableGroup {
        reason: "the model's API is on Amazon Bedrock",
        required_variable: Some("CLAUDE_CODE_USE_BEDROCK"),
        names: &["AWS_*"],
    },
    VariableGroup {
        reason: "the model's API is on Google Vertex AI",
        required_variable: Some("CLAUDE_CODE_USE_VERTEX"),
        names: &["CLOUD_ML_REGION", "GOOGLE_*", "GCLOUD_PROJECT", "VERTEX_REGION_*"],
    },
    VariableGroup {
        reason: "the model's API is on Microsoft Foundry",
        required_variable: Some("CLAUDE_CODE_USE_FOUNDRY"),
        names: &["AZURE_*"],
    },
];

const FIXED_VARIABLES: [(&str, &str, &str); 3] = [
    ("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1", "no command of an agent outlives its turn"),
    ("DISABLE_AUTOUPDATER", "1", "a subagent does not update the program it runs in"),
    (
        "CLAUDE_CODE_DISABLE_AUTO_MEMORY",
        "1",
        "an agent remembers what its memory.md says, nothing else",
    ),
];

/// Returns the variables for `agent` in order of name.
///
/// `present` holds the names set in our environment.
pub(crate) fn variables(agent: &Agent, present: &BTreeSet<String>) -> Vec<PlannedVariable> {
    let mut planned: BTreeMap<&str, (VariableSource, &'static str)> = BTreeMap::new();
    for name in present {
        if let Some(reason) = reason_to_inherit(name, present) {
            planned.insert(name, (VariableSource::Inherited, reason));
        }
    }
    for (name, value, reason) in FIXED_VARIABLES {
        planned.insert(name, (VariableSource::Fixed(value.to_owned()), reason));
    }
    for (name, template) in &agent.env {
        let source = VariableSource::Agent(template.clone());
        planned.insert(name, (source, "`env` in its agent.md"));
    }
    let marker = VariableSource::Fixed(agent.name.to_string());
    planned.insert(
        ADJUTANT_AGENT,
        (marker, "below it, commands that act or change the project are refused"),
    );
    planned
        .into_iter()
        .map(|(name, (source, reason))| PlannedVariable { name: name.to_owned(), source, reason })
        .collect()
}

fn reason_to_inherit(name: &str, present: &BTreeSet<String>) -> Option<&'static str> {
    let counts = |group: &&VariableGroup| {
        group.required_variable.is_none_or(|switch| present.contains(switch))
    };
    let named = |group: &&VariableGroup| group.names.iter().any(|pattern| matches(pattern, name));
    INHERITED_GROUPS.iter().filter(counts).find(named).map(|group| group.reason)
}

/// True if `name` is the pattern, or begins with the text before its final `*`.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    fn inherits(name: &str, also: &[&str]) -> bool {
        let present = also.iter().chain([&name]).map(|&n| n.to_owned()).collect();
        reason_to_inherit(name, &present).is_some()
    }

    #[test_case("PATH")]
    #[test_case("LC_ALL")]
    #[test_case("ANTHROPIC_API_KEY")]
    #[test_case("https_proxy")]
    fn required_variables_are_inherited(name: &str) {
        assert!(inherits(name, &[]));
    }

    #[test_case("CLAUDECODE")]
    #[test_case("CLAUDE_CODE_SESSION_ID")]
    #[test_case("CLAUDE_CODE_ENTRYPOINT")]
    #[test_case("CLAUDE_PROJECT_DIR")]
    #[test_case("CLAUDE_EFFORT")]
    #[test_case("LD_PRELOAD")]
    #[test_case("NODE_OPTIONS")]
    #[test_case("BASH_ENV")]
    #[test_case("PYTHONPATH")]
    #[test_case("GIT_SSH_COMMAND")]
    #[test_case("GITHUB_TOKEN")]
    #[test_case("AWS_SECRET_ACCESS_KEY")]
    #[test_case("PATHS")]
    fn i1_other_variables_are_not_inherited(name: &str) {
        assert!(!inherits(name, &[]));
    }

    #[test]
    fn cloud_credentials_come_only_with_their_provider() {
        assert!(inherits("AWS_PROFILE", &["CLAUDE_CODE_USE_BEDROCK"]));
        assert!(!inherits("AWS_PROFILE", &["CLAUDE_CODE_USE_VERTEX"]));
    }
}
