//! Protocol between server, supervisor and exec shim on their sockets.
//!
//! Both ends are the same build, so the format has no versions: length-prefixed strings to the supervisor, fixed-size
//! frames back.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::spec::SymlinkPolicy;

/// Limit for a length prefix: 64 MiB, far above the kernel's limit for arguments and environment.
const MAX_LENGTH: u32 = 64 << 20;

/// The process to start, sent by the server to the supervisor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpawnRequest {
    pub(crate) working_dir: OsString,
    pub(crate) symlinks: SymlinkPolicy,
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: Vec<(OsString, OsString)>,
}

impl SpawnRequest {
    /// Encodes the request with its length in front.
    pub(crate) fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        put_text(&mut bytes, &self.working_dir)?;
        put_count(&mut bytes, usize::from(self.symlinks == SymlinkPolicy::Refuse))?;
        put_text(&mut bytes, &self.program)?;
        put_count(&mut bytes, self.arguments.len())?;
        for argument in &self.arguments {
            put_text(&mut bytes, argument)?;
        }
        put_count(&mut bytes, self.environment.len())?;
        for (name, value) in &self.environment {
            put_text(&mut bytes, name)?;
            put_text(&mut bytes, value)?;
        }
        let mut framed = Vec::with_capacity(bytes.len() + 4);
        put_count(&mut framed, bytes.len())?;
        framed.append(&mut bytes);
        Ok(framed)
    }

    /// Reads and decodes a request.
    pub(crate) fn read_from(source: &mut impl Read) -> io::Result<Self> {
        let length = take_count(source)?;
        let mut bytes = vec![0; length as usize];
        source.read_exact(&mut bytes)?;
        let mut rest = bytes.as_slice();
        let working_dir = take_text(&mut rest)?;
        let symlinks =
            if take_count(&mut rest)? == 0 { SymlinkPolicy::Follow } else { SymlinkPolicy::Refuse };
        let program = take_text(&mut rest)?;
        let count = take_count(&mut rest)?;
        let arguments = (0..count).map(|_| take_text(&mut rest)).collect::<io::Result<_>>()?;
        let count = take_count(&mut rest)?;
        let environment = (0..count)
            .map(|_| Ok((take_text(&mut rest)?, take_text(&mut rest)?)))
            .collect::<io::Result<_>>()?;
        Ok(Self { working_dir, symlinks, program, arguments, environment })
    }
}

/// The stage in which a start failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpawnStage {
    /// Entering the working directory.
    WorkingDir,
    /// Executing the program.
    Program,
    /// The supervisor's own work.
    Supervisor,
}

/// Events sent by the supervisor to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SupervisorEvent {
    /// The program runs under this pid.
    Started { pid: u32 },
    /// The program could not be started.
    Failed { stage: SpawnStage, errno: i32 },
    /// The program exited. Its descendants are gone, except `survivors` many.
    Exited { code: i32, leftover: i32 },
    /// A signal killed the program. Its descendants are gone, except `survivors` many.
    Signaled { signal: i32, leftover: i32 },
}

/// Size of an encoded event.
pub(crate) const EVENT_BYTES: usize = 9;

impl SupervisorEvent {
    pub(crate) fn to_bytes(self) -> [u8; EVENT_BYTES] {
        let (tag, first, second) = match self {
            Self::Started { pid } => (b'S', pid.cast_signed(), 0),
            Self::Failed { stage: SpawnStage::WorkingDir, errno } => (b'F', errno, 0),
            Self::Failed { stage: SpawnStage::Program, errno } => (b'P', errno, 0),
            Self::Failed { stage: SpawnStage::Supervisor, errno } => (b'K', errno, 0),
            Self::Exited { code, leftover } => (b'E', code, leftover),
            Self::Signaled { signal, leftover } => (b'G', signal, leftover),
        };
        let mut bytes = [tag; EVENT_BYTES];
        let numbers = first.to_le_bytes().into_iter().chain(second.to_le_bytes());
        bytes.iter_mut().skip(1).zip(numbers).for_each(|(slot, byte)| *slot = byte);
        bytes
    }

    pub(crate) fn from_bytes(bytes: [u8; EVENT_BYTES]) -> io::Result<Self> {
        let [tag, numbers @ ..] = bytes;
        let first = i32::from_le_bytes(*numbers.first_chunk().ok_or_else(invalid_data)?);
        let second = i32::from_le_bytes(*numbers.last_chunk().ok_or_else(invalid_data)?);
        let failed = |stage| Self::Failed { stage, errno: first };
        match tag {
            b'S' => Ok(Self::Started { pid: first.cast_unsigned() }),
            b'F' => Ok(failed(SpawnStage::WorkingDir)),
            b'P' => Ok(failed(SpawnStage::Program)),
            b'K' => Ok(failed(SpawnStage::Supervisor)),
            b'E' => Ok(Self::Exited { code: first, leftover: second }),
            b'G' => Ok(Self::Signaled { signal: first, leftover: second }),
            _ => Err(invalid_data()),
        }
    }
}

/// Commands sent by the server to a running supervisor. A second command of any kind skips the grace period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SupervisorCommand {
    /// SIGTERM, and SIGKILL after the grace period.
    Stop { grace: Duration },
    /// SIGKILL.
    Kill,
}

/// Size of an encoded command.
pub(crate) const COMMAND_BYTES: usize = 5;

impl SupervisorCommand {
    pub(crate) fn to_bytes(self) -> [u8; COMMAND_BYTES] {
        let (tag, grace) = match self {
            Self::Stop { grace } => (b'T', u32::try_from(grace.as_millis()).unwrap_or(u32::MAX)),
            Self::Kill => (b'K', 0),
        };
        let [a, b, c, d] = grace.to_le_bytes();
        [tag, a, b, c, d]
    }

    pub(crate) fn from_bytes([tag, a, b, c, d]: [u8; COMMAND_BYTES]) -> Self {
        let grace = Duration::from_millis(u64::from(u32::from_le_bytes([a, b, c, d])));
        if tag == b'T' { Self::Stop { grace } } else { Self::Kill }
    }
}

/// Sends file descriptors (`SCM_RIGHTS`), with one byte to carry them.
pub(crate) fn send_descriptors(
    socket: impl AsFd,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(invalid_data());
    }
    sendmsg(socket, &[IoSlice::new(b"d")], &mut ancillary, SendFlags::empty())?;
    Ok(())
}

/// Receives exactly `N` file descriptors, close-on-exec.
pub(crate) fn receive_descriptors<const N: usize>(socket: impl AsFd) -> io::Result<[OwnedFd; N]> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let received =
        recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, receive_flags())?;
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut descriptors = Vec::with_capacity(N);
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    descriptors.try_into().map_err(|_| invalid_data())
}

#[cfg(target_os = "linux")]
fn receive_flags() -> RecvFlags {
    RecvFlags::CMSG_CLOEXEC
}

#[cfg(not(target_os = "linux"))]
fn receive_flags() -> RecvFlags {
    RecvFlags::empty()
}

fn put_count(bytes: &mut Vec<u8>, count: usize) -> io::Result<()> {
    let count =
        u32::try_from(count).ok().filter(|count| *count <= MAX_LENGTH).ok_or_else(too_long)?;
    bytes.write_all(&count.to_le_bytes())
}

fn put_text(bytes: &mut Vec<u8>, text: &OsStr) -> io::Result<()> {
    put_count(bytes, text.len())?;
    bytes.write_all(text.as_bytes())
}

fn take_count(source: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    source.read_exact(&mut bytes)?;
    let count = u32::from_le_bytes(bytes);
    if count > MAX_LENGTH { Err(invalid_data()) } else { Ok(count) }
}

fn take_text(source: &mut impl Read) -> io::Result<OsString> {
    let mut bytes = vec![0; take_count(source)? as usize];
    source.read_exact(&mut bytes)?;
    Ok(OsString::from_vec(bytes))
}

fn too_long() -> io::Error {
    io::Error::from_raw_os_error(nix::errno::Errno::E2BIG as i32)
}

fn invalid_data() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test]
    fn spawn_requests_round_trip() {
        let request = SpawnRequest {
            working_dir: "/tmp".into(),
            symlinks: SymlinkPolicy::Refuse,
            program: OsString::from_vec(vec![0xff, b'x']),
            arguments: vec!["".into(), "a b\n".into()],
            environment: vec![("A".into(), "=".into())],
        };
        let bytes = request.to_bytes().unwrap();
        assert_eq!(SpawnRequest::read_from(&mut bytes.as_slice()).unwrap(), request);
        let cut = bytes.len() - 1;
        assert!(SpawnRequest::read_from(&mut &bytes[..cut]).is_err(), "a torn order is refused");
    }

    #[test_case(SupervisorEvent::Started { pid: u32::MAX })]
    #[test_case(SupervisorEvent::Failed { stage: SpawnStage::Program, errno: 2 })]
    #[test_case(SupervisorEvent::Exited { code: 255, leftover: 3 })]
    #[test_case(SupervisorEvent::Signaled { signal: 9, leftover: 0 })]
    fn events_round_trip(event: SupervisorEvent) {
        assert_eq!(SupervisorEvent::from_bytes(event.to_bytes()).unwrap(), event);
    }

    #[test]
    fn long_grace_periods_are_capped() {
        let endless = SupervisorCommand::Stop { grace: Duration::from_secs(u64::MAX) };
        let grace = Duration::from_millis(u64::from(u32::MAX));
        assert_eq!(
            SupervisorCommand::from_bytes(endless.to_bytes()),
            SupervisorCommand::Stop { grace }
        );
    }
}
