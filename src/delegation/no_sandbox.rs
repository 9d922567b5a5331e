//! Sandboxes on systems without one: every agent that asks for a sandbox is refused.

use std::io;
use std::path::PathBuf;

use tokio_util::task::TaskTracker;

use super::file_access::ControlFiles;
use super::launch::SandboxPart;
use crate::catalog::{Agent, Snapshot};
use crate::config::Settings;
use crate::outcome::{Code, Failure};
use crate::plan::{LaunchPlan, SessionStart};
use crate::process::{ProcessEnd, ProcessSpec};
use crate::runs::RunDir;
use crate::util::RunId;

#[derive(Debug)]
pub(crate) enum NoAgentSandbox {}
#[derive(Debug)]
pub(crate) enum NoProcessSandbox {}

pub(crate) use {NoAgentSandbox as AgentSandbox, NoProcessSandbox as ProcessSandbox};

impl AgentSandbox {
    pub(crate) fn read(
        agent: &Agent,
        _: &Settings,
        _: &ControlFiles,
        _: &Snapshot,
        _: &LaunchPlan,
    ) -> Result<Option<Self>, Failure> {
        match agent.sandbox {
            None => Ok(None),
            Some(_) => {
                Err(unavailable(agent, "there are sandboxes on Linux only", "run it on Linux"))
            }
        }
    }

    pub(crate) fn plan(&self, _: &Agent) -> Result<String, Failure> {
        match *self {}
    }

    pub(crate) fn describe(&self, _: &Agent) -> Result<Vec<SandboxPart>, Failure> {
        match *self {}
    }

    pub(crate) fn open(
        &self,
        _: &Agent,
        _: &SessionStart,
        _: (RunId, &RunDir),
        _: &TaskTracker,
    ) -> Result<ProcessSandbox, Failure> {
        match *self {}
    }
}

pub(crate) fn unavailable(agent: &Agent, why: &str, help: &str) -> Failure {
    let message = format!("the sandbox of `{}` cannot be made: {why}", agent.name);
    Failure::new(Code::SandboxUnavailable, message, help)
}

pub(crate) fn refused_sandbox(_: &Agent, _: &str) -> Option<Failure> {
    None
}

impl ProcessSandbox {
    pub(crate) fn wrap(&self, _: ProcessSpec) -> io::Result<ProcessSpec> {
        match *self {}
    }

    pub(crate) fn set_ended(&mut self, _: impl Future<Output = ()> + Send + 'static) {
        match *self {}
    }

    pub(crate) fn release(&mut self) {
        match *self {}
    }

    pub(crate) fn set_bound(&self, _: bool) {
        match *self {}
    }

    pub(crate) fn replaced(&self) -> impl Future<Output = PathBuf> + Send + use<> {
        std::future::pending()
    }
}

pub(crate) fn inner_end(end: ProcessEnd) -> ProcessEnd {
    end
}
