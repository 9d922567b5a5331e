//! Exactly what will be started for an agent, each part with its reason. Pure: the same contract gives the same plan.

mod arguments;
mod environment;
mod features;
mod launch;
mod schema_hint;
mod settings;

pub use environment::{PlannedVariable, VariableSource};
pub use features::Features;
pub use launch::{
    Argument, ArgumentValue, ConversationStart, LaunchPlan, PlanRequest, PlannedFile,
    PlannedServer, plan,
};
