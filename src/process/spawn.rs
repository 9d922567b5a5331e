//! The function that starts a process.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::process::{
    ChildStderr as StdStderr, ChildStdin as StdStdin, ChildStdout as StdStdout, Stdio,
};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::handle::ProcessHandle;
use super::orphans::{self, OwnChild};
use super::spec::{ProcessSpec, SpawnError};
use super::supervisor_protocol::{EVENT_BYTES, SpawnRequest, SupervisorEvent};
use super::{hidden_commands, supervisor_protocol};
use crate::config::env_vars;

/// Limit for the start of a process, including a loaded machine.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Starts a process under a supervisor.
///
/// The supervisor stops the process and its descendants on request and when this process dies. Returns after a
/// successful `exec` of the program, at the latest after 20 s. Cancel-safe: dropping the future stops everything it
/// has started.
pub async fn spawn_process(spec: ProcessSpec) -> Result<ProcessHandle, SpawnError> {
    let (control, theirs) = StdStream::pair().map_err(SpawnError::Supervisor)?;
    control.set_nonblocking(true).map_err(SpawnError::Supervisor)?;
    let supervisor = spawn_supervisor(&spec, theirs)?;
    let (ours, descriptors) = create_pipes().map_err(SpawnError::Supervisor)?;
    let descriptors = descriptors.each_ref().map(AsFd::as_fd);
    supervisor_protocol::send_descriptors(&control, &descriptors)
        .map_err(SpawnError::Supervisor)?;
    let mut control = UnixStream::from_std(control).map_err(SpawnError::Supervisor)?;
    let report = timeout(START_TIMEOUT, request_spawn(&mut control, &spec))
        .await
        .map_err(|late| SpawnError::Supervisor(late.into()))?;
    match report.map_err(SpawnError::Supervisor)? {
        SupervisorEvent::Started { pid } => {
            Ok(ProcessHandle::new(spec.run, pid, supervisor, control, ours))
        }
        SupervisorEvent::Failed { stage, errno } => {
            Err(SpawnError::from_report(&spec, stage, errno))
        }
        SupervisorEvent::Exited { .. } | SupervisorEvent::Signaled { .. } => {
            Err(SpawnError::Supervisor(io::ErrorKind::InvalidData.into()))
        }
    }
}

/// Our ends of the standard streams of a child.
pub(crate) struct ChildPipes {
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

/// Creates the pipes for a child: our ends and the child's, all close-on-exec.
fn create_pipes() -> io::Result<(ChildPipes, [OwnedFd; 3])> {
    let (stdin, write) = io::pipe()?;
    let (read, stdout) = io::pipe()?;
    let (read_errors, stderr) = io::pipe()?;
    let ours = ChildPipes {
        stdin: ChildStdin::from_std(StdStdin::from(OwnedFd::from(write)))?,
        stdout: ChildStdout::from_std(StdStdout::from(OwnedFd::from(read)))?,
        stderr: ChildStderr::from_std(StdStderr::from(OwnedFd::from(read_errors)))?,
    };
    Ok((ours, [stdin.into(), stdout.into(), stderr.into()]))
}

/// Argument with which the supervisor of an agent's process names the agent, read by `ancestor_agent`.
pub(crate) const AGENT_OPTION: &str = "--agent=";

/// Starts the supervisor.
///
/// Label and run are arguments for people who read a process list. The supervisor of an agent's process also names the
/// agent: everything below it belongs to the agent, and no agent can change another process's arguments.
fn spawn_supervisor(
    spec: &ProcessSpec,
    control: StdStream,
) -> Result<(Child, OwnChild), SpawnError> {
    let mut command = Command::new(hidden_commands::supervisor_program());
    command
        .arg0("adjutant")
        .args(["__keep", &spec.label, &spec.run.simple().to_string()])
        .args(agent_option(spec))
        .env_clear()
        .current_dir("/")
        .stdin(OwnedFd::from(control))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    orphans::spawn_own(&mut command).map_err(SpawnError::Supervisor)
}

/// Returns the option for a process of an agent: only those have `ADJUTANT_AGENT`.
fn agent_option(spec: &ProcessSpec) -> Option<OsString> {
    let mut variables = spec.environment.iter().rev();
    let (_, agent) = variables.find(|(name, _)| name == env_vars::ADJUTANT_AGENT)?;
    let mut option = OsString::from(AGENT_OPTION);
    option.push(agent);
    Some(option)
}

async fn request_spawn(
    control: &mut UnixStream,
    spec: &ProcessSpec,
) -> io::Result<SupervisorEvent> {
    let request = SpawnRequest {
        working_dir: spec.working_dir.clone().into(),
        symlinks: spec.symlinks,
        program: spec.program.clone().into(),
        arguments: spec.arguments.clone(),
        environment: marked_environment(spec),
    };
    control.write_all(&request.to_bytes()?).await?;
    read_event(control).await
}

/// Returns the environment with `ADJUTANT_RUN`, by which remaining processes are found after a crash.
fn marked_environment(spec: &ProcessSpec) -> Vec<(OsString, OsString)> {
    let asked = spec.environment.iter().filter(|(name, _)| name != env_vars::ADJUTANT_RUN).cloned();
    let marker = (env_vars::ADJUTANT_RUN.into(), spec.run.simple().to_string().into());
    asked.chain([marker]).collect()
}

/// Reads the next event of a supervisor.
pub(crate) async fn read_event(
    control: &mut (impl AsyncReadExt + Unpin),
) -> io::Result<SupervisorEvent> {
    let mut bytes = [0; EVENT_BYTES];
    control.read_exact(&mut bytes).await?;
    SupervisorEvent::from_bytes(bytes)
}
