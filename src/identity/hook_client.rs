//! Hook side of the attestation channel: finds the servers of its `claude` and sends them the attestation.

use std::fs;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use super::attestation::Attestation;
use super::hook_listener::ACK;
use super::rendezvous::{
    SOCKET_EXTENSION, SPOOL_EXTENSION, endpoint_dir, ensure_private, live_process_of, runtime_dir,
};
use crate::process::ProcessStat;
use crate::store::write_volatile;

/// Limit for the server's acknowledgement; it normally arrives within milliseconds.
const ACK_TIMEOUT: Duration = Duration::from_millis(500);
/// Servers notified per hook. Several servers below one `claude` are unusual, but each gets a copy.
const MAX_SERVERS: usize = 32;

/// Sends an attestation to every server below the same `claude`; returns how many took it.
///
/// Blocks at most 500 ms per read or write. An error is returned only if no server took it; `Ok(0)` if there is no
/// server.
pub(crate) fn send_attestation(attestation: &Attestation) -> io::Result<usize> {
    send_attestation_in(&runtime_dir(), attestation)
}

pub(crate) fn send_attestation_in(
    runtime_dir: &Path,
    attestation: &Attestation,
) -> io::Result<usize> {
    let Some(dir) = nearest_endpoint_dir(runtime_dir) else { return Ok(0) };
    ensure_private(runtime_dir)?;
    ensure_private(&dir)?;
    let message = serde_json::to_vec(attestation)?;
    let mut accepted = 0;
    let mut failed = Ok(());
    for entry in fs::read_dir(&dir)?.flatten().take(MAX_SERVERS) {
        let path = entry.path();
        if live_process_of(&path).is_none() {
            continue;
        }
        let sent = match path.extension().and_then(|end| end.to_str()) {
            Some(SOCKET_EXTENSION) => send_to_socket(&path, &message),
            Some(SPOOL_EXTENSION) => write_to_spool(&path, &message),
            _ => continue,
        };
        match sent {
            Ok(()) => accepted += 1,
            Err(error) => failed = Err(error),
        }
    }
    if accepted == 0 {
        failed?;
    }
    Ok(accepted)
}

/// Returns the endpoint directory of the nearest ancestor that has one; a nested `claude` finds its own.
fn nearest_endpoint_dir(runtime_dir: &Path) -> Option<PathBuf> {
    let above = ProcessStat::current()?.ancestors();
    above.map(|process| endpoint_dir(runtime_dir, &process)).find(|dir| dir.is_dir())
}

fn send_to_socket(socket: &Path, message: &[u8]) -> io::Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    let peer = getsockopt(&stream, PeerCredentials)?;
    if peer.uid() != nix::unistd::geteuid().as_raw() {
        let why = "the server is of another user";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    stream.set_read_timeout(Some(ACK_TIMEOUT))?;
    stream.set_write_timeout(Some(ACK_TIMEOUT))?;
    stream.write_all(message)?;
    stream.shutdown(Shutdown::Write)?;
    // The acknowledgement guarantees that the server has the attestation before the call arrives.
    let mut answer = Vec::new();
    stream.take(ACK.len() as u64).read_to_end(&mut answer)?;
    match answer == ACK {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, "the server did not take it")),
    }
}

/// Writes a file with a generated name; nothing of the payload is used in the path.
fn write_to_spool(inbox: &Path, message: &[u8]) -> io::Result<()> {
    ensure_private(inbox)?;
    write_volatile(&inbox.join(format!("{}.json", uuid::Uuid::now_v7().simple())), message)
}
