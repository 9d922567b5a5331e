use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use proptest::prelude::*;
use serde_json::{Value, json};
use test_case::test_case;
use tokio::sync::mpsc;

use super::*;

/// Records what is sent.
#[derive(Clone, Default)]
struct Sent(Arc<Mutex<Vec<(FrameKind, String)>>>);

impl Sent {
    fn messages(&self) -> Vec<Value> {
        let sent = self.0.lock();
        sent.iter().map(|(_, line)| serde_json::from_str(line).unwrap()).collect()
    }

    fn line(&self, index: usize) -> String {
        self.0.lock()[index].1.clone()
    }
}

impl FrameSink for Sent {
    fn send(&self, frame: Frame, kind: FrameKind) -> Result<(), SendError> {
        self.0.lock().push((kind, String::from_utf8(frame.into_bytes()).unwrap()));
        Ok(())
    }

    fn has_answer_room(&self) -> bool {
        true
    }

    fn wait_for_answer_room(&self) -> BoxFuture<'_, Result<(), SendError>> {
        async { Ok(()) }.boxed()
    }

    fn close(&self) {}
}

/// A connection whose peer is the test.
struct Peer {
    client: RpcClient,
    sent: Sent,
    inbox: Inbox,
}

#[derive(Default)]
struct Inbox {
    notifications: Mutex<Vec<String>>,
    strays: AtomicUsize,
}

impl Inbound for Inbox {
    fn request(&self, method: &str) -> Result<LineJson, RpcError> {
        match method {
            "ping" => Ok(LineJson::object(&[])),
            _ => Err(RpcError { code: -32601, message: "no".to_owned(), data: None }),
        }
    }

    fn notification(&self, method: &str, _: Option<&RawValue>) {
        self.notifications.lock().push(method.to_owned());
    }

    fn stray_line(&self) {
        self.strays.fetch_add(1, Ordering::Relaxed);
    }
}

type Replies = mpsc::UnboundedReceiver<RpcOutcome>;

impl Peer {
    fn new() -> Self {
        let sent = Sent::default();
        Self { client: RpcClient::new(sent.clone()), sent, inbox: Inbox::default() }
    }

    fn start(&self) -> (u64, Replies) {
        self.start_with(&LineJson::object(&[]), Duration::from_mins(1), None)
    }

    fn start_with(
        &self,
        params: &LineJson,
        limit: Duration,
        cancelled: Option<CancellationToken>,
    ) -> (u64, Replies) {
        let (sender, replies) = mpsc::unbounded_channel();
        let deadline = Instant::now() + limit;
        let request = RpcRequest { method: "m", params, deadline, cancelled, on_progress: None };
        let on_reply = Box::new(move |reply| sender.send(reply).unwrap());
        (self.client.start(request, on_reply), replies)
    }

    fn receive(&self, line: &str) -> bool {
        self.client.receive(line.as_bytes(), &self.inbox)
    }

    /// Receives a line in which `ID` stands for the id.
    fn answer(&self, id: u64, line: &str) -> bool {
        self.receive(&line.replace("ID", &id.to_string()))
    }
}

fn text(reply: Option<RpcOutcome>) -> String {
    reply.unwrap().unwrap().as_str().to_owned()
}

#[tokio::test]
async fn responses_in_any_order_complete_their_own_requests_once() {
    let peer = Peer::new();
    let mut requests: Vec<(u64, Replies)> = (0..3).map(|_| peer.start()).collect();
    let result = r#"{"z": 1.0,"a":[1e400, "é"] ,"z":2}"#;
    for (id, replies) in requests.iter_mut().rev() {
        let line = format!(r#"{{"result":{result},"jsonrpc":"2.0","id":ID}}"#);
        assert!(peer.answer(*id, &line));
        assert_eq!(text(replies.recv().await), result, "byte for byte");
        assert!(!peer.answer(*id, &line), "a second response belongs to no request");
        assert!(replies.recv().await.is_none(), "the callback is gone");
    }
}

#[tokio::test]
async fn a_request_has_an_id_that_a_double_can_hold_and_a_token_if_progress_is_wanted() {
    let peer = Peer::new();
    let (sender, mut progress) = mpsc::unbounded_channel();
    let request = RpcRequest {
        method: "m",
        params: &LineJson::object(&[]),
        deadline: Instant::now() + Duration::from_mins(1),
        cancelled: None,
        on_progress: Some(Arc::new(move |params| {
            sender.send(params.get().to_owned()).unwrap();
        })),
    };
    let id = peer.client.start(request, Box::new(|_| {}));
    assert!((1..1 << 53).contains(&id));
    let sent = &peer.sent.messages()[0];
    assert_eq!(
        *sent,
        json!({"jsonrpc": "2.0", "id": id, "method": "m", "params": {"_meta": {"progressToken": id}}})
    );
    for step in ["1.0", "2e0"] {
        let line =
            r#"{"method":"notifications/progress","params":{"progress":STEP,"progressToken":ID}}"#;
        peer.answer(id, &line.replace("STEP", step));
        assert!(progress.recv().await.unwrap().contains(step), "in order, verbatim");
    }
    peer.answer(id, r#"{"id":ID,"result":{}}"#);
    peer.answer(
        id,
        r#"{"method":"notifications/progress","params":{"progress":3,"progressToken":ID}}"#,
    );
    assert!(progress.recv().await.is_none(), "late progress belongs to no request");
}

#[tokio::test]
async fn an_overdue_request_is_cancelled_and_its_late_response_is_ignored() {
    let peer = Peer::new();
    let (id, mut replies) =
        peer.start_with(&LineJson::object(&[]), Duration::from_millis(30), None);
    assert!(matches!(replies.recv().await, Some(Err(RpcClientError::Timeout))));
    let told = json!({ "requestId": id, "reason": "the deadline passed" });
    assert_eq!(peer.sent.messages()[1]["method"], "notifications/cancelled");
    assert_eq!(peer.sent.messages()[1]["params"], told);
    assert!(!peer.answer(id, r#"{"jsonrpc":"2.0","id":ID,"result":{}}"#));
    assert!(replies.recv().await.is_none());
}

#[tokio::test]
async fn a_short_deadline_is_kept_beside_a_long_one() {
    let peer = Peer::new();
    let _long = peer.start();
    // The time between two checks has grown to its maximum.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let begun = Instant::now();
    let (_, mut replies) = peer.start_with(&LineJson::object(&[]), Duration::from_millis(1), None);
    assert!(matches!(replies.recv().await, Some(Err(RpcClientError::Timeout))));
    assert!(begun.elapsed() < Duration::from_millis(90), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_cancelled_request_ends_and_the_peer_is_told() {
    let peer = Peer::new();
    let cancelled = CancellationToken::new();
    let limit = Duration::from_mins(1);
    let (id, mut replies) = peer.start_with(&LineJson::object(&[]), limit, Some(cancelled.clone()));
    cancelled.cancel();
    assert!(matches!(replies.recv().await, Some(Err(RpcClientError::Cancelled))));
    assert_eq!(peer.sent.messages()[1]["params"]["requestId"], id);
}

#[tokio::test]
async fn dropping_the_future_of_a_request_cancels_it() {
    let peer = Peer::new();
    let params = LineJson::object(&[]);
    let deadline = Instant::now() + Duration::from_mins(1);
    let request = || RpcRequest {
        method: "m",
        params: &params,
        deadline,
        cancelled: None,
        on_progress: None,
    };
    drop(peer.client.request(request()));
    assert_eq!(peer.sent.messages()[1]["method"], "notifications/cancelled");
    let answered = peer.client.request(request());
    let id = peer.sent.messages()[2]["id"].as_u64().unwrap();
    peer.answer(id, r#"{"id":ID,"result":{}}"#);
    assert_eq!(answered.await.unwrap().as_str(), "{}");
    assert_eq!(peer.sent.messages().len(), 3, "a request that has ended is not cancelled");
}

#[tokio::test]
async fn the_end_of_the_stream_ends_all_requests() {
    let peer = Peer::new();
    let (_, mut first) = peer.start();
    peer.client.close();
    assert!(matches!(first.recv().await, Some(Err(RpcClientError::Gone))));
    let (_, mut second) = peer.start();
    assert!(matches!(second.recv().await, Some(Err(RpcClientError::Gone))), "and later ones");
    assert_eq!(peer.sent.messages().len(), 1);
}

#[test_case(r#"{"jsonrpc":"2.0","id":ID}"#, "neither a result nor an error"; "neither result nor error")]
#[test_case("{\"id\":ID,\"result\":{\"x\":\"", "no JSON that can be read"; "torn")]
#[test_case(r#"{"result":{"id":1,},"jsonrpc":"2.0","id": "ID"}"#, "no JSON that can be read"; "invalid, with the id at the end")]
#[tokio::test]
async fn an_unusable_response_fails_its_request(line: &str, expected: &str) {
    let peer = Peer::new();
    let (id, mut replies) = peer.start();
    peer.answer(id, line);
    let Some(Err(RpcClientError::InvalidResponse(reason))) = replies.recv().await else {
        panic!("not completed")
    };
    assert!(reason.contains(expected), "{reason}");
}

#[test_case(r#"DEBUG sent {"jsonrpc":"2.0","id":ID,"result":{"#; "a line of a log")]
#[test_case(r#"{"log":{"id":ID,"method":"tools/call","#; "a torn request in a log")]
#[test_case(r#"{"id":ID,"level":"debug"}"#; "a JSON log")]
#[test_case(r#"{"id":ID,"method":"ping"}"#; "a request of the peer")]
#[test_case(r#"{"id":1ID,"result":{}}"#; "an id that was never issued")]
#[tokio::test]
async fn other_lines_complete_no_request(line: &str) {
    let peer = Peer::new();
    let (id, mut replies) = peer.start();
    peer.answer(id, line);
    assert!(replies.recv().now_or_never().is_none());
    assert!(peer.answer(id, r#"{"id":ID,"result":{}}"#), "it is still pending");
}

#[tokio::test]
async fn requests_are_answered_and_notifications_handled_in_order() {
    let peer = Peer::new();
    assert!(!peer.receive(r#"{"jsonrpc":"2.0","id":"a\u0062","method":"ping"}"#));
    assert!(!peer.receive(r#"{"jsonrpc":"2.0","id":7,"method":"roots/list"}"#));
    for name in ["one", "two"] {
        peer.receive(&format!(r#"{{"jsonrpc":"2.0","method":"{name}"}}"#));
    }
    assert!(peer.receive("\u{0}") && peer.receive("[]") && peer.receive("  "));
    assert_eq!(peer.sent.messages()[0], json!({"jsonrpc": "2.0", "id": "ab", "result": {}}));
    assert_eq!(peer.sent.messages()[1]["error"]["code"], -32601);
    assert_eq!(*peer.inbox.notifications.lock(), ["one", "two"]);
    assert_eq!(peer.inbox.strays.load(Ordering::Relaxed), 2);
}

#[test]
fn ids_fit_into_a_double_and_are_unordered() {
    let (one, other) = (RequestIds::default(), RequestIds::default());
    let ids: Vec<u64> = (0..1_000).map(|_| one.next_id()).collect();
    assert!(ids.iter().all(|id| (1..=MAX_REQUEST_ID).contains(id)));
    assert!(ids.windows(2).any(|pair| pair[0] > pair[1]), "no counter");
    assert!(ids.iter().any(|id| *id > 1 << 50), "not from a small range");
    assert!((0..1_000).all(|_| !ids.contains(&other.next_id())), "another key");
}

proptest! {
    /// CR and LF between the tokens of parameters and results never split a line.
    #[test]
    fn line_breaks_in_parameters_and_results_become_spaces(
        gaps in proptest::collection::vec("[ \r\n\t]{0,3}", 4),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let [a, b, c, d] = &gaps[..] else { panic!() };
            let object = format!("{{{a}\"x\"{b}:{c}\"\\r\\n\"{d}}}");
            let peer = Peer::new();
            let params = LineJson::parse(object.clone()).unwrap();
            let (id, mut replies) = peer.start_with(&params, Duration::from_mins(1), None);
            let line = peer.sent.line(0);
            prop_assert_eq!(line.find(['\r', '\n']), Some(line.len() - 1));
            peer.answer(id, &format!("{{\"id\":ID,\"result\":{object}}}"));
            prop_assert_eq!(text(replies.recv().await), object.replace(['\r', '\n'], " "));
            Ok(())
        })?;
    }
}
