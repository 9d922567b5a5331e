//! `adjutant __keep`: a small process between the server and a program, which holds the whole tree.
//!
//! It is the subreaper of everything the program starts, so whoever loses a parent down there becomes its
//! child, whatever `setsid` or double fork was tried. It ends the tree when it is asked to, when it is told
//! by a signal, when the program ends, and when the server is gone (the socket to it closes with it).
//! It has one thread that forks, because the kernel ties «die with your parent» to the forking thread.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::launch::Links;
use super::signals::{self, Caught};
use super::wire::{self, Order, REQUEST_BYTES, Report, Request, Stage};
use super::{program, tree};

/// How long a tree has after SIGTERM when nobody is left who could say so, or a person asked.
const UNASKED_GRACE: Duration = Duration::from_secs(1);
/// How long the others have to end by themselves once the program itself obeyed a SIGTERM.
const COURTESY: Duration = Duration::from_millis(200);
/// When to give up on what cannot be killed: another user's process, or one stuck in the kernel.
const SWEEP_LIMIT: Duration = Duration::from_secs(3);
/// How often the state of the tree is looked at while it ends.
const STEP: Duration = Duration::from_millis(5);
/// A second look in case a signal got lost: other systems than Linux drop a blocked SIGCHLD.
const SECOND_LOOK: Duration = Duration::from_secs(if cfg!(target_os = "linux") { 30 } else { 1 });

/// Runs `__keep` to the end of the tree.
pub(super) fn run() -> ExitCode {
    match Keeper::begin() {
        Ok(mut keeper) => keeper.keep(),
        Err(_) => ExitCode::FAILURE,
    }
}

struct Keeper {
    /// `None` once the server is gone.
    control: Option<UnixStream>,
    signals: UnixStream,
    leader: Pid,
    /// How the program ended; its pid is free from then on.
    ended: Option<WaitStatus>,
    /// When grace is over, once the end has begun.
    until: Option<Instant>,
}

impl Keeper {
    fn begin() -> io::Result<Self> {
        let control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        match start_leader(&control) {
            Ok((signals, leader)) => {
                report(&control, Report::Started { pid: leader.as_raw().cast_unsigned() })?;
                Ok(Self { control: Some(control), signals, leader, ended: None, until: None })
            }
            Err((stage, error)) => {
                let errno = error.raw_os_error().unwrap_or(Errno::EIO as i32);
                report(&control, Report::Failed { stage, errno })?;
                Err(error)
            }
        }
    }

    fn keep(&mut self) -> ExitCode {
        self.watch();
        self.wait_for_the_polite();
        let leftover = i32::try_from(self.sweep()).unwrap_or(i32::MAX);
        let (report, code) = match self.ended {
            Some(WaitStatus::Exited(_, code)) => (Report::Exited { code, leftover }, code),
            Some(WaitStatus::Signaled(_, signal, _)) => {
                (Report::Signaled { signal: signal as i32, leftover }, 128 + signal as i32)
            }
            _ => (
                Report::Signaled { signal: Signal::SIGKILL as i32, leftover },
                128 + Signal::SIGKILL as i32,
            ),
        };
        if let Some(control) = &self.control {
            let _ = self::report(control, report);
        }
        ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
    }

    /// Waits until the program has ended by itself, or its grace is over.
    fn watch(&mut self) {
        loop {
            self.collect();
            let now = Instant::now();
            if self.ended.is_some() || self.until.is_some_and(|until| until <= now) {
                return;
            }
            let patience = self.until.map_or(SECOND_LOOK, |until| until - now);
            let (asked, caught) = self.wait_for_news(patience);
            if asked {
                self.heed_server();
            }
            if caught {
                self.heed_signals();
            }
        }
    }

    fn wait_for_news(&self, patience: Duration) -> (bool, bool) {
        let mut polled = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        polled.extend(self.control.as_ref().map(|c| PollFd::new(c.as_fd(), PollFlags::POLLIN)));
        let timeout = PollTimeout::try_from(patience.min(SECOND_LOOK)).unwrap_or(PollTimeout::ZERO);
        if poll(&mut polled, timeout).is_err() {
            return (false, false);
        }
        let ready = |index: usize| polled.get(index).and_then(PollFd::any).unwrap_or(false);
        (ready(1), ready(0))
    }

    fn heed_server(&mut self) {
        let mut bytes = [0; REQUEST_BYTES];
        let read = self.control.as_mut().map(|control| control.read_exact(&mut bytes));
        match read {
            Some(Ok(())) => match Request::from_bytes(bytes) {
                Request::End { grace } => self.end(grace),
                Request::Kill => self.until = Some(Instant::now()),
            },
            _ => self.server_is_gone(),
        }
    }

    fn heed_signals(&mut self) {
        match signals::next(&mut self.signals) {
            Some(Caught::ChildEnded) => {}
            Some(Caught::Ending) => self.end(UNASKED_GRACE),
            None => self.until = Some(Instant::now()),
        }
    }

    /// The first request begins the ladder, the second skips what is left of the grace.
    fn end(&mut self, grace: Duration) {
        if self.until.is_some() {
            self.until = Some(Instant::now());
            return;
        }
        self.until = Some(Instant::now() + grace);
        let _ = killpg(self.leader, Signal::SIGTERM);
        tree::signal_descendants(Signal::SIGTERM);
        // A stopped process acts on SIGTERM only when it goes on.
        tree::signal_descendants(Signal::SIGCONT);
    }

    fn server_is_gone(&mut self) {
        self.control = None;
        if self.until.is_none() {
            self.end(UNASKED_GRACE);
        }
        let latest = Instant::now() + UNASKED_GRACE;
        self.until = self.until.map(|until| until.min(latest));
    }

    /// After a polite end of the program, its children may finish what they do on SIGTERM, for a moment.
    fn wait_for_the_polite(&mut self) {
        let Some(until) = self.until else { return };
        let until = until.min(Instant::now() + COURTESY);
        while Instant::now() < until && tree::each_descendant(Pid::this().as_raw(), |_| {}) > 0 {
            self.pause();
        }
    }

    /// Kills until nothing is left, and says how many could not be killed.
    fn sweep(&mut self) -> usize {
        let give_up = Instant::now() + SWEEP_LIMIT;
        // Mostly nothing is left, and whoever has no children has no descendants: no look at all processes then.
        while self.collect() == Family::Some {
            // INVARIANT: while the program is not collected, its pid, and so its group, is nobody else's.
            if self.ended.is_none() {
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
        let timeout = PollTimeout::try_from(STEP).unwrap_or(PollTimeout::ZERO);
        if poll(&mut polled, timeout).is_ok_and(|ready| ready > 0) {
            signals::next(&mut self.signals);
        }
    }

    /// Collects every child that has ended: the program and orphans that came to us.
    fn collect(&mut self) -> Family {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => return Family::Some,
                Ok(status) if status.pid() == Some(self.leader) => self.ended = Some(status),
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => return Family::None,
            }
        }
    }
}

/// Whether there are children at all.
#[derive(PartialEq, Eq)]
enum Family {
    Some,
    None,
}

type Step<T> = Result<T, (Stage, io::Error)>;

fn start_leader(control: &UnixStream) -> Step<(UnixStream, Pid)> {
    let ours = |error| (Stage::Keeper, error);
    settle().map_err(ours)?;
    let signals = signals::catch().map_err(ours)?;
    let descriptors = wire::receive_descriptors(control).map_err(ours)?;
    let order = Order::read_from(&mut &*control).map_err(ours)?;
    enter_folder(&order).map_err(|error| (Stage::Folder, error))?;
    let leader = spawn(order, descriptors)?;
    // The keeper must not keep a folder from being unmounted or removed.
    std::env::set_current_dir(Path::new("/")).map_err(ours)?;
    Ok((signals, leader))
}

/// From here on it is held, whatever becomes of its name: the program is started in it.
fn enter_folder(order: &Order) -> io::Result<()> {
    std::env::set_current_dir(&order.folder)?;
    if order.links == Links::Refuse && std::env::current_dir()? != Path::new(&order.folder) {
        return Err(Errno::ELOOP.into());
    }
    Ok(())
}

/// A session of its own: no terminal whose keys could be forged or whose Ctrl-C would come twice.
fn settle() -> io::Result<()> {
    nix::unistd::setsid()?;
    adopt()
}

#[cfg(target_os = "linux")]
fn adopt() -> io::Result<()> {
    let _ = nix::sys::prctl::set_name(c"adjutant-keep");
    Ok(nix::sys::prctl::set_child_subreaper(true)?)
}

#[cfg(not(target_os = "linux"))]
fn adopt() -> io::Result<()> {
    Ok(())
}

/// Starts the shim in a group of its own, and returns when it has become the program.
fn spawn(order: Order, [stdin, stdout, stderr]: [OwnedFd; 3]) -> Step<Pid> {
    let (mut ours, theirs) = UnixStream::pair().map_err(|error| (Stage::Keeper, error))?;
    let leader = spawn_shim(order, [theirs.as_fd(), stdout.as_fd(), stderr.as_fd()])
        .map_err(|error| (Stage::Program, error))?;
    drop((theirs, stdout, stderr));
    wire::send_descriptors(&ours, &[stdin.as_fd()]).map_err(|error| (Stage::Keeper, error))?;
    let mut errno = [0; 4];
    if ours.read_exact(&mut errno).is_err() {
        // Closed without a word: the program runs.
        return Ok(leader);
    }
    let _ = waitpid(leader, None);
    Err((Stage::Program, io::Error::from_raw_os_error(i32::from_le_bytes(errno))))
}

fn spawn_shim(order: Order, descriptors: [BorrowedFd<'_>; 3]) -> io::Result<Pid> {
    let mut actions = PosixSpawnFileActions::init()?;
    for (number, descriptor) in (0..).zip(descriptors) {
        actions.add_dup2(descriptor.as_raw_fd(), number)?;
    }
    let keeper = std::process::id().to_string().into();
    let own = ["adjutant".into(), "__exec".into(), keeper, order.program];
    let arguments = own.into_iter().chain(order.arguments).map(c_string);
    // Of a name that comes twice, the last one counts.
    let environment: BTreeMap<_, _> = order.environment.into_iter().collect();
    let environment = environment.into_iter().map(|(name, value)| {
        c_string([name.as_os_str(), OsStr::new("="), value.as_os_str()].into_iter().collect())
    });
    let leader = posix_spawnp(
        &c_string(program::own().into())?,
        &actions,
        &fresh_group_and_signals()?,
        &arguments.collect::<io::Result<Vec<_>>>()?,
        &environment.collect::<io::Result<Vec<_>>>()?,
    )?;
    Ok(leader)
}

/// A shell starts what it puts into the background with SIGINT ignored, `nohup` does so with SIGHUP, and what is
/// ignored stays so through every `exec`: `std` would hand it on to the program, which then could not be told.
fn fresh_group_and_signals() -> io::Result<PosixSpawnAttr> {
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

fn report(mut control: &UnixStream, report: Report) -> io::Result<()> {
    control.write_all(&report.to_bytes())
}
