//! What can be called: agent files read to one checked meaning, and a snapshot that follows the disk.
//!
//! Nothing here starts a process or grants a right that a file does not spell out.

mod builtins;
mod contract;
mod defaults;
mod diagnostic;
mod extension_servers;
mod extensions;
mod front_matter;
mod hooks;
mod json_file;
mod keys;
mod live;
mod load;
mod load_agent;
mod model;
mod node;
mod output_schema;
mod positions;
mod problem;
mod project_files;
mod read_agent;
mod read_defaults;
mod read_hooks;
mod read_limits;
mod read_output;
mod read_permissions;
mod read_policy;
mod read_servers;
mod read_tools;
mod schema;
mod sign_in;
mod snapshot;
mod stamp;
pub mod subagents_section;
mod template;
mod watch;
mod written;
mod written_defaults;
mod yaml;
mod yaml_mistakes;

pub use builtins::canonical_builtin;
pub use contract::{Setting, Source, contract, rule_line};
pub use defaults::{AuditRule, Budget, Defaults, IdentityRule, KeptArguments, Orchestration};
pub use diagnostic::{Diagnostic, Severity};
pub use extension_servers::Visibility;
pub use extensions::{
    Extension, ExtensionAgent, ExtensionServer, extension_manifests, public_servers,
};
pub use hooks::{HOOK_EVENTS, Hook, Matcher, OnFailure};
pub use live::Catalog;
pub(crate) use load_agent::DEFAULTS_BROKEN;
pub use model::{
    Agent, Callers, Dialect, Limits, Origin, OutputFormat, OutputSpec, Permissions, PolicyRules,
    RuleText, ServerEntry, ServerLaunch, Template, ToolRef,
};
pub use output_schema::compile_schema;
pub use project_files::{ProjectCheck, check_project};
pub use schema::{agent_schema, defaults_schema};
pub use sign_in::SignIn;
pub use snapshot::{Entry, Snapshot, State};
pub use template::UnsetVariable;
pub use watch::Watching;
