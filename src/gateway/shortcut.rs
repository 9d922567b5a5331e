//! Tool calls over a server's pipes, as the bytes they are.
//!
//! The connection is rmcp's: handshake, lists, announcements and the server's own questions. A tool call needs none of
//! that; taking it apart into typed values and putting it together again was most of what a call cost. Here the arguments
//! go out and the result comes back as they were written, under ids that rmcp never uses, on the same pipes.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::ErrorData;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::outbox::Outbox;
use crate::base::one_line;

/// rmcp counts its own requests from 0.
const FIRST_ID: u32 = 1 << 30;

/// What a server answered.
pub(super) type Answered = Result<Box<RawValue>, ErrorData>;

/// The way of tool calls through one connection; clones share it.
#[derive(Clone)]
pub(super) struct Shortcut(Arc<Shared>);

struct Shared {
    outbox: Outbox,
    issued: AtomicU32,
    waiting: Mutex<HashMap<u32, oneshot::Sender<Answered>>>,
}

/// A call that was sent; forgotten when dropped.
pub(super) struct Sent {
    shortcut: Shortcut,
    pub(super) id: u32,
    pub(super) answer: oneshot::Receiver<Answered>,
}

/// As much of a message as decides whether it answers one of our calls.
#[derive(Deserialize)]
struct Answer<'a> {
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
        wants_progress: bool,
    ) -> std::io::Result<Sent> {
        let (sender, answer) = oneshot::channel();
        self.waiting().insert(id, sender);
        let sent = Sent { shortcut: self.clone(), id, answer };
        let mut line = String::with_capacity(160 + tool.len() + arguments.get().len());
        let name = serde_json::to_string(tool)?;
        let _ = write!(
            line,
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":{name},"arguments":"#
        );
        line.push_str(arguments.get());
        if wants_progress {
            let _ = write!(line, r#","_meta":{{"progressToken":{id}}}"#);
        }
        line.push_str("}}\n");
        self.0.outbox.push(line.as_bytes())?;
        Ok(sent)
    }

    /// Tells the server that nobody waits for a call any more.
    pub(super) fn take_back(&self, id: u32, reason: &str) {
        let reason = serde_json::Value::from(one_line(reason));
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":{id},\"reason\":{reason}}}}}\n"
        );
        // A server that cannot be told is about to be gone anyway.
        let _ = self.0.outbox.push(line.as_bytes());
    }

    /// Whether this line answers one of our calls; then its caller has it now.
    pub(super) fn deliver(&self, line: &[u8]) -> bool {
        if self.waiting().is_empty() {
            return false;
        }
        let Ok(Answer { id: Some(id), method: None, result, error }) = serde_json::from_slice(line)
        else {
            return false;
        };
        // Some servers answer a numeric id with its text.
        let Ok(id) = id.get().trim_matches('"').parse::<u32>() else { return false };
        let answered = match (result, error) {
            (Some(result), _) => Ok(result.to_owned()),
            (None, Some(error)) => Err(serde_json::from_str(error.get()).unwrap_or_else(|_| {
                ErrorData::internal_error("the server answered with a malformed error", None)
            })),
            (None, None) => return false,
        };
        match self.waiting().remove(&id) {
            Some(waiting) => {
                // Who no longer waits has taken the call back.
                let _ = waiting.send(answered);
                true
            }
            None => false,
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u32, oneshot::Sender<Answered>>> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.shortcut.waiting().remove(&self.id);
    }
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
        let sent = shortcut.send(shortcut.issue(), "t", &arguments("{}"), false).unwrap();
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
    #[test_case("{\"id\":1073741824}"; "neither result nor error")]
    #[test_case("\u{0}"; "noise")]
    fn what_is_no_answer_of_ours_is_left_to_rmcp(line: &str) {
        let shortcut = Shortcut::new(Outbox::default());
        let _sent = shortcut.send(FIRST_ID, "t", &arguments("{}"), false).unwrap();
        assert!(!shortcut.deliver(line.as_bytes()));
    }

    #[tokio::test]
    async fn an_error_ends_its_call_whatever_it_looks_like() {
        let shortcut = Shortcut::new(Outbox::default());
        for (error, code) in [(r#"{"code":-32602,"message":"no"}"#, -32602), (r#""no""#, -32603)] {
            let mut sent = shortcut.send(shortcut.issue(), "t", &arguments("{}"), false).unwrap();
            let line = format!(r#"{{"id":"{}","error":{error}}}"#, sent.id);
            assert!(shortcut.deliver(line.as_bytes()));
            assert_eq!((&mut sent.answer).await.unwrap().unwrap_err().code.0, code);
        }
    }
}
