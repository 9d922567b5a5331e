//! Approval questions to a person through MCP elicitation, if the client declared that capability.
//!
//! Up to protocol revision 2025-11-25 the server sends `elicitation/create` during the call. From 2026-07-28 on it must
//! not: the call returns its questions as an input-required result, and the client repeats the call with the answers. In
//! between the run is suspended here. It is cancelled if its client does not return within the timeout of its questions
//! plus 10 s.

use std::collections::{BTreeMap, HashMap};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{
    CallToolResponse, CallToolResult, CancelledNotification, CancelledNotificationParam,
    ClientResult, ContentBlock, ElicitRequest, ElicitRequestParams, ElicitResult,
    ElicitationAction, ElicitationSchema, ErrorCode, ErrorData, InputRequest, InputRequests,
    InputRequiredResult, InputResponses, JsonObject, ProtocolVersion, RequestId, ServerRequest,
};
use rmcp::service::{Peer, PeerRequestOptions, ServiceError};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::callers::{McpResult, RequestContext};
use crate::delegation::{
    ApprovalAnswer, ApprovalFuture, ApprovalPrompt, ApprovalQuestion, CHOICES, NoApprover,
};
use crate::identity::Caller;
use crate::server::tools::{CallContext, ProgressSink};
use crate::util::Mutex;

/// The way in which a client can be asked for input.
pub(crate) enum ElicitationMode {
    /// During the call, by `elicitation/create`; the prompt is a [`NoApprover`] if the client cannot ask anybody.
    DuringCall(Arc<dyn ApprovalPrompt>),
    /// By an input-required result, after which the client repeats the call.
    InputRequired,
}

/// Returns the mode for the client of this request, from its capabilities and protocol revision.
pub(crate) fn elicitation_mode(context: &RequestContext) -> ElicitationMode {
    if !supports_forms(context) {
        let why = "the client of Adjutant did not declare that it can ask (MCP elicitation)";
        return ElicitationMode::DuringCall(Arc::new(NoApprover::new(why)));
    }
    if context.protocol_version() >= Some(ProtocolVersion::V_2026_07_28) {
        return ElicitationMode::InputRequired;
    }
    ElicitationMode::DuringCall(Arc::new(ElicitationPrompt(context.peer.clone())))
}

fn supports_forms(context: &RequestContext) -> bool {
    let declared = context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
    // Revisions before 2025-11-25 have forms only, declared by an empty object.
    declared.is_some_and(|kinds| kinds.form.is_some() || kinds.url.is_none())
}

/// Asks with `elicitation/create`; concurrent questions are told apart by their request ids.
struct ElicitationPrompt(Peer<RoleServer>);

impl ApprovalPrompt for ElicitationPrompt {
    fn unavailable_reason(&self) -> Option<String> {
        None
    }

    fn ask<'a>(&'a self, question: &'a ApprovalQuestion) -> ApprovalFuture<'a> {
        Box::pin(async move {
            self.elicit(question).await.map_or_else(
                |error| ApprovalAnswer::Unreachable {
                    why: format!("the client did not pass the question on ({error})"),
                },
                |result| approval_answer(&result),
            )
        })
    }
}

impl ElicitationPrompt {
    async fn elicit(&self, question: &ApprovalQuestion) -> Result<ElicitResult, ServiceError> {
        let request = elicit_request(question).ok_or(ServiceError::UnexpectedResponse)?;
        let request = ServerRequest::ElicitRequest(request);
        let options = PeerRequestOptions::no_options();
        let handle = self.0.send_cancellable_request(request, options).await?;
        let mut recall =
            ElicitationGuard { peer: self.0.clone(), request_id: Some(handle.id.clone()) };
        let answer = handle.await_response().await;
        recall.request_id = None;
        match answer? {
            ClientResult::ElicitResult(result) => Ok(result),
            _ => Err(ServiceError::UnexpectedResponse),
        }
    }
}

/// Cancels an unanswered elicitation when dropped, so that the client closes its dialog.
struct ElicitationGuard {
    peer: Peer<RoleServer>,
    request_id: Option<RequestId>,
}

impl Drop for ElicitationGuard {
    fn drop(&mut self) {
        let (Some(request_id), Ok(runtime)) =
            (self.request_id.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let reason = "nobody waits for the answer any more".to_owned();
        let params = CancelledNotificationParam::new(Some(request_id), Some(reason));
        let peer = self.peer.clone();
        runtime.spawn(async move {
            // Fails only if the client has disconnected.
            let _ = peer.send_notification(CancelledNotification::new(params).into()).await;
        });
    }
}

/// The elicitation request for a question; `None` if the schema does not fit rmcp's type.
pub(crate) fn elicit_request(question: &ApprovalQuestion) -> Option<ElicitRequest> {
    let requested_schema: ElicitationSchema = serde_json::from_value(decision_schema()).ok()?;
    let (meta, message) = (None, question.text());
    let params = ElicitRequestParams::FormElicitationParams { meta, message, requested_schema };
    Some(ElicitRequest::new(params))
}

/// The form: one required choice. Every protocol revision with forms understands `enum` with `enumNames`.
fn decision_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "decision": {
                "type": "string",
                "title": "Decision",
                "enum": CHOICES.map(|(word, _)| word),
                "enumNames": CHOICES.map(|(_, words)| words),
            },
        },
        "required": ["decision"],
    })
}

/// Converts an elicitation result. A form that is accepted without a choice grants nothing.
pub(crate) fn approval_answer(result: &ElicitResult) -> ApprovalAnswer {
    match result.action {
        ElicitationAction::Accept => {
            let content = result.content.as_ref();
            let decision = content.and_then(|content| content.get("decision"));
            ApprovalAnswer::from_word(decision.and_then(Value::as_str).unwrap_or_default())
        }
        ElicitationAction::Decline => ApprovalAnswer::Deny,
        // `Cancel`, and actions of later revisions.
        _ => ApprovalAnswer::Dismissed,
    }
}

/// Input-required results per call. Clients stop after ten; later questions are denied, so that the run can complete.
const MAX_ROUNDS: usize = 8;
/// Time after the timeout of a question within which the client must repeat the call.
const RESUME_GRACE_PERIOD: Duration = Duration::from_secs(10);

/// The suspended runs by `requestState`; clones share one table.
#[derive(Clone, Default)]
pub(crate) struct PendingRuns {
    suspended: Arc<Mutex<HashMap<String, PendingRun>>>,
}

/// Identifies a call: a repeated request must have the same connection, tool and arguments.
#[derive(Clone, PartialEq)]
pub(crate) struct RequestKey {
    /// Name of the caller of the connection.
    pub(crate) connection: String,
    pub(crate) tool: String,
    pub(crate) arguments: JsonObject,
}

/// A run whose call may take several requests.
pub(crate) struct PendingRun {
    key: RequestKey,
    running: JoinHandle<CallToolResult>,
    questions: UnboundedReceiver<SuspendedQuestion>,
    progress_sink: watch::Sender<Option<ProgressSink>>,
    cancel: CancellationToken,
    open_questions: BTreeMap<String, SuspendedQuestion>,
    rounds: usize,
}

impl PendingRun {
    /// Starts the run in a task of its own.
    pub(crate) fn start<R>(
        key: RequestKey,
        caller: Caller,
        context: &RequestContext,
        run: impl FnOnce(RequestKey, CallContext) -> R,
    ) -> Self
    where
        R: Future<Output = CallToolResult> + Send + 'static,
    {
        let (sender, questions) = unbounded_channel();
        let (progress_sink, listening) = watch::channel(None);
        let cancel = CancellationToken::new();
        let call = CallContext {
            caller,
            approval_prompt: Arc::new(InputRequiredPrompt(sender)),
            cancellation: cancel.clone(),
            progress_sink: listening,
            extensions: context.extensions.clone(),
        };
        let running = tokio::spawn(run(key.clone(), call));
        let open_questions = BTreeMap::new();
        Self { key, running, questions, progress_sink, cancel, open_questions, rounds: 0 }
    }

    /// Delivers the person's answers to the open questions.
    fn deliver_answers(&mut self, answers: &InputResponses) {
        for (key, answer) in answers {
            let Some(asked) = self.open_questions.remove(key) else { continue };
            let answer = serde_json::from_value(answer.clone());
            let answer = answer.map_or(ApprovalAnswer::Dismissed, |said| approval_answer(&said));
            // Fails if the question has timed out, and so is already denied.
            let _ = asked.reply.send(answer);
        }
    }

    /// Denies all open questions after [`MAX_ROUNDS`] rounds.
    fn deny_open_questions(&mut self) {
        for asked in std::mem::take(&mut self.open_questions).into_values() {
            let why = format!("this call has asked {MAX_ROUNDS} times already");
            let _ = asked.reply.send(ApprovalAnswer::Unreachable { why });
        }
    }
}

impl PendingRuns {
    /// Removes the suspended run of a repeated call and delivers the answers.
    ///
    /// # Errors
    ///
    /// `-32602` if no run is suspended under `state`, or its call was another one.
    pub(crate) fn resume(
        &self,
        state: &str,
        request_key: &RequestKey,
        answers: &InputResponses,
    ) -> McpResult<PendingRun> {
        let mut suspended = self.suspended.lock();
        let is_same = suspended.get(state).is_some_and(|run| run.key == *request_key);
        let pending_run = is_same.then(|| suspended.remove(state)).flatten();
        let Some(mut pending_run) = pending_run else {
            let message = "no call waits under this `requestState`: it is over, or was another one";
            return Err(ErrorData::new(ErrorCode::INVALID_PARAMS, message, None));
        };
        pending_run.deliver_answers(answers);
        Ok(pending_run)
    }

    /// Waits for the result or the next question; cancels the run if the request is cancelled.
    pub(crate) async fn wait(
        &self,
        mut pending_run: PendingRun,
        context: &RequestContext,
    ) -> CallToolResponse {
        pending_run.progress_sink.send_replace(ProgressSink::from_request(context));
        loop {
            tokio::select! {
                done = &mut pending_run.running => return call_response(done),
                () = context.ct.cancelled() => {
                    pending_run.cancel.cancel();
                    return call_response(pending_run.running.await);
                }
                () = collect_questions(&mut pending_run.questions, &mut pending_run.open_questions) => {}
            }
            if pending_run.rounds < MAX_ROUNDS {
                return self.suspend(pending_run);
            }
            pending_run.deny_open_questions();
        }
    }

    /// Suspends the run until its client repeats the call; cancels the run on timeout.
    fn suspend(&self, mut pending_run: PendingRun) -> CallToolResponse {
        pending_run.rounds += 1;
        pending_run.progress_sink.send_replace(None);
        let state = Uuid::new_v4().to_string();
        let questions = input_requests(&pending_run.open_questions);
        let question_timeout =
            pending_run.open_questions.values().map(|asked| asked.question.timeout).max();
        self.suspended.lock().insert(state.clone(), pending_run);
        let (pending_runs, key) = (self.clone(), state.clone());
        tokio::spawn(async move {
            sleep(question_timeout.unwrap_or_default() + RESUME_GRACE_PERIOD).await;
            let left = pending_runs.suspended.lock().remove(&key);
            if let Some(pending_run) = left {
                tracing::warn!("a client did not come back after a question; its run is cancelled");
                pending_run.cancel.cancel();
            }
        });
        InputRequiredResult::new(Some(questions), Some(state)).into()
    }
}

/// Waits for a question, then collects all queued ones. Never resolves once the run can ask no more.
async fn collect_questions(
    questions: &mut UnboundedReceiver<SuspendedQuestion>,
    open: &mut BTreeMap<String, SuspendedQuestion>,
) {
    open.retain(|_, asked| !asked.reply.is_closed());
    if open.is_empty() {
        match questions.recv().await {
            Some(asked) => drop(open.insert(asked.key(), asked)),
            // The run has dropped its prompt and is about to end.
            None => return pending().await,
        }
    }
    while let Ok(asked) = questions.try_recv() {
        open.insert(asked.key(), asked);
    }
}

fn input_requests(open: &BTreeMap<String, SuspendedQuestion>) -> InputRequests {
    let request =
        |asked: &SuspendedQuestion| elicit_request(&asked.question).map(InputRequest::Elicitation);
    open.iter().filter_map(|(key, asked)| Some((key.clone(), request(asked)?))).collect()
}

fn call_response(done: Result<CallToolResult, JoinError>) -> CallToolResponse {
    done.unwrap_or_else(|_| {
        let text = "CLAUDE_FAILED: a fault inside Adjutant ended the call. Please report it with the log of `adjutant serve`.";
        CallToolResult::error(vec![ContentBlock::text(text)])
    })
    .into()
}

/// A question of a run, and the channel of its answer.
struct SuspendedQuestion {
    id: Uuid,
    question: ApprovalQuestion,
    reply: oneshot::Sender<ApprovalAnswer>,
}

impl SuspendedQuestion {
    fn key(&self) -> String {
        format!("approval-{}", self.id)
    }
}

/// Approval prompt that queues questions for the next input-required result.
struct InputRequiredPrompt(UnboundedSender<SuspendedQuestion>);

impl ApprovalPrompt for InputRequiredPrompt {
    fn unavailable_reason(&self) -> Option<String> {
        None
    }

    fn ask<'a>(&'a self, question: &'a ApprovalQuestion) -> ApprovalFuture<'a> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            let asked = SuspendedQuestion { id: Uuid::new_v4(), question: question.clone(), reply };
            let gone = || ApprovalAnswer::Unreachable { why: "the client went away".to_owned() };
            match self.0.send(asked) {
                Ok(()) => answer.await.unwrap_or_else(|_| gone()),
                Err(_) => gone(),
            }
        })
    }
}
