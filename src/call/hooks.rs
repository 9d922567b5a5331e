//! The user's hooks of one agent: asked before something happens, told of what has happened.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::{Map, Value};
use tokio_util::task::TaskTracker;

use super::hook_answer::{HookAnswer, Together, read_answer};
use crate::base::RunId;
use crate::catalog::{Agent, Hook};
use crate::config::env_vars;
use crate::worker::{Launch, Links, run_briefly};

/// What is read of a hook's output.
const MAX_OUTPUT: u64 = 1 << 20;
/// What a hook inherits: enough to find programs and to speak the user's language. No key of anybody.
const INHERITED: [&str; 10] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"];

/// The hooks of one agent, ready to be run.
#[derive(Clone)]
pub(super) struct Hooks {
    agent: Arc<Agent>,
    root: PathBuf,
    tasks: TaskTracker,
}

impl Hooks {
    pub(super) fn of(agent: &Arc<Agent>, root: PathBuf, tasks: TaskTracker) -> Self {
        Self { agent: Arc::clone(agent), root, tasks }
    }

    /// Runs all hooks that are meant, side by side, and says what they want together. `None` where there is none.
    pub(super) async fn ask(&self, event: &str, payload: &Map<String, Value>) -> Option<Together> {
        let meant: Vec<&Hook> = self.meant(event, payload).collect();
        if meant.is_empty() {
            return None;
        }
        let input = Value::Object(payload.clone()).to_string().into_bytes();
        let answers = meant.into_iter().map(|hook| self.run(hook, input.clone()));
        Some(Together::of(join_all(answers).await))
    }

    /// Tells hooks of something that nobody can change any more, beside the run.
    pub(super) fn tell(&self, event: &str, payload: &Map<String, Value>) {
        if self.meant(event, payload).next().is_none()
            || tokio::runtime::Handle::try_current().is_err()
        {
            return;
        }
        let (hooks, event, payload) = (self.clone(), event.to_owned(), payload.clone());
        self.tasks.spawn(async move { hooks.ask(&event, &payload).await });
    }

    fn meant<'a>(
        &'a self,
        event: &'a str,
        payload: &'a Map<String, Value>,
    ) -> impl Iterator<Item = &'a Hook> {
        // Where there is nothing to match, a matcher means nothing, as in Claude Code.
        let name =
            subject(event).map(|key| payload.get(key).and_then(Value::as_str).unwrap_or_default());
        let is_meant = move |hook: &&Hook| {
            let fits = match (&hook.matcher, name) {
                (Some(matcher), Some(name)) => matcher.matches(name),
                (None, _) | (_, None) => true,
            };
            hook.event == event && fits
        };
        self.agent.hooks.iter().filter(is_meant)
    }

    async fn run(&self, hook: &Hook, input: Vec<u8>) -> HookAnswer {
        let launch = Launch {
            label: format!("hook-{}", self.agent.name),
            // Its own: the run may be over, and swept, before a hook that is told of its end.
            run: RunId::new(),
            program: PathBuf::from("/bin/sh"),
            arguments: vec!["-c".into(), hook.command.clone().into()],
            environment: self.environment(),
            folder: self.root.clone(),
            links: Links::Follow,
        };
        read_answer(hook, run_briefly(launch, input, hook.timeout, MAX_OUTPUT).await)
    }

    fn environment(&self) -> Vec<(OsString, OsString)> {
        let inherited =
            INHERITED.iter().filter_map(|name| Some(((*name).into(), env::var_os(name)?)));
        let root = (env_vars::CLAUDE_PROJECT_DIR.into(), self.root.clone().into());
        inherited.chain([root]).collect()
    }
}

/// The field that a matcher is held against.
fn subject(event: &str) -> Option<&'static str> {
    match event {
        "PreToolUse" | "PostToolUse" | "PostToolUseFailure" | "PermissionRequest"
        | "PermissionDenied" => Some("tool_name"),
        "SubagentStart" | "SubagentStop" | "RunQueued" | "RunStarted" => Some("agent_type"),
        "SessionStart" => Some("source"),
        "SessionEnd" => Some("reason"),
        "PreCompact" => Some("trigger"),
        "Notification" => Some("notification_type"),
        "RunEnded" => Some("outcome"),
        _ => None,
    }
}
