//! Tool calls over a server's pipes, as the bytes they are.
//!
//! The connection is rmcp's: handshake, lists, announcements and the server's own questions. A tool call needs none of
//! that; taking it apart into typed values and putting it together again was most of what a call cost. Here the arguments
//! go out and the result comes back as they were written, under ids that rmcp never uses, on the same pipes.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memchr::memmem;
use rmcp::model::ErrorData;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::outbox::Outbox;
use super::passing::{Passing, SOON};
use crate::base::one_line;

/// rmcp counts its own requests from 0.
const FIRST_ID: u32 = 1 << 30;

/// What a server answered.
pub(super) type Answered = Result<Box<RawValue>, NoResult>;

/// An answer that is no result.
#[derive(Debug)]
pub(super) enum NoResult {
    /// The server said no, in the protocol's words.
    Error(ErrorData),
    /// It cannot be used, and why.
    Unusable(&'static str),
}

/// The way of tool calls through one connection; clones share it.
#[derive(Clone)]
pub(super) struct Shortcut(Arc<Shared>);

struct Shared {
    outbox: Outbox,
    issued: AtomicU32,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    calls: HashMap<u32, Waiter>,
    /// Whether somebody looks for calls that no task waits for and that take long.
    is_watched: bool,
}

/// Who gets an answer.
enum Waiter {
    Task(oneshot::Sender<Answered>),
    Passing(Box<Passing>),
}

/// A call that was sent; forgotten when dropped.
pub(super) struct Sent {
    shortcut: Shortcut,
    id: u32,
    pub(super) answer: oneshot::Receiver<Answered>,
}

/// As much of a message as decides whether it answers one of our calls.
#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl Shortcut {
    pub(super) fn new(outbox: Outbox) -> Self {
        let issued = AtomicU32::new(0);
        Self(Arc::new(Shared { outbox, issued, waiting: Mutex::default() }))
    }

    /// The id of the next call; also the token of its progress.
    pub(super) fn issue(&self) -> u32 {
        let count = self.0.issued.fetch_add(1, Ordering::Relaxed);
        FIRST_ID | (count % FIRST_ID)
    }

    /// Sends a tool call.
    pub(super) fn send(
        &self,
        id: u32,
        tool: &str,
        arguments: &RawValue,
        progress: Progress,
    ) -> io::Result<Sent> {
        let (sender, answer) = oneshot::channel();
        self.waiting().calls.insert(id, Waiter::Task(sender));
        let sent = Sent { shortcut: self.clone(), id, answer };
        self.0.outbox.push(line(id, tool, arguments, progress)?.as_bytes())?;
        Ok(sent)
    }

    /// Sends a tool call that no task waits for; gives it back where it cannot be sent.
    pub(super) fn pass(
        &self,
        id: u32,
        line: io::Result<String>,
        passing: Box<Passing>,
    ) -> Result<(), Box<Passing>> {
        let begins = {
            let mut waiting = self.waiting();
            waiting.calls.insert(id, Waiter::Passing(passing));
            !std::mem::replace(&mut waiting.is_watched, true)
        };
        if begins {
            tokio::spawn(self.clone().watch());
        }
        let pushed = line.and_then(|line| self.0.outbox.push(line.as_bytes()));
        match pushed.err().and_then(|_| self.waiting().calls.remove(&id)) {
            Some(Waiter::Passing(unsent)) => Err(unsent),
            Some(Waiter::Task(_)) | None => Ok(()),
        }
    }

    /// Gives a task to every call that is not answered soon.
    async fn watch(self) {
        loop {
            sleep(SOON / 2).await;
            let (late, goes_on) = {
                let mut waiting = self.waiting();
                let late = self.late(&mut waiting.calls);
                let is_left = |waiter: &Waiter| matches!(waiter, Waiter::Passing(_));
                waiting.is_watched = waiting.calls.values().any(is_left);
                (late, waiting.is_watched)
            };
            for (passing, sent) in late {
                tokio::spawn(passing.go_on(sent));
            }
            if !goes_on {
                return;
            }
        }
    }

    fn late(&self, calls: &mut HashMap<u32, Waiter>) -> Vec<(Box<Passing>, Sent)> {
        let mut late = Vec::new();
        for (id, waiter) in calls {
            if matches!(waiter, Waiter::Passing(passing) if passing.is_late()) {
                let (sender, answer) = oneshot::channel();
                if let Waiter::Passing(passing) = std::mem::replace(waiter, Waiter::Task(sender)) {
                    late.push((passing, Sent { shortcut: self.clone(), id: *id, answer }));
                }
            }
        }
        late
    }

    /// Whether this line answers one of our calls; then its caller has it now.
    pub(super) fn deliver(&self, line: &[u8]) -> bool {
        if self.waiting().calls.is_empty() {
            return false;
        }
        let Ok(Answer { jsonrpc, id: Some(id), method: None, result, error }) =
            serde_json::from_slice(line)
        else {
            return false;
        };
        // Some servers answer a numeric id with its text.
        let Ok(id) = id.get().trim_matches('"').parse::<u32>() else { return false };
        let answered = match (result, error) {
            (Some(result), _) if result.get().starts_with('{') => Ok(result.to_owned()),
            (Some(_), _) => Err(NoResult::Unusable("its answer is not the result of a tool")),
            (None, Some(error)) => {
                let malformed = || {
                    ErrorData::internal_error("the server answered with a malformed error", None)
                };
                let error = serde_json::from_str(error.get()).unwrap_or_else(|_| malformed());
                Err(NoResult::Error(error))
            }
            // Without even the name of the protocol it is somebody's log.
            (None, None) if jsonrpc.is_none() => return false,
            (None, None) => Err(NoResult::Unusable("its answer has neither a result nor an error")),
        };
        self.end(id, answered)
    }

    /// Ends the call that a line answers which cannot be read, as far as it can be told which one that is. `begin` and `end`
    /// are what is left of the line.
    pub(super) fn give_up(&self, begin: &[u8], end: &[u8], reason: &'static str) {
        // Some servers write down what they are asked, ids included: that answers nothing.
        let is_asked = [begin, end].iter().any(|part| memmem::find(part, b"\"method\"").is_some());
        if is_asked || !begin.trim_ascii_start().starts_with(b"{") {
            return;
        }
        let ids = [last_id(end), first_id(begin)];
        for id in ids.into_iter().flatten() {
            if self.end(id, Err(NoResult::Unusable(reason))) {
                return;
            }
        }
    }

    /// Hands an answer to whoever waits for it; `false` where nobody does.
    fn end(&self, id: u32, answered: Answered) -> bool {
        let waiter = self.waiting().calls.remove(&id);
        match waiter {
            // Who no longer waits has taken the call back.
            Some(Waiter::Task(task)) => drop(task.send(answered)),
            Some(Waiter::Passing(passing)) => passing.answered(answered),
            None => return false,
        }
        true
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sent {
    /// Tells the server that nobody waits for it any more.
    pub(super) fn take_back(&self, reason: &str) {
        let (id, reason) = (self.id, Value::from(one_line(reason)));
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":{id},\"reason\":{reason}}}}}\n"
        );
        // A server that cannot be told is about to be gone anyway.
        let _ = self.shortcut.0.outbox.push(line.as_bytes());
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.shortcut.waiting().calls.remove(&self.id);
    }
}

const ID: &[u8] = b"\"id\":";

fn first_id(text: &[u8]) -> Option<u32> {
    memmem::find(text, ID).and_then(|at| number(text.get(at + ID.len()..)?))
}

fn last_id(text: &[u8]) -> Option<u32> {
    memmem::rfind(text, ID).and_then(|at| number(text.get(at + ID.len()..)?))
}

/// The number that begins here, in quotation marks or not.
fn number(text: &[u8]) -> Option<u32> {
    let text = text.trim_ascii_start();
    let text = text.strip_prefix(b"\"").unwrap_or(text);
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    str::from_utf8(text.get(..digits)?).ok()?.parse().ok()
}

/// Whether a call is to be told how far it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    Wanted,
    Unwanted,
}

/// A tool call as it is sent.
pub(super) fn line(
    id: u32,
    tool: &str,
    arguments: &RawValue,
    progress: Progress,
) -> io::Result<String> {
    let mut line = String::with_capacity(160 + tool.len() + arguments.get().len());
    let name = serde_json::to_string(tool)?;
    let _ = write!(
        line,
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":{name},"arguments":"#
    );
    line.push_str(arguments.get());
    if progress == Progress::Wanted {
        let _ = write!(line, r#","_meta":{{"progressToken":{id}}}"#);
    }
    line.push_str("}}\n");
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    fn arguments(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[tokio::test]
    async fn a_result_comes_back_to_the_letter() {
        let shortcut = Shortcut::new(Outbox::default());
        let sent =
            shortcut.send(shortcut.issue(), "t", &arguments("{}"), Progress::Unwanted).unwrap();
        let result = r#"{"z": 1.0,"a":[1e400, "é"] ,"z":2}"#;
        let line = format!(r#"{{"result":{result},"jsonrpc":"2.0","id":{}}}"#, sent.id);
        assert!(shortcut.deliver(line.as_bytes()));
        let mut sent = sent;
        assert_eq!((&mut sent.answer).await.unwrap().unwrap().get(), result);
        assert!(!shortcut.deliver(line.as_bytes()), "a second answer is nobody's");
    }

    #[test_case("{\"id\":1,\"result\":{}}"; "an id of rmcp")]
    #[test_case("{\"id\":1073741824,\"method\":\"ping\"}"; "a question of the server")]
    #[test_case("{\"method\":\"notifications/progress\"}"; "an announcement")]
    #[test_case("{\"id\":1073741824,\"level\":\"debug\"}"; "a line of a log")]
    #[test_case("\u{0}"; "noise")]
    fn what_is_no_answer_of_ours_is_left_to_rmcp(line: &str) {
        let shortcut = Shortcut::new(Outbox::default());
        let _sent = shortcut.send(FIRST_ID, "t", &arguments("{}"), Progress::Unwanted).unwrap();
        assert!(!shortcut.deliver(line.as_bytes()));
    }

    #[tokio::test]
    async fn an_error_ends_its_call_whatever_it_looks_like() {
        let shortcut = Shortcut::new(Outbox::default());
        for (error, code) in [(r#"{"code":-32602,"message":"no"}"#, -32602), (r#""no""#, -32603)] {
            let mut sent =
                shortcut.send(shortcut.issue(), "t", &arguments("{}"), Progress::Unwanted).unwrap();
            let line = format!(r#"{{"id":"{}","error":{error}}}"#, sent.id);
            assert!(shortcut.deliver(line.as_bytes()));
            let Err(NoResult::Error(error)) = (&mut sent.answer).await.unwrap() else { panic!() };
            assert_eq!(error.code.0, code);
        }
    }

    #[test_case(r#"{"jsonrpc":"2.0","id":ID}"#; "neither result nor error")]
    #[test_case(r#"{"id":ID,"result":"hello"}"#; "a result that is a text")]
    #[test_case(r#"{"id":"ID","result":[]}"#; "a result that is a list")]
    fn an_answer_that_cannot_be_used_ends_its_call(line: &str) {
        let shortcut = Shortcut::new(Outbox::default());
        let mut sent = shortcut.send(FIRST_ID, "t", &arguments("{}"), Progress::Unwanted).unwrap();
        assert!(shortcut.deliver(line.replace("ID", &FIRST_ID.to_string()).as_bytes()));
        assert!(matches!(sent.answer.try_recv().unwrap(), Err(NoResult::Unusable(_))));
    }

    #[test_case(r#"{"jsonrpc":"2.0","id":ID,"result":{"id":1"#, r#"x","id":2}"#; "the id comes first")]
    #[test_case(r#"{"result":{"id":1,"#, r#""id":3},"jsonrpc":"2.0","id": "ID"}"#; "the id comes last")]
    fn a_line_that_cannot_be_read_ends_its_call(begin: &str, end: &str) {
        let shortcut = Shortcut::new(Outbox::default());
        let mut sent = shortcut.send(FIRST_ID, "t", &arguments("{}"), Progress::Unwanted).unwrap();
        let [begin, end] = [begin, end].map(|text| text.replace("ID", &FIRST_ID.to_string()));
        shortcut.give_up(begin.as_bytes(), end.as_bytes(), "too large");
        assert!(matches!(sent.answer.try_recv().unwrap(), Err(NoResult::Unusable("too large"))));
    }

    #[test_case(r#"DEBUG sent {"jsonrpc":"2.0","id":ID,"result":{"#; "a line of a log")]
    #[test_case(r#"{"log":{"id":ID,"method":"tools/call","#; "a request in a log")]
    fn a_server_that_writes_down_what_it_does_ends_no_call(noise: &str) {
        let shortcut = Shortcut::new(Outbox::default());
        let mut sent = shortcut.send(FIRST_ID, "t", &arguments("{}"), Progress::Unwanted).unwrap();
        let noise = noise.replace("ID", &FIRST_ID.to_string());
        shortcut.give_up(noise.as_bytes(), noise.as_bytes(), "too large");
        assert!(sent.answer.try_recv().is_err());
    }
}
