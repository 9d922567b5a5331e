//! Agent definitions as values, with every default filled in.

mod agent;
pub(crate) mod builtin_tools;
mod hook;
mod orchestration;
mod sandbox;
mod server;
mod template;

pub use agent::{Agent, OutputFormat, RuleText, ToolRef};
pub use sandbox::{SandboxBackend, SandboxSettings};

pub(crate) use agent::{
    AgentOrigin, AllowedCallers, Limits, OutputSpec, Permissions, PolicyRules, Template,
};
pub(crate) use builtin_tools::{BuiltinTool, canonical_builtin};
pub(crate) use hook::{HOOK_EVENTS, Matcher, OnFailure, UserHook};
pub(crate) use orchestration::{ArgumentLogging, AuditRule, Budget, IdentityRule, Orchestration};
pub(crate) use server::{
    HttpTransportKind, OAuthConfig, Pinning, ServerEntry, ServerIsolation, ServerLaunch,
    StartPolicy,
};
pub(crate) use template::{UnsetVariable, is_variable_name};
