//! What can be called: agent files read to one checked meaning, and a snapshot that follows the disk.
//!
//! Nothing here starts a process or grants a right that a file does not spell out.

#[path = "model/builtin_tools.rs"]
mod builtins;
#[path = "effective.rs"]
mod contract;
#[path = "model/defaults.rs"]
mod defaults;
mod diagnostic;
mod extension_servers;
mod extensions;
#[path = "parse/front_matter.rs"]
mod front_matter;
#[path = "model/hook.rs"]
mod hooks;
#[path = "parse/json_check.rs"]
mod json_file;
#[path = "parse/agent_keys.rs"]
mod keys;
mod live;
mod load;
mod load_agent;
#[path = "model/agent.rs"]
mod model;
#[path = "parse/node.rs"]
mod node;
#[path = "parse/output_schema.rs"]
mod output_schema;
#[path = "parse/positions.rs"]
mod positions;
mod problem;
#[path = "project_check.rs"]
mod project_files;
#[path = "parse/agent.rs"]
mod read_agent;
#[path = "parse/defaults.rs"]
mod read_defaults;
#[path = "parse/hooks.rs"]
mod read_hooks;
#[path = "parse/limits.rs"]
mod read_limits;
#[path = "parse/output.rs"]
mod read_output;
#[path = "parse/permissions.rs"]
mod read_permissions;
#[path = "parse/policy.rs"]
mod read_policy;
#[path = "parse/servers.rs"]
mod read_servers;
#[path = "parse/tools.rs"]
mod read_tools;
#[path = "json_schema.rs"]
mod schema;
mod sign_in;
mod snapshot;
#[path = "../store/version.rs"]
mod stamp;
#[path = "subagent_list.rs"]
pub mod subagents_section;
#[path = "model/template.rs"]
mod template;
mod watch;
#[path = "agent_schema.rs"]
mod written;
#[path = "defaults_schema.rs"]
mod written_defaults;
#[path = "parse/yaml.rs"]
mod yaml;
#[path = "parse/yaml_mistakes.rs"]
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
