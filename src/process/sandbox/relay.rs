//! `adjutant __relay`: process 1 of a sandbox, the parent of the program.
//!
//! Forwards loopback ports to Unix sockets, reaps every orphan, forwards SIGTERM, SIGINT and SIGHUP, and exits with the
//! program's status. When it exits, the kernel kills everything else in the sandbox.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use nix::errno::Errno;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, UnixStream};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;

use super::PortForward;
use crate::process::hidden_commands::own_program;

/// Exit status if the relay itself failed: below those of a signal, and not one of `claude`.
const EXIT_FAILED: u8 = 125;
/// Connections at once on one port. More of them wait: the relay must not run out of descriptors.
const MAX_CONNECTIONS: usize = 256;

/// Runs `__relay --agent=NAME PORT=SOCKET… -- PROGRAM ARGUMENT…`.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let relayed = Builder::new_current_thread()
        .enable_all()
        .build()
        .and_then(|runtime| runtime.block_on(relay(arguments)));
    match relayed {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            let _ = writeln!(io::stderr(), "adjutant: the relay of the sandbox failed: {error}");
            ExitCode::from(EXIT_FAILED)
        }
    }
}

async fn relay(mut arguments: impl Iterator<Item = OsString>) -> io::Result<u8> {
    // Environment, memory and descriptors of this process become unreadable for the others in the sandbox.
    nix::sys::prctl::set_dumpable(false)?;
    close_fds::set_fds_cloexec(3, &[]);
    let options = arguments.by_ref().take_while(|argument| argument != "--");
    let forwards = options.filter_map(|option| parse_forward(&option)).collect::<Vec<_>>();
    for forward in forwards {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, forward.port)).await?;
        tokio::spawn(accept(listener, forward.socket));
    }
    // Before the program is started: a signal in between must not be lost.
    let mut child_exited = signal(SignalKind::child())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let program = spawn(arguments)?;
    release_standard_streams()?;
    loop {
        let forwarded = tokio::select! {
            _ = child_exited.recv() => {
                match reap(program) {
                    Some(status) => return Ok(status),
                    None => continue,
                }
            }
            _ = terminate.recv() => Signal::SIGTERM,
            _ = interrupt.recv() => Signal::SIGINT,
            _ = hang_up.recv() => Signal::SIGHUP,
        };
        let _ = kill(program, forwarded);
    }
}

fn parse_forward(option: &OsString) -> Option<PortForward> {
    let (port, socket) = option.to_str()?.split_once('=')?;
    Some(PortForward { port: port.parse().ok()?, socket: PathBuf::from(socket) })
}

/// Copies every connection to the socket, opened anew for each: after a restart of the other side the next one works.
async fn accept(listener: TcpListener, socket: PathBuf) {
    let free = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    while let Ok(permit) = Arc::clone(&free).acquire_owned().await {
        let Ok((mut inside, _)) = listener.accept().await else {
            // Out of descriptors: they become free when connections end.
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            continue;
        };
        let _ = inside.set_nodelay(true);
        let socket = socket.clone();
        tokio::spawn(async move {
            if let Ok(mut outside) = UnixStream::connect(&socket).await {
                let _ = copy_bidirectional(&mut inside, &mut outside).await;
            }
            drop(permit);
        });
    }
}

/// Starts the program through `__confine`, with our standard streams and environment.
fn spawn(program: impl Iterator<Item = OsString>) -> io::Result<Pid> {
    let parent = std::process::id().to_string().into();
    let own = ["adjutant".into(), "__confine".into(), parent];
    let arguments = own.into_iter().chain(program).map(c_string).collect::<io::Result<Vec<_>>>()?;
    let environment = std::env::vars_os().map(|(mut name, value)| {
        name.push("=");
        name.push(value);
        c_string(name)
    });
    let mut attributes = PosixSpawnAttr::init()?;
    attributes.set_flags(
        PosixSpawnFlags::POSIX_SPAWN_SETPGROUP
            | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF
            | PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK,
    )?;
    attributes.set_pgroup(Pid::from_raw(0))?;
    attributes.set_sigdefault(&SigSet::all())?;
    attributes.set_sigmask(&SigSet::empty())?;
    let pid = posix_spawnp(
        &c_string(own_program().into())?,
        &PosixSpawnFileActions::init()?,
        &attributes,
        &arguments,
        &environment.collect::<io::Result<Vec<_>>>()?,
    )?;
    Ok(pid)
}

/// Gives up stdin and stdout: the other side must see their end when the program closes them.
fn release_standard_streams() -> io::Result<()> {
    let null = File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(())
}

/// Reaps all exited children; returns the program's status once it has exited.
fn reap(program: Pid) -> Option<u8> {
    let mut exited = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == program => exited = u8::try_from(code).ok(),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == program => {
                exited = u8::try_from(128 + signal as i32).ok();
            }
            Ok(WaitStatus::StillAlive) => return exited,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return exited.or(Some(EXIT_FAILED)),
        }
    }
}

fn c_string(text: OsString) -> io::Result<CString> {
    Ok(CString::new(text.into_vec())?)
}
