//! What can be called: agent files read to one checked meaning, and a snapshot that follows the disk.
//!
//! Nothing here starts a process or grants a right that a file does not spell out.

mod builtins;
mod defaults;
mod diagnostic;
mod front_matter;
mod keys;
mod live;
mod load;
mod load_agent;
mod model;
mod node;
mod positions;
mod problem;
mod read_agent;
mod read_defaults;
mod read_limits;
mod read_output;
mod read_permissions;
mod read_policy;
mod read_servers;
mod read_tools;
mod snapshot;
mod stamp;
pub mod subagents_section;
mod template;
mod watch;
mod yaml;
mod yaml_mistakes;

pub use defaults::{AuditRule, Budget, Defaults, IdentityRule, Orchestration};
pub use diagnostic::{Diagnostic, Severity};
pub use live::Catalog;
pub use model::{
    Agent, Callers, Limits, Origin, OutputFormat, OutputSpec, Permissions, PolicyRules, RuleText,
    ServerEntry, ServerLaunch, Template, ToolRef,
};
pub use snapshot::{Entry, Snapshot, State};
pub use template::UnsetVariable;
pub use watch::Watching;
