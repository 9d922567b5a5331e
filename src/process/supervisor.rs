//! The supervisor (`adjutant __keep`): a process between the server and a program that owns the process tree.
//!
//! As the subreaper of all descendants it adopts processes that lost their parent, even after `setsid` or a double
//! fork. It stops the tree on request of the server, on SIGTERM, SIGINT or SIGHUP, when the program exits, and when the
//! server dies (EOF on the control socket).
//!
//! One thread forks and does the work, because the parent-death signal is tied to the thread that forked.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::spec::SymlinkPolicy;
use super::supervisor_protocol::{
    COMMAND_BYTES, SpawnRequest, SpawnStage, SupervisorCommand, SupervisorEvent,
};
use super::{hidden_commands, orphans, supervisor_protocol, tree};

/// Grace period after SIGTERM if the server is gone or a signal requested the stop.
const DEFAULT_GRACE_PERIOD: Duration = Duration::from_secs(1);
/// Grace period for the descendants after the program itself exited on SIGTERM.
const DESCENDANTS_GRACE_PERIOD: Duration = Duration::from_millis(200);
/// Limit for killing processes that survive SIGKILL: those of other users, or stuck in the kernel.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(3);
/// Poll interval while the tree is being stopped.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Check for exited children without a signal: systems other than Linux may drop a blocked SIGCHLD.
const RESCAN_INTERVAL: Duration =
    Duration::from_secs(if cfg!(target_os = "linux") { 30 } else { 1 });

/// Runs the supervisor until the tree is gone.
pub(crate) fn run() -> ExitCode {
    match Supervisor::start() {
        Ok(mut supervisor) => supervisor.supervise(),
        Err(_) => ExitCode::FAILURE,
    }
}

struct Supervisor {
    /// `None` after the server closed the socket.
    control: Option<UnixStream>,
    signals: UnixStream,
    leader: Pid,
    /// Exit status of the program. From then on its pid may be reused.
    exit_status: Option<WaitStatus>,
    /// End of the grace period, once stopping has begun.
    kill_at: Option<Instant>,
}

impl Supervisor {
    fn start() -> io::Result<Self> {
        let control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        match start_leader(&control) {
            Ok((signals, leader)) => {
                send_event(
                    &control,
                    SupervisorEvent::Started { pid: leader.as_raw().cast_unsigned() },
                )?;
                Ok(Self {
                    control: Some(control),
                    signals,
                    leader,
                    exit_status: None,
                    kill_at: None,
                })
            }
            Err((stage, error)) => {
                let errno = error.raw_os_error().unwrap_or(Errno::EIO as i32);
                send_event(&control, SupervisorEvent::Failed { stage, errno })?;
                Err(error)
            }
        }
    }

    fn supervise(&mut self) -> ExitCode {
        self.wait_for_exit();
        self.wait_for_descendants();
        let leftover = i32::try_from(self.kill_descendants()).unwrap_or(i32::MAX);
        let (event, code) = match self.exit_status {
            Some(WaitStatus::Exited(_, code)) => (SupervisorEvent::Exited { code, leftover }, code),
            status => {
                let signal = match status {
                    Some(WaitStatus::Signaled(_, signal, _)) => signal as i32,
                    _ => Signal::SIGKILL as i32,
                };
                (SupervisorEvent::Signaled { signal, leftover }, 128 + signal)
            }
        };
        if let Some(control) = &self.control {
            let _ = send_event(control, event);
        }
        ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
    }

    /// Waits until the program exits or the grace period ends.
    fn wait_for_exit(&mut self) {
        loop {
            self.reap();
            let now = Instant::now();
            if self.exit_status.is_some() || self.kill_at.is_some_and(|until| until <= now) {
                return;
            }
            let max_wait = self.kill_at.map_or(RESCAN_INTERVAL, |until| until - now);
            let (asked, caught) = self.wait_readable(max_wait);
            if asked {
                self.handle_command();
            }
            if caught {
                self.handle_signal();
            }
        }
    }

    fn wait_readable(&self, max_wait: Duration) -> (bool, bool) {
        let mut polled = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        polled.extend(self.control.as_ref().map(|c| PollFd::new(c.as_fd(), PollFlags::POLLIN)));
        let timeout =
            PollTimeout::try_from(max_wait.min(RESCAN_INTERVAL)).unwrap_or(PollTimeout::ZERO);
        if poll(&mut polled, timeout).is_err() {
            return (false, false);
        }
        let ready = |index: usize| polled.get(index).and_then(PollFd::any).unwrap_or(false);
        (ready(1), ready(0))
    }

    fn handle_command(&mut self) {
        let mut bytes = [0; COMMAND_BYTES];
        let read = self.control.as_mut().map(|control| control.read_exact(&mut bytes));
        match read {
            Some(Ok(())) => match SupervisorCommand::from_bytes(bytes) {
                SupervisorCommand::Stop { grace } => self.stop(grace),
                SupervisorCommand::Kill => self.kill_at = Some(Instant::now()),
            },
            _ => self.handle_server_exit(),
        }
    }

    fn handle_signal(&mut self) {
        match next_signal(&mut self.signals) {
            Some(CaughtSignal::ChildExited) => {}
            Some(CaughtSignal::Stop) => self.stop(DEFAULT_GRACE_PERIOD),
            None => self.kill_at = Some(Instant::now()),
        }
    }

    /// Sends SIGTERM to the tree; a second request ends the grace period.
    fn stop(&mut self, grace: Duration) {
        if self.kill_at.is_some() {
            self.kill_at = Some(Instant::now());
            return;
        }
        self.kill_at = Some(Instant::now() + grace);
        let _ = killpg(self.leader, Signal::SIGTERM);
        tree::signal_descendants(Signal::SIGTERM);
        // A stopped process handles SIGTERM only after SIGCONT.
        tree::signal_descendants(Signal::SIGCONT);
    }

    fn handle_server_exit(&mut self) {
        self.control = None;
        if self.kill_at.is_none() {
            self.stop(DEFAULT_GRACE_PERIOD);
        }
        let latest = Instant::now() + DEFAULT_GRACE_PERIOD;
        self.kill_at = self.kill_at.map(|until| until.min(latest));
    }

    /// Gives descendants at most 200 ms to handle SIGTERM after the program exited.
    fn wait_for_descendants(&mut self) {
        let Some(until) = self.kill_at else { return };
        let until = until.min(Instant::now() + DESCENDANTS_GRACE_PERIOD);
        while Instant::now() < until && tree::for_each_descendant(Pid::this().as_raw(), |_| {}) > 0
        {
            self.pause();
        }
    }

    /// Sends SIGKILL until no descendant is left, for at most 3 s. Returns the number of those still alive.
    fn kill_descendants(&mut self) -> usize {
        let give_up = Instant::now() + SWEEP_TIMEOUT;
        // A process without children has no descendants: usually `/proc` need not be read at all.
        while self.reap() == ChildState::HasChildren {
            // INVARIANT: while the program is not reaped, its pid, and thus its process group, cannot be reused.
            if self.exit_status.is_none() {
                let _ = killpg(self.leader, Signal::SIGKILL);
            }
            let alive = tree::signal_descendants(Signal::SIGKILL);
            if Instant::now() >= give_up {
                return alive;
            }
            self.pause();
        }
        0
    }

    fn pause(&mut self) {
        let mut polled = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(POLL_INTERVAL).unwrap_or(PollTimeout::ZERO);
        if poll(&mut polled, timeout).is_ok_and(|ready| ready > 0) {
            next_signal(&mut self.signals);
        }
    }

    /// Reaps all exited children: the program and adopted orphans.
    fn reap(&mut self) -> ChildState {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => return ChildState::HasChildren,
                Ok(status) if status.pid() == Some(self.leader) => self.exit_status = Some(status),
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => return ChildState::NoChildren,
            }
        }
    }
}

/// Result of reaping: children left or none.
#[derive(PartialEq, Eq)]
enum ChildState {
    HasChildren,
    NoChildren,
}

type SpawnResult<T> = Result<T, (SpawnStage, io::Error)>;

fn start_leader(control: &UnixStream) -> SpawnResult<(UnixStream, Pid)> {
    let ours = |error| (SpawnStage::Supervisor, error);
    create_session().map_err(ours)?;
    let signals = catch_signals().map_err(ours)?;
    let descriptors = supervisor_protocol::receive_descriptors(control).map_err(ours)?;
    let request = SpawnRequest::read_from(&mut &*control).map_err(ours)?;
    enter_working_dir(&request).map_err(|error| (SpawnStage::WorkingDir, error))?;
    let leader = spawn(request, descriptors)?;
    // The supervisor must not keep the directory from being unmounted or removed.
    std::env::set_current_dir(Path::new("/")).map_err(ours)?;
    Ok((signals, leader))
}

/// Changes the working directory; the program inherits it even if its path is replaced afterwards.
fn enter_working_dir(request: &SpawnRequest) -> io::Result<()> {
    std::env::set_current_dir(&request.working_dir)?;
    if request.symlinks == SymlinkPolicy::Refuse
        && std::env::current_dir()? != Path::new(&request.working_dir)
    {
        return Err(Errno::ELOOP.into());
    }
    Ok(())
}

/// Starts a new session: without a controlling terminal no input can be injected, and Ctrl-C reaches us only once.
fn create_session() -> io::Result<()> {
    nix::unistd::setsid()?;
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_name(c"adjutant-keep");
    orphans::become_subreaper()
}

/// Starts the exec shim in its own process group and returns once it has executed the program.
fn spawn(request: SpawnRequest, [stdin, stdout, stderr]: [OwnedFd; 3]) -> SpawnResult<Pid> {
    let (mut ours, theirs) = UnixStream::pair().map_err(|error| (SpawnStage::Supervisor, error))?;
    let leader = spawn_shim(request, [theirs.as_fd(), stdout.as_fd(), stderr.as_fd()])
        .map_err(|error| (SpawnStage::Program, error))?;
    drop((theirs, stdout, stderr));
    supervisor_protocol::send_descriptors(&ours, &[stdin.as_fd()])
        .map_err(|error| (SpawnStage::Supervisor, error))?;
    let mut errno = [0; 4];
    if ours.read_exact(&mut errno).is_err() {
        // Closed without an error number: `exec` succeeded.
        return Ok(leader);
    }
    let _ = waitpid(leader, None);
    Err((SpawnStage::Program, io::Error::from_raw_os_error(i32::from_le_bytes(errno))))
}

fn spawn_shim(request: SpawnRequest, descriptors: [BorrowedFd<'_>; 3]) -> io::Result<Pid> {
    let mut actions = PosixSpawnFileActions::init()?;
    for (number, descriptor) in (0..).zip(descriptors) {
        actions.add_dup2(descriptor.as_raw_fd(), number)?;
    }
    let supervisor = std::process::id().to_string().into();
    let own = ["adjutant".into(), "__exec".into(), supervisor, request.program];
    let arguments = own.into_iter().chain(request.arguments).map(c_string);
    // If a variable occurs twice, the last value is used.
    let environment: BTreeMap<_, _> = request.environment.into_iter().collect();
    let environment = environment.into_iter().map(|(name, value)| {
        c_string([name.as_os_str(), OsStr::new("="), value.as_os_str()].into_iter().collect())
    });
    let leader = posix_spawnp(
        &c_string(hidden_commands::own_program().into())?,
        &actions,
        &reset_group_and_signals()?,
        &arguments.collect::<io::Result<Vec<_>>>()?,
        &environment.collect::<io::Result<Vec<_>>>()?,
    )?;
    Ok(leader)
}

/// Resets signal dispositions and the signal mask and creates a process group.
///
/// Shells start background jobs with SIGINT ignored, `nohup` ignores SIGHUP, and ignored signals stay ignored across
/// `exec`. `std` does not reset them, so the program could not be stopped with them.
fn reset_group_and_signals() -> io::Result<PosixSpawnAttr> {
    let mut attributes = PosixSpawnAttr::init()?;
    attributes.set_flags(
        PosixSpawnFlags::POSIX_SPAWN_SETPGROUP
            | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF
            | PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK,
    )?;
    attributes.set_pgroup(Pid::from_raw(0))?;
    attributes.set_sigdefault(&SigSet::all())?;
    attributes.set_sigmask(&SigSet::empty())?;
    Ok(attributes)
}

fn c_string(text: OsString) -> io::Result<CString> {
    Ok(CString::new(text.into_vec())?)
}

fn send_event(mut control: &UnixStream, event: SupervisorEvent) -> io::Result<()> {
    control.write_all(&event.to_bytes())
}

/// Signals as the supervisor distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CaughtSignal {
    /// SIGCHLD: a child may have exited.
    ChildExited,
    /// SIGTERM, SIGINT or SIGHUP: stop the tree.
    Stop,
}

/// Blocks SIGCHLD, SIGTERM, SIGINT and SIGHUP and starts a thread that forwards them as bytes.
///
/// The mask is inherited; the supervisor resets it for the programs it starts.
fn catch_signals() -> io::Result<UnixStream> {
    let wanted: SigSet =
        [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect();
    wanted.thread_block()?;
    let (ours, theirs) = UnixStream::pair()?;
    theirs.set_nonblocking(true)?;
    thread::Builder::new().stack_size(64 << 10).spawn(move || forward_signals(&wanted, &theirs))?;
    Ok(ours)
}

/// Reads the next signal, blocking; `None` if the thread is gone.
fn next_signal(socket: &mut UnixStream) -> Option<CaughtSignal> {
    let mut byte = [0];
    socket.read_exact(&mut byte).ok()?;
    Some(if byte == [b'c'] { CaughtSignal::ChildExited } else { CaughtSignal::Stop })
}

fn forward_signals(wanted: &SigSet, mut socket: &UnixStream) {
    while let Ok(signal) = wanted.wait() {
        let byte = if signal == Signal::SIGCHLD { b"c" } else { b"e" };
        // If the socket is full, enough unread bytes wake the reader anyway.
        match socket.write_all(byte) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return,
            _ => {}
        }
    }
}
