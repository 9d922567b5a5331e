//! The hook's side of the meeting place: finds the servers of its `claude` and hands them what it attests.

use std::fs;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use super::attestation::Attestation;
use super::meeting::{INBOX, SOCKET, ensure_private, house, place_of, process_named};
use super::reception::HEARD;
use crate::base::{ProcessStat, write_volatile};

/// A server that is alive answers at once; the machine may be busy.
const PATIENCE: Duration = Duration::from_millis(500);
/// Several servers of ours below one `claude` are odd, but each gets its copy.
const MAX_SERVERS: usize = 32;

/// Hands an attestation to every server below the same `claude`; says to how many.
pub fn hand_over(said: &Attestation) -> io::Result<usize> {
    hand_over_in(&house(), said)
}

pub(super) fn hand_over_in(house: &Path, said: &Attestation) -> io::Result<usize> {
    let Some(place) = nearest_place(house) else { return Ok(0) };
    ensure_private(house)?;
    ensure_private(&place)?;
    let message = serde_json::to_vec(said)?;
    let mut heard = 0;
    let mut failed = Ok(());
    for entry in fs::read_dir(&place)?.flatten().take(MAX_SERVERS) {
        let path = entry.path();
        if process_named(&path).is_none() {
            continue;
        }
        let handed = match path.extension().and_then(|end| end.to_str()) {
            Some(SOCKET) => tell(&path, &message),
            Some(INBOX) => leave(&path, &message),
            _ => continue,
        };
        match handed {
            Ok(()) => heard += 1,
            Err(error) => failed = Err(error),
        }
    }
    if heard == 0 {
        failed?;
    }
    Ok(heard)
}

/// The place of the nearest process above that has one: a `claude` inside another finds its own.
fn nearest_place(house: &Path) -> Option<PathBuf> {
    let above = ProcessStat::own()?.ancestors();
    above.map(|process| place_of(house, &process)).find(|place| place.is_dir())
}

fn tell(socket: &Path, message: &[u8]) -> io::Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    let peer = getsockopt(&stream, PeerCredentials)?;
    if peer.uid() != nix::unistd::geteuid().as_raw() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the server is of another user",
        ));
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(message)?;
    stream.shutdown(Shutdown::Write)?;
    // Only after this may the call come: the server has it then.
    let mut answer = Vec::new();
    stream.take(HEARD.len() as u64).read_to_end(&mut answer)?;
    match answer == HEARD {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, "the server did not take it")),
    }
}

/// A file under a name of its own: nothing in it is taken from what the payload says.
fn leave(inbox: &Path, message: &[u8]) -> io::Result<()> {
    ensure_private(inbox)?;
    write_volatile(&inbox.join(format!("{}.json", uuid::Uuid::now_v7().simple())), message)
}
