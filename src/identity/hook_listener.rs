//! The server's side of the meeting place: a private socket at which hooks hand in what they attest.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::attestation::Attestation;
use super::book::{Attestations, Way};
use super::meeting::{INBOX, SOCKET, claude_above, house, name_of, prepare};
use crate::base::{
    ProcessStat, create_private_dir, make_private, remove_empty_dir, remove_file, remove_tree,
};

/// More than any attestation has.
pub(super) const MAX_MESSAGE: u64 = 4096;
/// What a hook is answered when its word was heard.
pub(super) const HEARD: &[u8] = b"heard\n";
/// How long a visitor may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many are heard at once; others wait.
const MAX_VISITORS: usize = 32;

/// The open door; closed and removed when dropped.
#[derive(Debug)]
pub struct Reception {
    path: PathBuf,
    listening: Option<JoinHandle<()>>,
}

impl Reception {
    /// Opens it where the hooks of the `claude` above this process look. Must be called within a runtime.
    ///
    /// Where it cannot be opened, the log says why and calls are unattested.
    pub fn open(attested: &Arc<Attestations>) -> Option<Self> {
        let (own, claude) = (ProcessStat::own()?, claude_above()?);
        match Self::open_in(&house(), own, claude, attested) {
            Ok(reception) => Some(reception),
            Err(error) => {
                tracing::warn!(%error, "hooks cannot hand in who is calling");
                None
            }
        }
    }

    fn open_in(
        house: &Path,
        own: ProcessStat,
        claude: ProcessStat,
        attested: &Arc<Attestations>,
    ) -> io::Result<Self> {
        let place = prepare(house, &claude)?;
        let path = place.join(format!("{}.{SOCKET}", name_of(&own)));
        match listen(&path) {
            Ok(listener) => {
                let visitors = Visitors { own, claude, attested: Arc::clone(attested) };
                let listening = Some(tokio::spawn(visitors.hear_all(listener)));
                Ok(Self { path, listening })
            }
            Err(error) => {
                tracing::warn!(%error, "there is no socket for hooks; they leave files instead");
                let path = path.with_extension(INBOX);
                create_private_dir(&path)?;
                attested.read_files_in(path.clone());
                Ok(Self { path, listening: None })
            }
        }
    }
}

impl Drop for Reception {
    fn drop(&mut self) {
        let removed = match &self.listening {
            Some(listening) => {
                listening.abort();
                remove_file(&self.path)
            }
            None => remove_tree(&self.path),
        };
        if let Err(error) = removed {
            tracing::debug!(%error, "the meeting place could not be removed");
        }
        if let Some(place) = self.path.parent() {
            remove_empty_dir(place);
        }
    }
}

/// The folder is entered by its owner alone, so nobody is quicker than the second line.
fn listen(path: &Path) -> io::Result<UnixListener> {
    remove_file(path)?;
    let listener = UnixListener::bind(path)?;
    make_private(path)?;
    Ok(listener)
}

/// Those who may come, and what they say.
struct Visitors {
    own: ProcessStat,
    claude: ProcessStat,
    attested: Arc<Attestations>,
}

impl Visitors {
    async fn hear_all(self, listener: UnixListener) {
        let visitors = Arc::new(self);
        let places = Arc::new(Semaphore::new(MAX_VISITORS));
        while let Ok(place) = Arc::clone(&places).acquire_owned().await {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a hook could not be heard");
                    // Too many open files, say: they will be closed again.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            };
            // At once, while the process that connected is surely the one of this pid.
            if let Err(why) = visitors.admit(&stream) {
                tracing::warn!("a stranger at the socket for hooks is ignored: {why}");
                continue;
            }
            let visitors = Arc::clone(&visitors);
            tokio::spawn(async move {
                if timeout(PATIENCE, visitors.hear(stream)).await.is_err() {
                    tracing::warn!("a hook took too long; what it attests is ignored");
                }
                drop(place);
            });
        }
    }

    /// Whether the process at the other end is one that this `claude` started, and none of ours.
    fn admit(&self, stream: &UnixStream) -> Result<(), &'static str> {
        let peer = stream.peer_cred().map_err(|_| "nobody knows who it is")?;
        if peer.uid() != nix::unistd::geteuid().as_raw() {
            return Err("it is of another user");
        }
        let process = peer.pid().and_then(ProcessStat::read).ok_or("it is gone already")?;
        let above: Vec<ProcessStat> = process.ancestors().collect();
        if !above.iter().any(|above| above.is_same(&self.claude)) {
            return Err("it belongs to another session");
        }
        // Our own subagents are below the same `claude`, but below us too.
        if above.iter().any(|above| above.is_same(&self.own)) {
            return Err("it belongs to a subagent");
        }
        Ok(())
    }

    async fn hear(&self, mut stream: UnixStream) {
        let mut message = Vec::new();
        let (reading, mut writing) = stream.split();
        let read = reading.take(MAX_MESSAGE + 1).read_to_end(&mut message).await;
        if read.is_ok() && hear_message(&self.attested, &message) {
            // Whoever is gone does not need an answer.
            let _ = writing.write_all(HEARD).await;
        }
    }
}

/// Takes what a hook handed in; says whether it could be read.
pub(super) fn hear_message(attested: &Attestations, message: &[u8]) -> bool {
    let value = (message.len() as u64 <= MAX_MESSAGE)
        .then(|| serde_json::from_slice::<serde_json::Value>(message).ok())
        .flatten();
    let Some(said) = value.as_ref().and_then(Attestation::of_payload) else {
        tracing::warn!("what a hook handed in cannot be read and is ignored");
        return false;
    };
    attested.add(said, Way::Hook);
    true
}

#[cfg(test)]
mod tests {
    use super::super::messenger::hand_over_in;
    use super::*;

    fn said(id: &str) -> Attestation {
        Attestation {
            tool_use_id: id.to_owned(),
            tool_name: "mcp__adjutant__run_subagent".to_owned(),
            session_id: "s".to_owned(),
            agent_id: Some("a1".to_owned()),
            agent_type: Some("code-reviewer".to_owned()),
        }
    }

    /// The address of a socket has at most 107 bytes.
    #[tokio::test]
    async fn where_there_can_be_no_socket_a_hook_leaves_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let house = folder.path().join("x".repeat(100));
        let own = ProcessStat::own().unwrap();
        let claude = own.ancestors().next().unwrap();
        let attested = Arc::new(Attestations::default());
        let reception = Reception::open_in(&house, own, claude, &attested).unwrap();
        let inbox = reception.path.clone();
        assert_eq!(inbox.extension().unwrap(), INBOX);
        assert_eq!(hand_over_in(&house, &said("t1")).unwrap(), 1);
        // What is not from a hook is not read: no JSON, too long, somebody else's link.
        std::fs::write(inbox.join("torn.json"), "{").unwrap();
        std::fs::write(inbox.join("long.json"), vec![b' '; 1 << 20]).unwrap();
        let outside = folder.path().join("outside.json");
        std::fs::write(&outside, serde_json::to_vec(&said("t2")).unwrap()).unwrap();
        std::os::unix::fs::symlink(&outside, inbox.join("link.json")).unwrap();
        let taken = attested.take("t1", "run_subagent").unwrap().expect("the file was read");
        assert_eq!(taken.caller().name, "code-reviewer");
        assert_eq!(attested.take("t2", "run_subagent"), Ok(None));
        assert_eq!(std::fs::read_dir(&inbox).unwrap().count(), 0, "each is read once");
        assert!(outside.exists());
        drop(reception);
        assert!(!inbox.exists());
    }
}
