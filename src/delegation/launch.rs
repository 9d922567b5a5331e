//! Preparation of a launch: everything that a process of the agent is started with, except its session.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;
use uuid::Uuid;

use super::admit::Admitted;
use super::authorize::invalid_agent;
use super::file_access::ControlFiles;
use super::in_session::ExpectedSession;
use super::judge::OutputContract;
use super::limits::RunLimits;
use super::orchestrator::Orchestrator;
use super::phase_timings::RunPhase;
use super::pipeline::Run;
use super::process_spec::{present_variables, read_memory, resolve_environment, working_dir};
use super::processes::{
    AgentProcess, ClaudeProgram, ProcessControl, ProgramCache, claude_config_dir,
};
use super::register::Registered;
use super::request::find_agent;
use super::sandbox::AgentSandbox;
use crate::catalog::{Agent, ServerLaunch, Snapshot};
use crate::config::Settings;
use crate::gateway::{Gateway, GatewayError, SdkServers};
use crate::outcome::{Code, Failure};
use crate::plan::{LaunchPlan, PlanRequest, SessionStart, plan};
use crate::runs::Permit;
use crate::store::FileVersion;

/// The inputs of a launch plan, as they are on disk now.
pub(crate) struct LaunchInputs {
    pub(crate) agent: Arc<Agent>,
    pub(crate) program: ClaudeProgram,
    memory: Option<String>,
    read_denials: Vec<String>,
    pub(crate) sandbox: Option<AgentSandbox>,
}

impl LaunchInputs {
    /// Reads memory and rules, and finds `claude`. The first use of a binary runs `--help` and `--version`.
    pub(crate) async fn read(
        settings: &Settings,
        programs: &ProgramCache,
        control_files: &ControlFiles,
        snapshot: &Snapshot,
        agent: &Arc<Agent>,
    ) -> Result<Self, Failure> {
        let memory = read_memory(agent)?;
        let program = programs.find(settings).await?;
        let read_denials = control_files.read_denials(agent);
        let agent = Arc::clone(agent);
        let mut inputs = Self { agent, program, memory, read_denials, sandbox: None };
        let launch = inputs.plan(&SessionStart::Ephemeral(String::new()));
        let agent = &inputs.agent;
        inputs.sandbox = AgentSandbox::read(agent, settings, control_files, snapshot, &launch)?;
        Ok(inputs)
    }

    pub(crate) fn plan(&self, session: &SessionStart) -> LaunchPlan {
        plan(PlanRequest {
            agent: &self.agent,
            program: &self.program.path,
            features: &self.program.features,
            memory: self.memory.as_deref(),
            present_variables: &present_variables(),
            session,
            read_denials: &self.read_denials,
        })
    }

    /// Returns the digest of one launch.
    ///
    /// Covers program and version, arguments, environment with its values, system prompt and memory, permissions,
    /// servers, the sandbox, the gateway's rules and configuration if a shared server is used, working directory, and Claude Code's
    /// credentials file (its version, not its content).
    pub(crate) fn digest(
        &self,
        session: &SessionStart,
        folder: &Path,
        gateway: &Gateway,
    ) -> Result<String, Failure> {
        let Self { agent, program, .. } = self;
        let plan = self.plan(session);
        let environment = resolve_environment(agent, &plan)?;
        let parts = json!([
            plan.digest(),
            agent,
            program.features.version,
            FileVersion::read(&program.path),
            folder,
            FileVersion::read(&claude_config_dir().join(".credentials.json")),
        ]);
        let mut hasher = Sha256::new();
        hasher.update(parts.to_string());
        hasher.update(format!("{environment:?}"));
        if let Some(sandbox) = &self.sandbox {
            hasher.update(format!("{:?}", sandbox.plan(agent)?));
        }
        if agent.servers.iter().any(|server| matches!(server.launch, ServerLaunch::Shared)) {
            let in_force = gateway.in_force();
            hasher.update(format!("{:?} {:?}", in_force.rules, in_force.servers));
        }
        Ok(format!("{:x}", hasher.finalize()))
    }
}

/// A launch that is ready but for its session.
pub(crate) struct PreparedLaunch<'r> {
    pub(crate) run: &'r Run,
    pub(crate) registered: &'r Registered,
    pub(crate) limits: RunLimits,
    permit: Arc<Permit>,
    pub(crate) inputs: LaunchInputs,
    pub(crate) working_dir: PathBuf,
    /// Digest of everything a process of this run is started with.
    pub(crate) digest: String,
    pub(crate) output_contract: OutputContract,
    /// Servers of the agent: connected by the first process that needs them, used by all.
    servers: OnceCell<Arc<SdkServers>>,
    /// Task of the agent: the prompt, or the text of the server prompt that it names.
    ///
    /// Resolved once: the text of a server is never taken for the name of a prompt.
    task: OnceCell<String>,
}

/// Prepares everything that the run needs to start a process.
pub(crate) async fn prepare<'r>(
    run: &'r Run,
    registered: &'r Registered,
    admitted: Admitted,
) -> Result<PreparedLaunch<'r>, Failure> {
    let planning = Instant::now();
    run.status.set_activity("starting");
    let Admitted { limits, permit } = admitted;
    let agent = &registered.agent;
    let Orchestrator { settings, program_cache, control_files, gateway, .. } = &*run.services;
    let working_dir = working_dir(agent, settings)?;
    let snapshot = run.services.catalog.snapshot();
    let reading = LaunchInputs::read(settings, program_cache, control_files, &snapshot, agent);
    let inputs = limits.bound(reading).await??;
    let output_contract = OutputContract::new(agent)?;
    let session = SessionStart::Ephemeral(run.new_session_id.to_string());
    let digest = inputs.digest(&session, &working_dir, gateway)?;
    run.add_time(RunPhase::Plan, planning);
    Ok(PreparedLaunch {
        run,
        registered,
        limits,
        permit,
        inputs,
        working_dir,
        digest,
        output_contract,
        servers: OnceCell::new(),
        task: OnceCell::new(),
    })
}

impl PreparedLaunch<'_> {
    pub(crate) fn agent(&self) -> &Arc<Agent> {
        &self.registered.agent
    }

    /// Records the session that the run is part of.
    pub(crate) fn attach_session(&self, session_id: Uuid, folder: &Path) {
        let expected =
            ExpectedSession::new(self.agent(), &self.run.services.settings, session_id, folder);
        self.registered.recorder.attach_session(expected);
    }

    /// Shuts a process down in the background. Permit and `holds` are released when it has exited.
    pub(crate) fn retire(&self, process: Option<AgentProcess>, holds: impl Send + 'static) {
        let Some(mut process) = process else { return };
        process.control.unbind_run();
        let held = (Arc::clone(&self.permit), holds);
        self.run.services.tasks.spawn(async move {
            process.shutdown_gracefully().await;
            drop((process, held));
        });
    }

    /// Returns the task of the agent. The first call asks the servers behind the process for a prompt that it names.
    pub(crate) async fn task(&self, control: &ProcessControl) -> &str {
        let prompt = &self.run.request.prompt;
        let resolve = async {
            let asking = Box::pin(control.resolve_prompt_command(prompt));
            match self.limits.bound(asking).await {
                Ok(Some(Ok(text))) => return text,
                Ok(Some(Err(error))) => {
                    let note = format!("The prompt of a server could not be put in: {error}.");
                    self.run.draft().notes.push(note);
                }
                // No prompt is named, or a limit is exceeded, which the turn reports.
                Ok(None) | Err(_) => {}
            }
            prompt.clone()
        };
        self.task.get_or_init(|| resolve).await
    }

    /// Connects the agent's servers, once for all processes of the run; `None` if it has none.
    pub(crate) async fn connect_servers(&self) -> Result<Option<Arc<SdkServers>>, Failure> {
        let (run, agent, began) = (self.run, self.agent(), Instant::now());
        let connect = async {
            run.status.set_activity("connecting its servers");
            let connecting = SdkServers::connect(&run.services.gateway, agent, run.id);
            let connected = self.limits.bound(connecting).await?;
            let (servers, notes) = connected.map_err(|error| servers_unavailable(agent, &error))?;
            run.draft().notes.extend(notes);
            Ok(Arc::new(servers))
        };
        let servers = match agent.servers.is_empty() {
            true => None,
            false => Some(Arc::clone(self.servers.get_or_try_init(|| connect).await?)),
        };
        run.add_time(RunPhase::Servers, began);
        Ok(servers)
    }
}

fn servers_unavailable(agent: &Agent, error: &GatewayError) -> Failure {
    let message = format!("`{}` cannot start: {error}", agent.name);
    let help = match error {
        GatewayError::SignInNeeded { command, .. } => format!("a person must run `{command}`"),
        _ => format!("look at `mcp_servers` and `tools` in {}", agent.file.display()),
    };
    Failure::new(Code::ServerUnavailable, message, help)
}

/// A launch plan with details for people.
pub(crate) struct PlanPreview {
    /// The plan; session ids are placeholders.
    pub plan: LaunchPlan,
    pub version: String,
    /// Working directory as written in the agent file, or the project's root.
    pub working_dir: String,
    /// Origin of the working directory.
    pub working_dir_reason: &'static str,
    /// Everything in the sandbox; empty without one.
    pub sandbox: Vec<SandboxPart>,
}

/// A mount or a variable of a sandbox, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct SandboxPart {
    pub kind: &'static str,
    pub text: String,
    pub reason: String,
}

/// Plans a launch of any valid agent, without regard to `allowed_callers`.
pub(crate) async fn preview(settings: &Settings, name: &str) -> Result<PlanPreview, Failure> {
    let snapshot = Snapshot::load(settings);
    let agent = valid_agent(&snapshot, name)?;
    let control_files = ControlFiles::from_settings(settings);
    let programs = ProgramCache::default();
    let inputs = LaunchInputs::read(settings, &programs, &control_files, &snapshot, &agent).await?;
    let session = match agent.session {
        true => SessionStart::Resume("<the conversation's id>".to_owned()),
        false => SessionStart::Ephemeral("<a new id>".to_owned()),
    };
    let (working_dir, working_dir_reason) = match &agent.cwd {
        Some(template) => (template.0.clone(), "`cwd` in its agent.md"),
        None => {
            (settings.root.display().to_string(), "the project's root: its agent.md names no `cwd`")
        }
    };
    let plan = inputs.plan(&session);
    let version = inputs.program.features.version;
    let sandbox = inputs.sandbox.as_ref().map(|sandbox| sandbox.describe(&agent)).transpose()?;
    let sandbox = sandbox.unwrap_or_default();
    Ok(PlanPreview { plan, version, working_dir, working_dir_reason, sandbox })
}

/// Returns the agent `name`, without regard to `allowed_callers`.
fn valid_agent(snapshot: &Snapshot, name: &str) -> Result<Arc<Agent>, Failure> {
    let known = || snapshot.entries().iter().map(|entry| entry.name.as_str()).collect();
    let entry = find_agent(snapshot, name, known)?;
    entry.agent().cloned().ok_or_else(|| invalid_agent(entry))
}
