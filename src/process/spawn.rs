//! The one function that starts a process.

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

use super::launch::{Launch, StartFailed};
use super::orphans::{self, OwnChild};
use super::process::Process;
use super::program;
use super::wire::{self, Order, REPORT_BYTES, Report};
use crate::config::env_vars;

/// A loaded machine may be slow to start a process, but never this slow.
const START_LIMIT: Duration = Duration::from_secs(20);

/// Starts a process under a keeper, which ends it and all it starts when this process asks for it or is gone.
/// Returns once the program itself runs. Dropping the future before that leaves nothing behind.
pub async fn start(launch: Launch) -> Result<Process, StartFailed> {
    let (control, theirs) = StdStream::pair().map_err(StartFailed::Keeper)?;
    control.set_nonblocking(true).map_err(StartFailed::Keeper)?;
    let keeper = spawn_keeper(&launch, theirs)?;
    let (ours, descriptors) = pipes().map_err(StartFailed::Keeper)?;
    let descriptors = descriptors.each_ref().map(AsFd::as_fd);
    wire::send_descriptors(&control, &descriptors).map_err(StartFailed::Keeper)?;
    let mut control = UnixStream::from_std(control).map_err(StartFailed::Keeper)?;
    let report = timeout(START_LIMIT, hand_over(&mut control, &launch))
        .await
        .map_err(|late| StartFailed::Keeper(late.into()))?;
    match report.map_err(StartFailed::Keeper)? {
        Report::Started { pid } => Ok(Process::new(launch.run, pid, keeper, control, ours)),
        Report::Failed { stage, errno } => Err(StartFailed::from_report(&launch, stage, errno)),
        Report::Exited { .. } | Report::Signaled { .. } => {
            Err(StartFailed::Keeper(io::ErrorKind::InvalidData.into()))
        }
    }
}

/// Our ends of a child's stdin, stdout and stderr.
pub(super) struct Pipes {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

/// Pipes for a child: our ends and its own. None of them survives an exec by accident.
fn pipes() -> io::Result<(Pipes, [OwnedFd; 3])> {
    let (stdin, write) = io::pipe()?;
    let (read, stdout) = io::pipe()?;
    let (read_errors, stderr) = io::pipe()?;
    let ours = Pipes {
        stdin: ChildStdin::from_std(StdStdin::from(OwnedFd::from(write)))?,
        stdout: ChildStdout::from_std(StdStdout::from(OwnedFd::from(read)))?,
        stderr: ChildStderr::from_std(StdStderr::from(OwnedFd::from(read_errors)))?,
    };
    Ok((ours, [stdin.into(), stdout.into(), stderr.into()]))
}

/// The label and the run stand in its arguments for people who look at a process list; nothing else does.
fn spawn_keeper(launch: &Launch, control: StdStream) -> Result<(Child, OwnChild), StartFailed> {
    let mut command = Command::new(program::keeper());
    command
        .arg0("adjutant")
        .args(["__keep", &launch.label, &launch.run.to_string()])
        .env_clear()
        .current_dir("/")
        .stdin(OwnedFd::from(control))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    orphans::spawn_own(&mut command).map_err(StartFailed::Keeper)
}

async fn hand_over(control: &mut UnixStream, launch: &Launch) -> io::Result<Report> {
    let order = Order {
        folder: launch.folder.clone().into(),
        links: launch.links,
        program: launch.program.clone().into(),
        arguments: launch.arguments.clone(),
        environment: marked_environment(launch),
    };
    control.write_all(&order.to_bytes()?).await?;
    read_report(control).await
}

/// The environment as asked for, and the marker by which leftovers are found.
fn marked_environment(launch: &Launch) -> Vec<(OsString, OsString)> {
    let asked =
        launch.environment.iter().filter(|(name, _)| name != env_vars::ADJUTANT_RUN).cloned();
    let marker = (env_vars::ADJUTANT_RUN.into(), launch.run.to_string().into());
    asked.chain([marker]).collect()
}

/// Reads the next report of a keeper.
pub(super) async fn read_report(control: &mut (impl AsyncReadExt + Unpin)) -> io::Result<Report> {
    let mut bytes = [0; REPORT_BYTES];
    control.read_exact(&mut bytes).await?;
    Report::from_bytes(bytes)
}
