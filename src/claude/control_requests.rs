//! Answering what the CLI asks, each question in a task of its own.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};

use super::fields::Fields;
use super::frame::{ControlKind, ControlRequest};
use super::outgoing::{self, Closed, HookEvent};
use super::parent::{ApprovalRequest, HookVerdict, Parent, ToolUse};
use super::shared::Shared;

/// More questions than this at once are refused: a CLI that floods must not fill the memory.
const MOST_AT_ONCE: usize = 1024;

/// The questions that are being answered. Dropping it drops their futures.
pub(super) struct Answers {
    parent: Arc<dyn Parent>,
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
    open: HashMap<Id, Open>,
    by_request: HashMap<String, AbortHandle>,
}

struct Open {
    request_id: String,
    closed: Closed,
}

impl Answers {
    pub(super) fn new(parent: Arc<dyn Parent>, shared: Arc<Shared>) -> Self {
        Self {
            parent,
            shared,
            tasks: JoinSet::new(),
            open: HashMap::new(),
            by_request: HashMap::new(),
        }
    }

    /// Starts answering.
    pub(super) fn begin(&mut self, request: ControlRequest) {
        let ControlRequest { request_id, kind } = request;
        let closed = Closed::of(&kind);
        match kind {
            ControlKind::Other { subtype } => {
                let error = format!("unsupported control request `{subtype}`");
                self.shared.send(outgoing::refuse(&request_id, &error));
            }
            ControlKind::TooDeep { .. } => {
                self.refuse(&request_id, &closed, "the arguments are nested too deeply");
            }
            _ if self.tasks.len() >= MOST_AT_ONCE => {
                self.refuse(&request_id, &closed, "too many questions at once");
            }
            kind => self.spawn(request_id, kind, closed),
        }
    }

    /// The CLI no longer waits for this answer.
    pub(super) fn cancel(&mut self, request_id: &str) {
        if let Some(task) = self.by_request.get(request_id) {
            task.abort();
        }
    }

    /// Waits for one to be over; never, where there is none.
    pub(super) async fn finish_one(&mut self) {
        match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => self.forget(id),
            Some(Err(error)) => self.settle_failed(&error),
            None => std::future::pending().await,
        }
    }

    fn spawn(&mut self, request_id: String, kind: ControlKind, closed: Closed) {
        let parent = Arc::clone(&self.parent);
        let shared = Arc::clone(&self.shared);
        let id = request_id.clone();
        let task = self.tasks.spawn(async move {
            let response = answer(parent.as_ref(), kind).await;
            shared.send(outgoing::reply(&id, &response));
        });
        self.open.insert(task.id(), Open { request_id: request_id.clone(), closed });
        self.by_request.insert(request_id, task);
    }

    fn refuse(&self, request_id: &str, closed: &Closed, reason: &str) {
        self.shared.send(outgoing::closed_answer(request_id, closed, reason));
    }

    fn settle_failed(&mut self, error: &JoinError) {
        if let Some(open) = self.open.get(&error.id())
            && error.is_panic()
        {
            tracing::error!(request = %open.request_id, "answering a question of claude failed");
            self.refuse(&open.request_id, &open.closed, "this call could not be judged");
        }
        self.forget(error.id());
    }

    fn forget(&mut self, id: Id) {
        if let Some(open) = self.open.remove(&id) {
            self.by_request.remove(&open.request_id);
        }
    }
}

async fn answer(parent: &dyn Parent, kind: ControlKind) -> Value {
    match kind {
        ControlKind::HookCallback { callback_id, input, tool_use_id } => {
            hook(parent, &callback_id, input, tool_use_id).await
        }
        ControlKind::CanUseTool { tool_name, input, tool_use_id, suggestions, reason } => {
            let request = ApprovalRequest { tool_name, input, tool_use_id, suggestions, reason };
            outgoing::approval(parent.can_use_tool(request).await)
        }
        ControlKind::McpMessage { server, message } => {
            outgoing::mcp_response(parent.mcp_message(server, message).await)
        }
        // Both are answered before a task is made.
        ControlKind::TooDeep { .. } | ControlKind::Other { .. } => json!({}),
    }
}

async fn hook(
    parent: &dyn Parent,
    callback_id: &str,
    mut payload: Map<String, Value>,
    tool_use_id: Option<String>,
) -> Value {
    match HookEvent::of_callback(callback_id) {
        Some(HookEvent::PreToolUse) => {
            let in_payload = payload.text("tool_use_id");
            let tool_use = ToolUse {
                tool_name: payload.text_or_empty("tool_name"),
                input: payload.value("tool_input").unwrap_or_default(),
                tool_use_id: tool_use_id.or(in_payload).unwrap_or_default(),
                payload,
            };
            outgoing::verdict(parent.pre_tool_use(tool_use).await)
        }
        Some(event) => parent.hook_event(event.name().to_owned(), payload).await,
        None => {
            let reason = "this hook was never registered".to_owned();
            outgoing::verdict(HookVerdict::Deny { reason })
        }
    }
}
