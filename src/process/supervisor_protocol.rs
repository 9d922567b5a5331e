//! What the server, a keeper and the shim say to each other over their sockets.
//!
//! Both ends are always the same build, so the format is as plain as can be: counted strings one way,
//! frames of a fixed size the other.

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

use super::launch::Links;

/// Far above what a system takes as arguments and environment; a guard against nonsense alone.
const MOST_BYTES: u32 = 64 << 20;

/// What the keeper is to start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) folder: OsString,
    pub(super) links: Links,
    pub(super) program: OsString,
    pub(super) arguments: Vec<OsString>,
    pub(super) environment: Vec<(OsString, OsString)>,
}

impl Order {
    /// The order as bytes, its length in front.
    pub(super) fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        put_text(&mut bytes, &self.folder)?;
        put_count(&mut bytes, usize::from(self.links == Links::Refuse))?;
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

    /// Reads an order to its end.
    pub(super) fn read_from(source: &mut impl Read) -> io::Result<Self> {
        let length = take_count(source)?;
        let mut bytes = vec![0; length as usize];
        source.read_exact(&mut bytes)?;
        let mut rest = bytes.as_slice();
        let folder = take_text(&mut rest)?;
        let links = if take_count(&mut rest)? == 0 { Links::Follow } else { Links::Refuse };
        let program = take_text(&mut rest)?;
        let count = take_count(&mut rest)?;
        let arguments = (0..count).map(|_| take_text(&mut rest)).collect::<io::Result<_>>()?;
        let count = take_count(&mut rest)?;
        let environment = (0..count)
            .map(|_| Ok((take_text(&mut rest)?, take_text(&mut rest)?)))
            .collect::<io::Result<_>>()?;
        Ok(Self { folder, links, program, arguments, environment })
    }
}

/// Where a start failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Entering the working folder.
    Folder,
    /// Executing the program.
    Program,
    /// The keeper's own work.
    Keeper,
}

/// What a keeper tells its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// The program runs under this pid.
    Started { pid: u32 },
    /// It does not.
    Failed { stage: Stage, errno: i32 },
    /// It ended, and all its descendants but `leftover` are gone.
    Exited { code: i32, leftover: i32 },
    /// The same, by a signal.
    Signaled { signal: i32, leftover: i32 },
}

/// Bytes of one report.
pub(super) const REPORT_BYTES: usize = 9;

impl Report {
    pub(super) fn to_bytes(self) -> [u8; REPORT_BYTES] {
        let (tag, first, second) = match self {
            Self::Started { pid } => (b'S', pid.cast_signed(), 0),
            Self::Failed { stage: Stage::Folder, errno } => (b'F', errno, 0),
            Self::Failed { stage: Stage::Program, errno } => (b'P', errno, 0),
            Self::Failed { stage: Stage::Keeper, errno } => (b'K', errno, 0),
            Self::Exited { code, leftover } => (b'E', code, leftover),
            Self::Signaled { signal, leftover } => (b'G', signal, leftover),
        };
        let mut bytes = [tag; REPORT_BYTES];
        let numbers = first.to_le_bytes().into_iter().chain(second.to_le_bytes());
        bytes.iter_mut().skip(1).zip(numbers).for_each(|(slot, byte)| *slot = byte);
        bytes
    }

    pub(super) fn from_bytes(bytes: [u8; REPORT_BYTES]) -> io::Result<Self> {
        let [tag, numbers @ ..] = bytes;
        let first = i32::from_le_bytes(*numbers.first_chunk().ok_or_else(nonsense)?);
        let second = i32::from_le_bytes(*numbers.last_chunk().ok_or_else(nonsense)?);
        let failed = |stage| Self::Failed { stage, errno: first };
        match tag {
            b'S' => Ok(Self::Started { pid: first.cast_unsigned() }),
            b'F' => Ok(failed(Stage::Folder)),
            b'P' => Ok(failed(Stage::Program)),
            b'K' => Ok(failed(Stage::Keeper)),
            b'E' => Ok(Self::Exited { code: first, leftover: second }),
            b'G' => Ok(Self::Signaled { signal: first, leftover: second }),
            _ => Err(nonsense()),
        }
    }
}

/// What a server asks of a keeper. A second request of any kind skips the grace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// SIGTERM, and SIGKILL after the grace.
    End { grace: Duration },
    /// SIGKILL at once.
    Kill,
}

/// Bytes of one request.
pub(super) const REQUEST_BYTES: usize = 5;

impl Request {
    pub(super) fn to_bytes(self) -> [u8; REQUEST_BYTES] {
        let (tag, grace) = match self {
            Self::End { grace } => (b'T', u32::try_from(grace.as_millis()).unwrap_or(u32::MAX)),
            Self::Kill => (b'K', 0),
        };
        let [a, b, c, d] = grace.to_le_bytes();
        [tag, a, b, c, d]
    }

    pub(super) fn from_bytes([tag, a, b, c, d]: [u8; REQUEST_BYTES]) -> Self {
        let grace = Duration::from_millis(u64::from(u32::from_le_bytes([a, b, c, d])));
        if tag == b'T' { Self::End { grace } } else { Self::Kill }
    }
}

/// Sends descriptors, with one byte to carry them.
pub(super) fn send_descriptors(
    socket: impl AsFd,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(nonsense());
    }
    sendmsg(socket, &[IoSlice::new(b"d")], &mut ancillary, SendFlags::empty())?;
    Ok(())
}

/// Receives exactly `N` descriptors; none of them survives an exec.
pub(super) fn receive_descriptors<const N: usize>(socket: impl AsFd) -> io::Result<[OwnedFd; N]> {
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
    descriptors.try_into().map_err(|_| nonsense())
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
        u32::try_from(count).ok().filter(|count| *count <= MOST_BYTES).ok_or_else(too_long)?;
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
    if count > MOST_BYTES { Err(nonsense()) } else { Ok(count) }
}

fn take_text(source: &mut impl Read) -> io::Result<OsString> {
    let mut bytes = vec![0; take_count(source)? as usize];
    source.read_exact(&mut bytes)?;
    Ok(OsString::from_vec(bytes))
}

fn too_long() -> io::Error {
    io::Error::from_raw_os_error(nix::errno::Errno::E2BIG as i32)
}

fn nonsense() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test]
    fn an_order_comes_out_as_it_went_in() {
        let order = Order {
            folder: "/tmp".into(),
            links: Links::Refuse,
            program: OsString::from_vec(vec![0xff, b'x']),
            arguments: vec!["".into(), "a b\n".into()],
            environment: vec![("A".into(), "=".into())],
        };
        let bytes = order.to_bytes().unwrap();
        assert_eq!(Order::read_from(&mut bytes.as_slice()).unwrap(), order);
        let cut = bytes.len() - 1;
        assert!(Order::read_from(&mut &bytes[..cut]).is_err(), "a torn order is refused");
    }

    #[test_case(Report::Started { pid: u32::MAX })]
    #[test_case(Report::Failed { stage: Stage::Program, errno: 2 })]
    #[test_case(Report::Exited { code: 255, leftover: 3 })]
    #[test_case(Report::Signaled { signal: 9, leftover: 0 })]
    fn reports_come_out_as_they_went_in(report: Report) {
        assert_eq!(Report::from_bytes(report.to_bytes()).unwrap(), report);
    }

    #[test]
    fn a_grace_beyond_all_measure_is_cut() {
        let endless = Request::End { grace: Duration::from_secs(u64::MAX) };
        let grace = Duration::from_millis(u64::from(u32::MAX));
        assert_eq!(Request::from_bytes(endless.to_bytes()), Request::End { grace });
    }
}
