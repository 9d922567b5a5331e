//! Description of a sandbox as plain data: everything a process in it sees.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The sandbox of one process. What is not listed here does not exist inside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// In the order in which they are made: a later mount hides what an earlier one has at the same path.
    pub mounts: Vec<Mount>,
    /// The complete environment.
    pub variables: Vec<SandboxVariable>,
    pub working_dir: PathBuf,
    /// Path of the `adjutant` executable inside.
    pub relay: PathBuf,
    /// The only ways out: loopback ports inside that lead to Unix sockets.
    pub forwards: Vec<PortForward>,
    /// Name of the agent, by which commands of Adjutant recognize the sandbox they run in.
    pub agent: String,
    pub limits: SandboxLimits,
}

/// Something at a path inside, and why it is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Path inside.
    pub path: PathBuf,
    pub kind: MountKind,
    pub reason: String,
}

impl Mount {
    pub fn new(path: impl AsRef<Path>, kind: MountKind, reason: impl Into<String>) -> Self {
        Self { path: path.as_ref().to_path_buf(), kind, reason: reason.into() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MountKind {
    /// File or folder of the host, read-only.
    ReadOnly { source: PathBuf },
    /// File or folder of the host.
    Writable { source: PathBuf },
    /// Empty folder in memory that ends with the sandbox.
    Private { mode: u32, max_bytes: u64 },
    /// Folder without a file system of its own, to mount something in.
    Folder { mode: u32 },
    /// Symbolic link.
    Link { target: PathBuf },
    /// Read-only file with this text.
    Text { content: String },
    /// Writable copy of this text, mode 0600.
    Copy { content: String },
    /// Makes the file system at this path read-only; what is mounted below it stays as it is.
    Seal,
    /// `/proc` of the sandbox's own processes.
    Proc,
    /// `/dev` with `null`, `zero`, `random`, `tty` and a few more.
    Devices,
}

/// Environment variable inside, and why it is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxVariable {
    pub name: String,
    pub value: String,
    pub reason: String,
}

impl SandboxVariable {
    pub fn new(name: &str, value: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { name: name.to_owned(), value: value.into(), reason: reason.into() }
    }
}

/// A port on 127.0.0.1 inside, connected to a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortForward {
    pub port: u16,
    /// Path inside.
    pub socket: PathBuf,
}

/// A file or folder that stands for a control file, so that the agent cannot create one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placeholder {
    File { content: &'static str },
    Folder,
}

/// Limits on resources; none of them is enforced yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxLimits {}
