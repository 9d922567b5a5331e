//! JSON lines over a server's stdin and stdout.
//!
//! rmcp's own line transport turns every result into a typed value and drops what it does not
//! know. Here the result of everything but the handshake stays the JSON that the server wrote, so
//! that a proxy has something to pass on unchanged; noise between messages is skipped and counted. Answers to tool calls
//! are handed over before rmcp sees them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    ClientRequest, CustomResult, ErrorData, JsonRpcMessage, JsonRpcResponse, JsonRpcVersion2_0,
    RequestId, ServerResult,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader};

use super::outbox::Outbox;
use super::shortcut::Shortcut;

/// The longest message that is taken from a server; rmcp's own limit.
const MAX_LINE: usize = 16 * 1024 * 1024;
/// What is kept of either end of a longer one: enough to see which call it answers.
const END: usize = 256;
/// A line buffer is given back once it grew beyond this.
const KEPT_BUFFER: usize = 256 * 1024;
/// A server that does not read its stdin for so long is not coming back.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);

/// A transport over a pair of pipes.
pub(super) struct Lines<R> {
    server: Arc<str>,
    read: BufReader<R>,
    line: Vec<u8>,
    /// The rest of an oversized line is still to be skipped; its two ends.
    skipping: Option<[Vec<u8>; 2]>,
    /// How many lines were no messages; the first few are logged.
    noise: u64,
    handshake: Option<RequestId>,
    outbox: Outbox,
    shortcut: Shortcut,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Must be called within a tokio runtime: what is sent is written by a task of its own.
    pub(super) fn new<W>(server: Arc<str>, read: R, write: W) -> Self
    where
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let outbox = Outbox::default();
        let shortcut = Shortcut::new(outbox.clone());
        tokio::spawn(outbox.clone().drain(write, WRITE_PATIENCE));
        Self {
            shortcut,
            outbox,
            server,
            read: BufReader::with_capacity(64 * 1024, read),
            line: Vec::new(),
            skipping: None,
            noise: 0,
            handshake: None,
        }
    }

    /// The way of tool calls through this connection.
    pub(super) fn shortcut(&self) -> Shortcut {
        self.shortcut.clone()
    }

    /// Reads on to the end of a line; `None` at the end of the stream.
    ///
    /// Cancel safe: what was read stays in `self.line` for the next call.
    async fn next_line(&mut self) -> Option<()> {
        loop {
            let available = self.read.fill_buf().await.ok()?;
            if available.is_empty() {
                return None;
            }
            let end = memchr::memchr(b'\n', available);
            let taken = end.map_or(available.len(), |end| end + 1);
            let piece = available.get(..taken).unwrap_or_default();
            if let Some([_, tail]) = &mut self.skipping {
                keep_end(tail, piece);
            } else {
                self.line.extend_from_slice(piece);
            }
            self.read.consume(taken);
            if self.line.len() > MAX_LINE {
                let mut line = std::mem::take(&mut self.line);
                let mut tail = Vec::new();
                keep_end(&mut tail, &line);
                line.truncate(END);
                line.shrink_to_fit();
                self.skipping = Some([line, tail]);
                self.count_noise("a message is larger than 16 MiB and was dropped");
            }
            match (end, self.skipping.take_if(|_| end.is_some())) {
                (Some(_), Some([begin, end])) => {
                    self.shortcut.give_up(&begin, &end, "its answer is larger than 16 MiB");
                }
                (Some(_), None) => return Some(()),
                (None, _) => {}
            }
        }
    }

    fn count_noise(&mut self, what: &str) {
        self.noise += 1;
        // Powers of two: a server that floods cannot flood our log too.
        if self.noise.is_power_of_two() {
            tracing::warn!(server = %self.server, count = self.noise, "{what}");
        }
    }

    fn read_message(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let parsed = match self.shortcut.deliver(&self.line) {
            true => Ok(None),
            false => parse(&self.line, &mut self.handshake),
        };
        if matches!(parsed, Err(Noise::NoJson)) {
            let begin = self.line.get(..END).unwrap_or(&self.line);
            let end = self.line.get(self.line.len().saturating_sub(END)..).unwrap_or_default();
            self.shortcut.give_up(begin, end, "its answer is no JSON that can be read");
        }
        if self.line.capacity() > KEPT_BUFFER {
            self.line = Vec::new();
        } else {
            self.line.clear();
        }
        match parsed {
            Ok(Some(message)) => Some(message),
            Ok(None) => None,
            Err(Noise::NoJson | Noise::NoMessage) => {
                self.count_noise("wrote something on stdout that is no MCP message");
                None
            }
        }
    }
}

/// Adds to the end of a line of which no more than [`END`] bytes are kept.
fn keep_end(tail: &mut Vec<u8>, piece: &[u8]) {
    let kept = piece.len().min(END);
    tail.drain(..(tail.len() + kept).saturating_sub(END));
    tail.extend_from_slice(piece.get(piece.len() - kept..).unwrap_or_default());
}

/// What is no message.
enum Noise {
    /// It cannot be read, and may be an answer that was torn.
    NoJson,
    /// It is somebody's log, whatever ids it names.
    NoMessage,
}

/// `Ok(None)` for an empty line.
fn parse(
    line: &[u8],
    handshake: &mut Option<RequestId>,
) -> Result<Option<RxJsonRpcMessage<RoleClient>>, Noise> {
    let line = line.trim_ascii();
    if line.is_empty() {
        return Ok(None);
    }
    let mut value: Value = serde_json::from_slice(line).map_err(|_| Noise::NoJson)?;
    let object = value.as_object_mut().ok_or(Noise::NoMessage)?;
    if object.contains_key("result") && !object.contains_key("method") {
        let id: RequestId =
            serde_json::from_value(object.get("id").cloned().ok_or(Noise::NoMessage)?)
                .map_err(|_| Noise::NoMessage)?;
        // Some servers answer a numeric id with its text.
        let of_handshake = handshake.as_ref().is_some_and(|own| own.to_string() == id.to_string());
        if of_handshake {
            *handshake = None;
        } else {
            let result = object.get_mut("result").map(Value::take).unwrap_or_default();
            return Ok(Some(response(id, result)));
        }
    }
    if let Some(id) = mistaken_error(object) {
        let error = ErrorData::internal_error("the server answered with a malformed error", None);
        return Ok(Some(JsonRpcMessage::error(error, Some(id))));
    }
    serde_json::from_value(value).map(Some).map_err(|_| Noise::NoMessage)
}

/// The id of an error answer whose `error` is not what the protocol says: its call must not wait
/// for the deadline because of that.
fn mistaken_error(object: &serde_json::Map<String, Value>) -> Option<RequestId> {
    let error = object.get("error")?;
    let sound = serde_json::from_value::<ErrorData>(error.clone()).is_ok();
    if sound {
        return None;
    }
    serde_json::from_value(object.get("id")?.clone()).ok()
}

fn response(id: RequestId, result: Value) -> RxJsonRpcMessage<RoleClient> {
    JsonRpcMessage::Response(JsonRpcResponse {
        jsonrpc: JsonRpcVersion2_0,
        id,
        result: ServerResult::CustomResult(CustomResult(result)),
    })
}

impl<R> Transport<RoleClient> for Lines<R>
where
    R: AsyncRead + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if let JsonRpcMessage::Request(request) = &item
            && matches!(request.request, ClientRequest::InitializeRequest(_))
        {
            self.handshake = Some(request.id.clone());
        }
        let outbox = self.outbox.clone();
        async move {
            let mut line = serde_json::to_vec(&item)?;
            line.push(b'\n');
            let sent = outbox.push(&line);
            match sent.and(outbox.flushed().await) {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    Err(io::Error::other("the server does not read its stdin"))
                }
                sent => sent,
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            self.next_line().await?;
            if let Some(message) = self.read_message() {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        // A server that does not read is ended by whoever started it.
        self.outbox.close();
        Ok(())
    }
}

impl<R> Drop for Lines<R> {
    fn drop(&mut self) {
        // A handshake that failed drops the transport; the server's stdin must end all the same.
        self.outbox.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    async fn received(input: &[u8]) -> Vec<RxJsonRpcMessage<RoleClient>> {
        let mut lines = Lines::new("s".into(), input, tokio::io::sink());
        let mut all = Vec::new();
        while let Some(message) = lines.next_line().await.map(|()| lines.read_message()) {
            all.extend(message);
        }
        all
    }

    #[tokio::test]
    async fn a_result_stays_the_json_that_was_written() {
        let input = json!({"jsonrpc": "2.0", "id": 7, "result": {
            "z": 1, "content": [{"type": "brand-new", "x": 0.1}], "a": null,
        }});
        let messages = received(format!("{input}\n").as_bytes()).await;
        let JsonRpcMessage::Response(answer) = &messages[0] else { panic!("{messages:?}") };
        assert_eq!(serde_json::to_string(&answer.result).unwrap(), input["result"].to_string());
    }

    #[tokio::test]
    async fn noise_is_skipped_and_messages_are_found() {
        let mut input = b"Starting...\n\xff\xfe\n[1,2]\n\n{\"jsonrpc\":\"2.0\"}\n".to_vec();
        input.extend(vec![b'x'; MAX_LINE + 10]);
        input.extend(b"\r\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\r\n");
        assert_eq!(received(&input).await.len(), 1);
    }

    #[tokio::test]
    async fn a_malformed_error_still_ends_its_call() {
        let messages = received(b"{\"jsonrpc\":\"2.0\",\"id\":3,\"error\":\"no\"}\n").await;
        assert!(
            matches!(&messages[0], JsonRpcMessage::Error(error) if error.id == Some(RequestId::Number(3)))
        );
    }
}
