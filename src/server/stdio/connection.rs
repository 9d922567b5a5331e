//! `execute_tool` past everything that it does not need.
//!
//! rmcp takes each message apart into typed values, hands it from task to task and puts the answer together again; for a
//! call that is only passed on, that cost several times the call itself. Here the lines of a caller are looked at first:
//! a call of `execute_tool` goes straight to the gateway, which judges, records and calls as it always does, and its answer
//! goes out as the bytes that the server wrote. Every other line, and every call that is in any way out of the ordinary,
//! is rmcp's.

use std::collections::HashMap;
use std::future::ready;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use memchr::memmem::{self, Finder};
use rmcp::RoleServer;
use rmcp::transport::async_rw::AsyncRwTransport;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream, duplex,
};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::call_line::{Call, Revision, answer, begins_sessionless};
use super::gateway_tools::{EXECUTE_TOOL, PROGRESS_WAITING};
use super::{log_messages, unreadable};
use crate::gateway::{Execute, Gateway, LogRelay, Outbox, Reply, Who, telling};
use crate::identity::{Caller, Doubt};

/// What rmcp has not read yet of the lines that are its own.
const RMCP_BUFFER: usize = 64 * 1024;
/// Longer lines are rmcp's, which knows what is too long.
const LONGEST_LINE: usize = 8 << 20;
/// As long as a line may be that is refused with an answer; longer ones are dropped.
const MOST_BYTES: usize = 64 << 20;
/// Calls on their way at once; nothing more is read before one of them has ended.
const MOST_CALLS: usize = 4096;
/// A caller that takes nothing for so long is not there any more.
const READ_PATIENCE: Duration = Duration::from_mins(10);
/// How long calls have for their answers once the caller has said its last word.
pub(super) const LAST_ANSWERS: Duration = Duration::from_secs(5);
/// How long the last answers may take to go out.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What a fast call needs to know of the server it comes in by.
pub(super) trait Desk: Send + Sync + 'static {
    /// The gateway, where its tools are offered.
    fn gateway(&self) -> Option<&Gateway>;

    /// Who makes the call with this id of Claude Code; what was attested about it is used up.
    fn caller(&self, tool_use_id: Option<String>) -> Result<Caller, Doubt>;

    /// How the caller hears what servers log, where it may.
    fn log_relay(&self) -> Option<&LogRelay>;
}

/// The lines between a caller and us, with a lane of their own for calls that are only passed on.
pub(super) struct FastLane {
    outbox: Outbox,
    calls: TaskTracker,
    going_on: GoingOn,
}

impl FastLane {
    /// Takes a connection over; what it gives back is the rest of it, for rmcp.
    pub(super) fn open<D: Desk>(
        desk: Arc<D>,
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Send + Unpin + 'static,
    ) -> (Self, AsyncRwTransport<RoleServer, DuplexStream, WholeLines>) {
        let outbox = Outbox::default();
        let calls = TaskTracker::new();
        tokio::spawn(outbox.clone().drain(output, READ_PATIENCE));
        let (rest, for_rmcp) = duplex(RMCP_BUFFER);
        let lane = Self { outbox: outbox.clone(), calls, going_on: GoingOn::default() };
        let sorter = Sorter {
            desk,
            rest,
            outbox: outbox.clone(),
            calls: lane.calls.clone(),
            going_on: Arc::clone(&lane.going_on),
            words: Words::default(),
            begun: None,
        };
        tokio::spawn(sorter.sort(BufReader::with_capacity(RMCP_BUFFER, input)));
        let output = WholeLines { outbox, line: Vec::new() };
        let rest = AsyncRwTransport::new_server(for_rmcp, output);
        (lane, rest.with_max_line_length(MOST_BYTES))
    }

    /// Lets calls end within `grace` and their answers go out; then nothing more is said.
    pub(super) async fn close(self, grace: Duration) {
        self.calls.close();
        if timeout(grace, self.calls.wait()).await.is_err() {
            let mut going_on = lock(&self.going_on);
            going_on.is_over = true;
            going_on.calls.values().for_each(CancellationToken::cancel);
        }
        let _ = timeout(LAST_WORDS, self.outbox.flushed()).await;
        self.outbox.close();
    }
}

type GoingOn = Arc<Mutex<Going>>;

/// Fast calls that have begun and not ended.
#[derive(Default)]
struct Going {
    /// By their ids, as they were written.
    calls: HashMap<Arc<str>, CancellationToken>,
    /// Set when nothing new may begin.
    is_over: bool,
}

/// Looks at each line and decides whose it is.
struct Sorter<D> {
    desk: Arc<D>,
    rest: DuplexStream,
    outbox: Outbox,
    calls: TaskTracker,
    going_on: GoingOn,
    words: Words,
    /// How the caller has begun, which is rmcp's business; `None` before that.
    begun: Option<Revision>,
}

/// What is looked for in every line.
struct Words {
    taken_back: Finder<'static>,
    execute_tool: Finder<'static>,
}

impl Default for Words {
    fn default() -> Self {
        Self {
            taken_back: Finder::new(b"\"notifications/cancelled\""),
            execute_tool: Finder::new(EXECUTE_TOOL),
        }
    }
}

impl<D: Desk> Sorter<D> {
    async fn sort(mut self, mut input: BufReader<impl AsyncRead + Unpin>) {
        let mut line = Vec::new();
        loop {
            let Ok(available) = input.fill_buf().await else { return };
            if available.is_empty() {
                return;
            }
            let end = memchr::memchr(b'\n', available);
            let taken = end.map_or(available.len(), |end| end + 1);
            let piece = available.get(..taken).unwrap_or_default();
            let whole = end.is_some() && line.is_empty();
            if !whole {
                line.extend_from_slice(piece);
            }
            let ours = match end {
                Some(_) if whole => self.is_ours(piece) || self.refuses(piece),
                Some(_) => self.is_ours(&line) || self.refuses(&line),
                None => false,
            };
            let passed_on = match (end, ours) {
                (_, true) => Ok(()),
                (Some(_), false) if whole => self.rest.write_all(piece).await,
                (Some(_), false) => self.rest.write_all(&line).await,
                // A line without end is rmcp's to refuse.
                (None, _) if line.len() > LONGEST_LINE => self.rest.write_all(&line).await,
                (None, _) => {
                    input.consume(taken);
                    continue;
                }
            };
            input.consume(taken);
            line.clear();
            if passed_on.is_err() || self.room().await.is_err() {
                return;
            }
        }
    }

    /// Waits until there is room for another answer and another call.
    async fn room(&self) -> io::Result<()> {
        while self.calls.len() >= MOST_CALLS {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.outbox.room().await
    }

    fn is_ours(&mut self, line: &[u8]) -> bool {
        let Some(revision) = self.begun else {
            self.begins(line);
            return false;
        };
        if self.words.taken_back.find(line).is_some() {
            return self.takes_back(line);
        }
        self.words.execute_tool.find(line).is_some()
            && line.len() <= LONGEST_LINE
            && Call::read(line).is_some_and(|call| call.revision == revision && self.begin(call))
    }

    /// Here and not where rmcp hears of it: the first call may be the next line, and its server may log at once.
    fn begins(&mut self, line: &[u8]) {
        self.begun = beginning(line);
        if self.begun == Some(Revision::Handshake)
            && let Some(relay) = self.desk.log_relay()
        {
            log_messages::pass_on(relay, self.outbox.clone());
        }
    }

    /// What rmcp would drop without a word is answered here.
    fn refuses(&self, line: &[u8]) -> bool {
        unreadable::refusal(line).is_some_and(|answer| self.outbox.push(answer.as_bytes()).is_ok())
    }

    fn takes_back(&self, line: &[u8]) -> bool {
        let Ok(taken_back) = serde_json::from_slice::<TakenBack<'_>>(line) else { return false };
        let call = lock(&self.going_on).calls.remove(taken_back.params.id.get());
        call.inspect(CancellationToken::cancel).is_some()
    }

    fn begin(&self, mut call: Call) -> bool {
        let Some(gateway) = self.desk.gateway() else { return false };
        let cancelled = call.execute.cancelled.clone();
        {
            let mut going_on = lock(&self.going_on);
            if going_on.is_over || going_on.calls.contains_key(&call.id) {
                return false;
            }
            going_on.calls.insert(Arc::clone(&call.id), cancelled);
        }
        let who = call.who(self.desk.caller(call.tool_use_id.clone()));
        let Call { id, progress_token, execute, revision, .. } = call;
        let (outbox, going_on) = (self.outbox.clone(), Arc::clone(&self.going_on));
        let in_sight = self.calls.token();
        let reply: Reply = Box::new(move |result| {
            // A call that was taken back gets no answer.
            if lock(&going_on).calls.remove(&id).is_some() {
                let _ = outbox.push(answer(&id, revision, result).as_bytes());
            }
            drop(in_sight);
        });
        if let Some(token) = progress_token {
            self.go_on_telling(token, who, execute, reply);
        } else if let Err(unusual) = gateway.pass(who, execute, reply) {
            let (who, execute, reply) = *unusual;
            let desk = Arc::clone(&self.desk);
            tokio::spawn(async move {
                let Some(gateway) = desk.gateway() else { return };
                reply(gateway.execute(&who, execute).await);
            });
        }
        true
    }

    /// The same with progress, which goes out as it comes.
    fn go_on_telling(&self, token: Box<RawValue>, who: Who, mut execute: Execute, reply: Reply) {
        let (sender, progress) = mpsc::channel(PROGRESS_WAITING);
        execute.progress = Some(sender);
        let (desk, outbox) = (Arc::clone(&self.desk), self.outbox.clone());
        tokio::spawn(async move {
            let Some(gateway) = desk.gateway() else { return };
            let tell = |news| {
                let _ = outbox.push(progress_line(&token, news).as_bytes());
                ready(())
            };
            reply(telling(gateway.execute(&who, execute), progress, tell).await);
        });
    }
}

/// Which lifecycle this line begins, if it begins one; rmcp decides by the same lines.
fn beginning(line: &[u8]) -> Option<Revision> {
    if memmem::find(line, b"\"notifications/initialized\"").is_some() {
        return Some(Revision::Handshake);
    }
    begins_sessionless(line).then_some(Revision::Sessionless)
}

fn lock(going_on: &GoingOn) -> MutexGuard<'_, Going> {
    going_on.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Deserialize)]
struct TakenBack<'a> {
    #[serde(borrow)]
    params: TakenBackParams<'a>,
}

#[derive(Deserialize)]
struct TakenBackParams<'a> {
    #[serde(borrow, rename = "requestId")]
    id: &'a RawValue,
}

fn progress_line(token: &RawValue, news: rmcp::model::ProgressNotificationParam) -> String {
    let mut params = serde_json::to_value(news).unwrap_or_default();
    let token = serde_json::from_str(token.get()).unwrap_or_default();
    if let Some(params) = params.as_object_mut() {
        params.insert("progressToken".to_owned(), token);
    }
    let line = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params });
    format!("{line}\n")
}

/// Where rmcp writes: its lines go out whole, between those of the fast lane.
pub(super) struct WholeLines {
    outbox: Outbox,
    line: Vec<u8>,
}

impl AsyncWrite for WholeLines {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.line.extend_from_slice(bytes);
        if let Some(end) = memchr::memrchr(b'\n', &self.line) {
            let rest = self.line.split_off(end + 1);
            let whole = std::mem::replace(&mut self.line, rest);
            self.outbox.push(&whole)?;
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
