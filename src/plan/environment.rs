//! The variables an agent's process gets: an allow-list, never the caller's whole environment.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::catalog::{Agent, Template};
use crate::config::env_vars::ADJUTANT_AGENT;

/// A variable of the process, without its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedVariable {
    /// Its name.
    pub name: String,
    /// Where its value comes from.
    pub source: VariableSource,
    /// Why it is there.
    pub reason: &'static str,
}

/// Where a variable's value comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VariableSource {
    /// Our own environment.
    Inherited,
    /// The agent's file, as written there.
    Agent(Template),
    /// Always this.
    Fixed(String),
}

/// One reason, and the names it lets through; a trailing `*` stands for any ending.
struct Group {
    reason: &'static str,
    /// The variable that must be set for the group to count at all.
    only_with: Option<&'static str>,
    names: &'static [&'static str],
}

const GROUPS: &[Group] = &[
    Group {
        reason: "programs and shells need it",
        only_with: None,
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
    Group {
        reason: "the way to the network",
        only_with: None,
        names: &[
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
        ],
    },
    Group {
        reason: "the model's API",
        only_with: None,
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
    Group {
        reason: "the user's choice about traffic",
        only_with: None,
        names: &[
            "DISABLE_TELEMETRY",
            "DISABLE_ERROR_REPORTING",
            "DO_NOT_TRACK",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        ],
    },
    Group {
        reason: "the model's API is on Amazon Bedrock",
        only_with: Some("CLAUDE_CODE_USE_BEDROCK"),
        names: &["AWS_*"],
    },
    Group {
        reason: "the model's API is on Google Vertex AI",
        only_with: Some("CLAUDE_CODE_USE_VERTEX"),
        names: &["CLOUD_ML_REGION", "GOOGLE_*", "GCLOUD_PROJECT", "VERTEX_REGION_*"],
    },
    Group {
        reason: "the model's API is on Microsoft Foundry",
        only_with: Some("CLAUDE_CODE_USE_FOUNDRY"),
        names: &["AZURE_*"],
    },
];

const FIXED: [(&str, &str, &str); 3] = [
    ("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1", "no command of an agent outlives its turn"),
    ("DISABLE_AUTOUPDATER", "1", "a subagent does not update the program it runs in"),
    (
        "CLAUDE_CODE_DISABLE_AUTO_MEMORY",
        "1",
        "an agent remembers what its memory.md says, nothing else",
    ),
];

/// The variables for `agent`, given the names that are set in our environment. In order of name.
pub(super) fn variables(agent: &Agent, present: &BTreeSet<String>) -> Vec<PlannedVariable> {
    let mut planned: BTreeMap<&str, (VariableSource, &'static str)> = BTreeMap::new();
    for name in present {
        if let Some(reason) = reason_to_inherit(name, present) {
            planned.insert(name, (VariableSource::Inherited, reason));
        }
    }
    for (name, value, reason) in FIXED {
        planned.insert(name, (VariableSource::Fixed(value.to_owned()), reason));
    }
    for (name, template) in &agent.env {
        let source = VariableSource::Agent(template.clone());
        planned.insert(name, (source, "`env` in its agent.md"));
    }
    let marker = VariableSource::Fixed(agent.name.to_string());
    planned.insert(ADJUTANT_AGENT, (marker, "no nesting: below it, Adjutant does not start"));
    planned
        .into_iter()
        .map(|(name, (source, reason))| PlannedVariable { name: name.to_owned(), source, reason })
        .collect()
}

fn reason_to_inherit(name: &str, present: &BTreeSet<String>) -> Option<&'static str> {
    let counts = |group: &&Group| group.only_with.is_none_or(|switch| present.contains(switch));
    let named = |group: &&Group| group.names.iter().any(|pattern| matches(pattern, name));
    GROUPS.iter().filter(counts).find(named).map(|group| group.reason)
}

fn matches(pattern: &str, name: &str) -> bool {
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
    fn what_is_needed_is_inherited(name: &str) {
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
    fn i1_nothing_else_is(name: &str) {
        assert!(!inherits(name, &[]));
    }

    #[test]
    fn cloud_credentials_come_only_with_their_provider() {
        assert!(inherits("AWS_PROFILE", &["CLAUDE_CODE_USE_BEDROCK"]));
        assert!(!inherits("AWS_PROFILE", &["CLAUDE_CODE_USE_VERTEX"]));
    }
}
