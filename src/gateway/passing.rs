//! Calls in passing: no task waits for them.
//!
//! Most calls are answered within milliseconds, and where many are on their way a task for each, with its timers and
//! channels, cost more than the call. Such a call is judged and sent where it is read; its answer is written down and handed on
//! where that is read. One that is not answered soon gets its task then, which knows about deadlines, callers that change
//! their mind, and servers that die.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::connection::Connection;
use super::error::GatewayError;
use super::execute::{EXECUTE, Execute};
use super::gateway::{Gateway, Who};
use super::ledger::{Draft, Ledger};
use super::shortcut::{self, Answered, Progress, Sent};
use crate::identity::Caller;
use crate::policy::Evaluation;

/// How long a call may go without a task.
pub(super) const SOON: Duration = Duration::from_millis(20);
/// Where a deadline is shorter, somebody has to watch it from the start.
const SHORTEST_DEADLINE: Duration = Duration::from_secs(1);

/// Who is told how a call ended, after its line is written.
pub type Reply = Box<dyn FnOnce(Result<Box<RawValue>, GatewayError>) + Send>;

/// A call in passing.
pub(super) struct Passing {
    ledger: Arc<Ledger>,
    connection: Arc<Connection>,
    draft: Draft,
    sent: Instant,
    deadline: Duration,
    cancelled: CancellationToken,
    reply: Reply,
}

impl Gateway {
    /// Calls a tool as [`Gateway::execute`] does, without anybody waiting. Gives the request back, untouched and not yet
    /// written down, where anything is out of the ordinary: a refusal, a server that is not up, a deadline of its own.
    pub fn pass(
        &self,
        who: Who,
        request: Execute,
        reply: Reply,
    ) -> Result<(), Box<(Who, Execute, Reply)>> {
        let began = Instant::now();
        let Some(way) = self.way(&who, &request) else {
            return Err(Box::new((who, request, reply)));
        };
        let Execute { server, tool, arguments, cancelled, .. } = request;
        let mut draft = Draft::begun(began, EXECUTE, who);
        draft.caller = Some(way.caller);
        draft.evaluation = Some(way.evaluation);
        draft.server = Some(server);
        draft.bytes_in = arguments.get().len();
        draft.arguments = self.ledger.kept_arguments(&arguments);
        let passing = Passing {
            ledger: Arc::clone(&self.ledger),
            connection: way.connection,
            draft,
            sent: began,
            deadline: way.deadline,
            cancelled,
            reply,
        };
        passing.send(tool, &arguments);
        Ok(())
    }

    /// How a call goes that nothing stands in the way of.
    fn way(&self, who: &Who, request: &Execute) -> Option<Way> {
        if request.timeout.is_some() || request.progress.is_some() || !self.ledger.is_sound() {
            return None;
        }
        let in_force = self.in_force.load();
        let caller = self.resolve(&in_force, who).ok()?;
        let tool = Some(request.tool.as_str());
        let evaluation = in_force.verdicts.of(&in_force.rules, &caller.name, &request.server, tool);
        if !evaluation.is_allowed() {
            return None;
        }
        let server = self.server_for(&in_force, &caller, &request.server).ok()?;
        let deadline = server.spec.timeout;
        let (connection, tools) = server.at_hand()?;
        let ordinary = deadline >= SHORTEST_DEADLINE
            && connection.shortcut.is_some()
            && self.has_tool(&server, &tools, &request.tool);
        if !ordinary {
            return None;
        }
        server.note_call();
        Some(Way { caller, evaluation, connection, deadline })
    }
}

/// What a call needs on its way.
struct Way {
    caller: Caller,
    evaluation: Arc<Evaluation>,
    connection: Arc<Connection>,
    deadline: Duration,
}

impl Passing {
    fn send(mut self, tool: String, arguments: &RawValue) {
        let connection = Arc::clone(&self.connection);
        let Some(shortcut) = &connection.shortcut else { return };
        let id = shortcut.issue();
        let line = shortcut::line(id, &tool, arguments, Progress::Unwanted);
        self.draft.tool = Some(tool);
        if let Err(unsent) = shortcut.pass(id, line, Box::new(self)) {
            tokio::spawn(async move {
                let error = unsent.connection.unsent().await;
                unsent.ended(Err(error));
            });
        }
    }

    /// Whether it has to be looked after.
    pub(super) fn is_late(&self) -> bool {
        self.sent.elapsed() >= SOON
    }

    pub(super) fn answered(self, answered: Answered) {
        let result = self.connection.called(answered);
        self.ended(result);
    }

    /// Waits for the answer as any other call does.
    pub(super) async fn go_on(self, sent: Sent) {
        let left = self.deadline.saturating_sub(self.sent.elapsed());
        let result = self.connection.answer_to(sent, left, &self.cancelled).await;
        let deadline = self.deadline;
        self.ended(result.map_err(|error| error.within(deadline)));
    }

    fn ended(self, result: Result<Box<RawValue>, GatewayError>) {
        self.ledger.record_then(self.draft, result, |raw| raw.get().len(), self.reply);
    }
}
