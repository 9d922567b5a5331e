//! Catalog: agent files parsed and validated into an immutable snapshot that follows the disk.
//!
//! Starts no process and grants no permission that is not written in a file.

mod diagnostic;
mod effective;
mod extensions;
mod live;
mod load;
mod load_agent;
mod model;
mod parse;
mod problem;
mod project_check;
mod snapshot;
pub(crate) mod subagent_list;
mod watch;

pub use live::Catalog;
pub use model::{Agent, OutputFormat, RuleText, SandboxBackend, SandboxSettings, ToolRef};
pub use snapshot::{AgentState, Snapshot};

pub(crate) use diagnostic::{Diagnostic, Severity};
pub(crate) use effective::{EffectiveSetting, SettingSource, effective_settings, rule_line};
pub(crate) use extensions::{
    EXTENSION_MANIFESTS, Extension, Visibility, extension_manifests, public_servers,
};
pub(crate) use model::{
    AgentOrigin, AllowedCallers, ArgumentLogging, AuditRule, HttpTransportKind, IdentityRule,
    Limits, OAuthConfig, OnFailure, Orchestration, Pinning, ServerEntry, ServerIsolation,
    ServerLaunch, StartPolicy, Template, UnsetVariable, UserHook, canonical_builtin,
};
pub(crate) use parse::{
    EntryFinding, FileFormat, agent_schema, compile_schema, defaults_schema, parse_json_entry,
};
pub(crate) use project_check::{ProjectCheck, check_project};
pub(crate) use snapshot::CatalogEntry;
pub(crate) use subagent_list::{SECTION_BEGIN, SECTION_END};
pub(crate) use watch::CatalogWatcher;

#[cfg(test)]
pub(crate) use model::{OutputSpec, Permissions, PolicyRules};
