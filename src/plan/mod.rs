//! Exactly what will be started for an agent, each part with its reason. Pure: the same contract gives the same plan.

mod arguments;
mod environment;
#[path = "cli_features.rs"]
mod features;
#[path = "launch_plan.rs"]
mod launch;
mod schema_hint;
#[path = "settings_file.rs"]
mod settings;

pub use environment::{PlannedVariable, VariableSource};
pub use features::Features;
pub use launch::{
    Argument, ArgumentValue, ConversationStart, LaunchPlan, PlanRequest, PlannedFile,
    PlannedServer, plan,
};
