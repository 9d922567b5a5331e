//! The first steps: is there such an agent, may this caller call it, and is it sound.

use std::sync::Arc;

use crate::base::{nearest, one_line, shorten};
use crate::catalog::{Agent, Callers, Entry, Snapshot, State};
use crate::identity::Caller;
use crate::outcome::{Code, Failure};

/// The agent of that name, if this caller may call it and its files are sound.
pub(super) fn find(
    snapshot: &Snapshot,
    name: &str,
    caller: &Caller,
) -> Result<Arc<Agent>, Failure> {
    let entry = snapshot.get(name).ok_or_else(|| {
        let names = callable(snapshot, caller).map(|agent| agent.name.as_str());
        not_found(name, &names.collect::<Vec<_>>())
    })?;
    match &entry.state {
        State::Sound(agent) if agent.allowed_callers.allow(&caller.name) => Ok(Arc::clone(agent)),
        State::Sound(agent) => {
            let others = callable(snapshot, caller).map(|agent| agent.name.as_str());
            Err(not_allowed(agent, caller, &others.collect::<Vec<_>>()))
        }
        State::Broken => Err(invalid(entry)),
    }
}

/// The agent of that name for somebody who only looks.
pub(super) fn find_for_preview(snapshot: &Snapshot, name: &str) -> Result<Arc<Agent>, Failure> {
    let entry = snapshot.get(name).ok_or_else(|| {
        not_found(
            name,
            &snapshot.entries().iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>(),
        )
    })?;
    match &entry.state {
        State::Sound(agent) => Ok(Arc::clone(agent)),
        State::Broken => Err(invalid(entry)),
    }
}

/// The agents that this caller may call, in order of name.
pub(super) fn callable<'a>(
    snapshot: &'a Snapshot,
    caller: &'a Caller,
) -> impl Iterator<Item = &'a Arc<Agent>> {
    snapshot.entries().iter().filter_map(|entry| match &entry.state {
        State::Sound(agent) if agent.allowed_callers.allow(&caller.name) => Some(agent),
        State::Sound(_) | State::Broken => None,
    })
}

fn not_found(name: &str, names: &[&str]) -> Failure {
    let shown = shorten(&one_line(name), 80);
    let near = nearest(name, names.iter().copied());
    let help = match (near.first(), names.is_empty()) {
        (Some(near), _) => format!("did you mean `{near}`?"),
        (None, true) => "no agent can be called: add one with `adjutant new NAME`".to_owned(),
        (None, false) => format!("call one of: {}", shorten(&names.join(", "), 400)),
    };
    Failure::new(Code::AgentNotFound, format!("there is no agent `{shown}`"), help)
}

fn not_allowed(agent: &Agent, caller: &Caller, others: &[&str]) -> Failure {
    let allowed = match &agent.allowed_callers {
        Callers::Anyone => "anyone".to_owned(),
        Callers::Named(names) => names.join(", "),
    };
    let message = format!(
        "{} may not call `{}`; its allowed_callers are: {allowed}",
        caller.described(),
        agent.name
    );
    let author =
        format!("its author can add the caller to `allowed_callers` in {}", agent.file.display());
    let help = match others.is_empty() {
        true => author,
        false => format!("you may call: {}; {author}", shorten(&others.join(", "), 400)),
    };
    Failure::new(Code::CallerNotAllowed, message, help)
}

fn invalid(entry: &Entry) -> Failure {
    let what = entry.diagnostics.iter().find(|d| d.is_error()).map_or_else(
        || "its files are wrong".to_owned(),
        |d| format!("{} ({}:{})", d.message, d.file.display(), d.line),
    );
    let message = format!("the agent `{}` cannot be run: {what}", entry.name);
    Failure::new(
        Code::AgentInvalid,
        message,
        "run `adjutant check` to see everything that is wrong",
    )
}
