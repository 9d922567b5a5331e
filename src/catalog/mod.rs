//! What can be called: agent files read to one checked meaning, and a snapshot that follows the disk.
//!
//! Nothing here starts a process or grants a right that a file does not spell out.

mod model;

pub use model::{
    Agent, Callers, Limits, Origin, OutputFormat, OutputSpec, Permissions, PolicyRules, RuleText,
    ServerEntry, ServerLaunch, Template, ToolRef,
};
