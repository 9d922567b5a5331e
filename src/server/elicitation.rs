//! Questions for clients of 2026-07-28: the answer to a call says what is to be asked, and the client calls again with what
//! the person said. Between the two the run waits here; it is the same run all along.

use std::collections::{BTreeMap, HashMap};
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{
    CallToolResponse, CallToolResult, ContentBlock, ElicitResult, ErrorCode, ErrorData,
    InputRequest, InputRequests, InputRequiredResult, InputResponses, JsonObject,
};
use rmcp::service::RequestContext;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::asking::{elicitation, reply};
use super::line::Line;
use super::progress::Listener;
use crate::call::{Asker, Asking, Question, Reply};
use crate::identity::Caller;

/// Clients give up after ten rounds. Before that questions are refused, so that the run still has an answer.
const MOST_ROUNDS: usize = 8;
/// How long a client may take to call again after its question has run out.
const LATE: Duration = Duration::from_secs(10);

/// The runs that wait for their client to call again.
#[derive(Clone, Default)]
pub(super) struct Rounds {
    parked: Arc<Mutex<HashMap<String, Errand>>>,
}

/// What a call is about; who calls again must be the same and want the same.
#[derive(Clone, PartialEq)]
pub(super) struct Matter {
    /// Whose connection it is.
    pub(super) connection: String,
    pub(super) tool: String,
    pub(super) arguments: JsonObject,
}

/// One call, over as many requests as it takes.
pub(super) struct Errand {
    matter: Matter,
    running: JoinHandle<CallToolResult>,
    questions: UnboundedReceiver<Asked>,
    listener: watch::Sender<Option<Listener>>,
    cancel: CancellationToken,
    open: BTreeMap<String, Asked>,
    rounds: usize,
}

impl Errand {
    /// Begins what the call asks for.
    pub(super) fn begin<R>(
        matter: Matter,
        caller: Caller,
        context: &RequestContext<RoleServer>,
        run: impl FnOnce(Matter, Line) -> R,
    ) -> Self
    where
        R: Future<Output = CallToolResult> + Send + 'static,
    {
        let (sender, questions) = unbounded_channel();
        let (listener, listening) = watch::channel(None);
        let cancel = CancellationToken::new();
        let asker = Arc::new(RoundAsker(sender));
        let line = Line {
            caller,
            asker,
            cancel: cancel.clone(),
            listener: listening,
            extensions: context.extensions.clone(),
        };
        let running = tokio::spawn(run(matter.clone(), line));
        let open = BTreeMap::new();
        Self { matter, running, questions, listener, cancel, open, rounds: 0 }
    }

    /// Passes on what the person said.
    fn answered(&mut self, answers: &InputResponses) {
        for (key, answer) in answers {
            let Some(asked) = self.open.remove(key) else { continue };
            let said = serde_json::from_value::<ElicitResult>(answer.clone());
            // Nobody may wait any more: then it was refused already.
            let _ = asked.reply.send(said.map_or(Reply::Dismissed, |said| reply(&said)));
        }
    }

    /// Too many rounds: whatever is still to be asked is refused.
    fn give_up_asking(&mut self) {
        for asked in std::mem::take(&mut self.open).into_values() {
            let why = format!("this call has asked {MOST_ROUNDS} times already");
            let _ = asked.reply.send(Reply::Unreachable { why });
        }
    }
}

impl Rounds {
    /// The run that a client comes back to, with the answers it brings.
    pub(super) fn resume(
        &self,
        state: &str,
        matter: &Matter,
        answers: &InputResponses,
    ) -> Result<Errand, ErrorData> {
        let mut parked = self.parked();
        let same = parked.get(state).is_some_and(|errand| errand.matter == *matter);
        let errand = same.then(|| parked.remove(state)).flatten();
        let Some(mut errand) = errand else {
            let message = "no call waits under this `requestState`: it is over, or was another one";
            return Err(ErrorData::new(ErrorCode::INVALID_PARAMS, message, None));
        };
        errand.answered(answers);
        Ok(errand)
    }

    /// Waits for the result or the next question.
    pub(super) async fn go_on(
        &self,
        mut errand: Errand,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResponse {
        errand.listener.send_replace(Listener::of(context));
        loop {
            tokio::select! {
                done = &mut errand.running => return finished(done),
                () = context.ct.cancelled() => {
                    errand.cancel.cancel();
                    return finished(errand.running.await);
                }
                () = gather(&mut errand.questions, &mut errand.open) => {}
            }
            if errand.rounds < MOST_ROUNDS {
                return self.park(errand);
            }
            errand.give_up_asking();
        }
    }

    /// Keeps the run until its client calls again; one that never does loses it.
    fn park(&self, mut errand: Errand) -> CallToolResponse {
        errand.rounds += 1;
        errand.listener.send_replace(None);
        let state = Uuid::new_v4().to_string();
        let questions = questions(&errand.open);
        let patience = errand.open.values().map(|asked| asked.question.patience).max();
        self.parked().insert(state.clone(), errand);
        let (rounds, key) = (self.clone(), state.clone());
        tokio::spawn(async move {
            sleep(patience.unwrap_or_default() + LATE).await;
            let left = rounds.parked().remove(&key);
            if let Some(errand) = left {
                tracing::warn!("a client did not come back after a question; its run is cancelled");
                errand.cancel.cancel();
            }
        });
        InputRequiredResult::new(Some(questions), Some(state)).into()
    }

    fn parked(&self) -> MutexGuard<'_, HashMap<String, Errand>> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Resolves as soon as there is a question, and takes all that there are.
async fn gather(questions: &mut UnboundedReceiver<Asked>, open: &mut BTreeMap<String, Asked>) {
    open.retain(|_, asked| !asked.reply.is_closed());
    if open.is_empty() {
        match questions.recv().await {
            Some(asked) => drop(open.insert(asked.key(), asked)),
            // Nobody can ask any more; the run is about to end.
            None => return pending().await,
        }
    }
    while let Ok(asked) = questions.try_recv() {
        open.insert(asked.key(), asked);
    }
}

fn questions(open: &BTreeMap<String, Asked>) -> InputRequests {
    open.iter()
        .filter_map(|(key, asked)| {
            Some((key.clone(), InputRequest::Elicitation(elicitation(&asked.question)?)))
        })
        .collect()
}

fn finished(done: Result<CallToolResult, JoinError>) -> CallToolResponse {
    done.unwrap_or_else(|_| {
        let text = "CLAUDE_FAILED: a fault inside Adjutant ended the call. Please report it with the log of `adjutant serve`.";
        CallToolResult::error(vec![ContentBlock::text(text)])
    })
    .into()
}

/// A question that waits to be taken along.
struct Asked {
    id: Uuid,
    question: Question,
    reply: oneshot::Sender<Reply>,
}

impl Asked {
    fn key(&self) -> String {
        format!("approval-{}", self.id)
    }
}

/// Hands questions to whoever answers the client next.
struct RoundAsker(UnboundedSender<Asked>);

impl Asker for RoundAsker {
    fn absence(&self) -> Option<String> {
        None
    }

    fn ask<'a>(&'a self, question: &'a Question) -> Asking<'a> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            let asked = Asked { id: Uuid::new_v4(), question: question.clone(), reply };
            let gone = || Reply::Unreachable { why: "the client went away".to_owned() };
            match self.0.send(asked) {
                Ok(()) => answer.await.unwrap_or_else(|_| gone()),
                Err(_) => gone(),
            }
        })
    }
}
