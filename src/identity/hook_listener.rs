//! Server side of the attestation channel: a private Unix socket that accepts attestations from hooks, or a spool
//! directory in which they leave files if the socket cannot be created.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::attestation::Attestation;
use super::attestation_registry::{AttestationChannel, AttestationRegistry};
use super::rendezvous::{
    SOCKET_EXTENSION, SPOOL_EXTENSION, claude_ancestor, prepare_endpoint_dir, process_file_name,
    runtime_dir,
};
use crate::process::ProcessStat;
use crate::store::{
    create_private_dir, make_private, read_bounded, remove_empty_dir, remove_file, remove_tree,
};

/// Limit of a message in bytes; longer ones are ignored.
const MAX_MESSAGE_BYTES: u64 = 4096;
/// Acknowledgement sent after an attestation was stored.
pub(crate) const ACK: &[u8] = b"heard\n";
/// Limit for receiving one message.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(1);
/// Files read per call; equal to the limit of waiting attestations.
const MAX_SPOOLED_FILES: usize = 1024;
/// Connections served at once; further ones wait in the accept queue.
const MAX_CONNECTIONS: usize = 32;

/// Socket or spool directory for hooks, removed when dropped together with the accept task.
#[derive(Debug)]
pub(crate) struct HookListener {
    path: PathBuf,
    accept_task: Option<JoinHandle<()>>,
}

impl HookListener {
    /// Opens the socket in the endpoint directory of our `claude` ancestor. Must be called within a Tokio runtime.
    ///
    /// If no socket can be created, hooks leave files in a spool directory. If that fails too, or `claude` is not
    /// found, returns `None`: calls are unattested, and failures are logged.
    pub(crate) fn open(attested: &Arc<AttestationRegistry>) -> Option<Self> {
        let (own, claude) = (ProcessStat::current()?, claude_ancestor()?);
        match Self::open_in(&runtime_dir(), own, claude, attested) {
            Ok(hook_listener) => Some(hook_listener),
            Err(error) => {
                tracing::warn!(%error, "hooks cannot hand in who is calling");
                None
            }
        }
    }

    fn open_in(
        runtime_dir: &Path,
        own: ProcessStat,
        claude: ProcessStat,
        attested: &Arc<AttestationRegistry>,
    ) -> io::Result<Self> {
        let dir = prepare_endpoint_dir(runtime_dir, &claude)?;
        let path = dir.join(format!("{}.{SOCKET_EXTENSION}", process_file_name(&own)));
        match listen(&path) {
            Ok(listener) => {
                let peers = HookPeers { own, claude, attestations: Arc::clone(attested) };
                let listening = Some(tokio::spawn(peers.accept_loop(listener)));
                Ok(Self { path, accept_task: listening })
            }
            Err(error) => {
                tracing::warn!(%error, "there is no socket for hooks; they leave files instead");
                let path = path.with_extension(SPOOL_EXTENSION);
                create_private_dir(&path)?;
                attested.set_spool_dir(path.clone());
                Ok(Self { path, accept_task: None })
            }
        }
    }
}

impl Drop for HookListener {
    fn drop(&mut self) {
        let removed = match &self.accept_task {
            Some(listening) => {
                listening.abort();
                remove_file(&self.path)
            }
            None => remove_tree(&self.path),
        };
        if let Err(error) = removed {
            tracing::debug!(%error, "the socket or spool directory could not be removed");
        }
        if let Some(dir) = self.path.parent() {
            remove_empty_dir(dir);
        }
    }
}

/// Binds the socket. The directory has mode 0700, so nobody can connect between `bind` and `chmod`.
fn listen(path: &Path) -> io::Result<UnixListener> {
    remove_file(path)?;
    let listener = UnixListener::bind(path)?;
    make_private(path)?;
    Ok(listener)
}

/// Peer check and message handling for connections of hooks.
struct HookPeers {
    own: ProcessStat,
    claude: ProcessStat,
    attestations: Arc<AttestationRegistry>,
}

impl HookPeers {
    async fn accept_loop(self, listener: UnixListener) {
        let peers = Arc::new(self);
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a hook could not be heard");
                    // For example too many open files: retry after 20 ms.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            };
            // Checked immediately, while the peer's pid cannot have been reused.
            if let Err(why) = peers.check_peer(&stream) {
                tracing::warn!("a stranger at the socket for hooks is ignored: {why}");
                continue;
            }
            let peers = Arc::clone(&peers);
            tokio::spawn(async move {
                if timeout(RECEIVE_TIMEOUT, peers.receive(stream)).await.is_err() {
                    tracing::warn!("a hook took too long; what it attests is ignored");
                }
                drop(permit);
            });
        }
    }

    /// Accepts processes of this user that descend from our `claude` and not from us.
    ///
    /// Our own subagents descend from the same `claude`, but also from this process; they must not attest anything.
    fn check_peer(&self, stream: &UnixStream) -> Result<(), &'static str> {
        let peer = stream.peer_cred().map_err(|_| "nobody knows who it is")?;
        if peer.uid() != nix::unistd::geteuid().as_raw() {
            return Err("it is of another user");
        }
        let process = peer.pid().and_then(ProcessStat::read).ok_or("it is gone already")?;
        let above: Vec<ProcessStat> = process.ancestors().collect();
        if !above.iter().any(|above| above.is_same_process(&self.claude)) {
            return Err("it belongs to another session");
        }
        if above.iter().any(|above| above.is_same_process(&self.own)) {
            return Err("it belongs to a subagent");
        }
        Ok(())
    }

    async fn receive(&self, mut stream: UnixStream) {
        let mut message = Vec::new();
        let (reading, mut writing) = stream.split();
        let read = reading.take(MAX_MESSAGE_BYTES + 1).read_to_end(&mut message).await;
        if read.is_ok() && accept_message(&self.attestations, &message) {
            // The hook may have exited; then it needs no acknowledgement.
            let _ = writing.write_all(ACK).await;
        }
    }
}

/// Reads and removes the spooled attestations. Blocks on disk.
///
/// Files of other users and symbolic links are removed unread, although the directory's mode 0700 already keeps other
/// users out.
pub(crate) fn read_spool(inbox: &Path, attested: &AttestationRegistry) {
    let user = nix::unistd::geteuid().as_raw();
    for entry in fs::read_dir(inbox).into_iter().flatten().flatten().take(MAX_SPOOLED_FILES) {
        let path = entry.path();
        if path.extension().is_none_or(|end| end != "json") {
            continue;
        }
        let is_ours =
            fs::symlink_metadata(&path).is_ok_and(|found| found.is_file() && found.uid() == user);
        if let (true, Ok(message)) = (is_ours, read_bounded(&path, MAX_MESSAGE_BYTES)) {
            accept_message(attested, &message);
        }
        if let Err(error) = remove_file(&path) {
            tracing::debug!(%error, "a file of a hook could not be removed");
        }
    }
}

/// Parses and stores an attestation; returns false if the message cannot be parsed.
fn accept_message(attested: &AttestationRegistry, message: &[u8]) -> bool {
    let value = (message.len() as u64 <= MAX_MESSAGE_BYTES)
        .then(|| serde_json::from_slice::<serde_json::Value>(message).ok())
        .flatten();
    let Some(attestation) = value.as_ref().and_then(Attestation::from_payload) else {
        tracing::warn!("what a hook handed in cannot be read and is ignored");
        return false;
    };
    attested.add(attestation, AttestationChannel::Hook);
    true
}

#[cfg(test)]
mod tests {
    use super::super::hook_client::send_attestation_in;
    use super::*;

    fn attestation(id: &str) -> Attestation {
        Attestation {
            tool_use_id: id.to_owned(),
            tool_name: "mcp__adjutant__run_subagent".to_owned(),
            session_id: "s".to_owned(),
            agent_id: Some("a1".to_owned()),
            agent_type: Some("code-reviewer".to_owned()),
        }
    }

    /// The path of a Unix socket has at most 107 bytes.
    #[tokio::test]
    async fn hooks_write_files_if_the_socket_path_is_too_long() {
        let dir = tempfile::tempdir().unwrap();
        let runtime_dir = dir.path().join("x".repeat(100));
        let own = ProcessStat::current().unwrap();
        let claude = own.ancestors().next().unwrap();
        let attested = Arc::new(AttestationRegistry::default());
        let hook_listener = HookListener::open_in(&runtime_dir, own, claude, &attested).unwrap();
        let inbox = hook_listener.path.clone();
        assert_eq!(inbox.extension().unwrap(), SPOOL_EXTENSION);
        assert_eq!(send_attestation_in(&runtime_dir, &attestation("t1")).unwrap(), 1);
        // Ignored: invalid JSON, too long, a symbolic link.
        fs::write(inbox.join("torn.json"), "{").unwrap();
        fs::write(inbox.join("long.json"), vec![b' '; 1 << 20]).unwrap();
        let outside = dir.path().join("outside.json");
        fs::write(&outside, serde_json::to_vec(&attestation("t2")).unwrap()).unwrap();
        std::os::unix::fs::symlink(&outside, inbox.join("link.json")).unwrap();
        let taken = attested.take("t1", "run_subagent").unwrap().expect("the file was read");
        assert_eq!(taken.caller().name, "code-reviewer");
        assert_eq!(attested.take("t2", "run_subagent"), Ok(None));
        assert_eq!(fs::read_dir(&inbox).unwrap().count(), 0, "each is read once");
        assert!(outside.exists());
        drop(hook_listener);
        assert!(!inbox.exists());
    }
}
