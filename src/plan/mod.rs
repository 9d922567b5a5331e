//! Launch plan of an agent: program, arguments, environment, files, each with its reason.
//!
//! Pure: the same agent definition gives the same plan.

mod arguments;
mod cli_features;
mod environment;
mod launch_plan;
#[cfg(target_os = "linux")]
mod sandbox;
mod schema_hint;

pub use cli_features::CliFeatures;
#[cfg(target_os = "linux")]
pub use sandbox::{
    CLAUDE_INSIDE, OuterVariable, ProtectedAccess, ProtectedPath, SandboxFacts, SandboxImpossible,
    SandboxPlan, named_paths, plan_sandbox,
};

pub(crate) use environment::VariableSource;
pub(crate) use launch_plan::{
    Argument, ArgumentValue, LaunchPlan, PlanRequest, PlannedFile, SessionStart, plan,
};
