//! What a call would start, without starting it.

use super::find::find_for_preview;
use super::prepare;
use super::program::Programs;
use crate::catalog::Snapshot;
use crate::config::Settings;
use crate::outcome::Failure;
use crate::plan::{ConversationStart, LaunchPlan, PlanRequest, plan};

/// A plan, with what a person wants to know beside it.
pub struct Preview {
    /// The plan; a conversation that would be created or resumed has a placeholder for its id.
    pub plan: LaunchPlan,
    /// The version of the program.
    pub version: String,
    /// The working folder, as written or the root.
    pub folder: String,
    /// Why that folder.
    pub folder_reason: &'static str,
}

/// Plans a launch of the agent. Any sound agent can be looked at, whoever may call it.
pub async fn preview(settings: &Settings, name: &str) -> Result<Preview, Failure> {
    let agent = find_for_preview(&Snapshot::load(settings), name)?;
    let memory = prepare::memory(&agent)?;
    let program = Programs::default().find(settings).await?;
    let conversation = match agent.session {
        true => ConversationStart::Resume("<the conversation's id>".to_owned()),
        false => ConversationStart::Passing("<a new id>".to_owned()),
    };
    let plan = plan(PlanRequest {
        agent: &agent,
        program: &program.path,
        features: &program.features,
        memory: memory.as_deref(),
        present: &prepare::present_variables(),
        conversation: &conversation,
    });
    let (folder, folder_reason) = match &agent.cwd {
        Some(template) => (template.0.clone(), "`cwd` in its agent.md"),
        None => {
            (settings.root.display().to_string(), "the project's root: its agent.md names no `cwd`")
        }
    };
    Ok(Preview { plan, version: program.features.version, folder, folder_reason })
}
