//! Control requests of the CLI being answered, one task each.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};

use super::control_handler::{ControlHandler, HookDecision, ToolUse};
use super::field_access::FieldAccess;
use super::frame::{ControlPayload, ControlRequest};
use super::outgoing::{self, ControlRequestKind, HookEvent};
use super::state::SharedClient;
use crate::jsonrpc::LineJson;

/// Further requests are denied: a CLI that floods requests must not exhaust memory.
const MAX_CONCURRENT_REQUESTS: usize = 1024;

/// Control requests being answered. Dropping this aborts all tasks.
pub(crate) struct ControlRequests {
    parent: Arc<dyn ControlHandler>,
    shared: Arc<SharedClient>,
    tasks: JoinSet<()>,
    pending: HashMap<Id, PendingAnswer>,
    by_request: HashMap<String, AbortHandle>,
}

struct PendingAnswer {
    request_id: String,
    kind: ControlRequestKind,
}

impl ControlRequests {
    pub(crate) fn new(parent: Arc<dyn ControlHandler>, shared: Arc<SharedClient>) -> Self {
        Self {
            parent,
            shared,
            tasks: JoinSet::new(),
            pending: HashMap::new(),
            by_request: HashMap::new(),
        }
    }

    /// Starts a task that answers the request.
    /// A request that is unsupported, too deeply nested or over the limit is denied at once.
    pub(crate) fn start(&mut self, request: ControlRequest) {
        let ControlRequest { request_id, payload: kind } = request;
        let closed = ControlRequestKind::of(&kind);
        match kind {
            ControlPayload::Other { subtype } => {
                let error = format!("unsupported control request `{subtype}`");
                self.shared.send(&outgoing::error_response(&request_id, &error));
            }
            ControlPayload::TooDeep { .. } => {
                self.deny(&request_id, &closed, "the arguments are nested too deeply");
            }
            _ if self.tasks.len() >= MAX_CONCURRENT_REQUESTS => {
                self.deny(&request_id, &closed, "too many questions at once");
            }
            kind => self.spawn(request_id, kind, closed),
        }
    }

    /// Aborts the task of a request that the CLI cancelled.
    pub(crate) fn cancel(&mut self, request_id: &str) {
        if let Some(task) = self.by_request.get(request_id) {
            task.abort();
        }
    }

    /// Waits for a task to end and removes it; pending while there are none. Cancel-safe.
    pub(crate) async fn join_next(&mut self) {
        match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => self.remove(id),
            Some(Err(error)) => self.handle_failed_task(&error),
            None => std::future::pending().await,
        }
    }

    fn spawn(&mut self, request_id: String, kind: ControlPayload, closed: ControlRequestKind) {
        let parent = Arc::clone(&self.parent);
        let shared = Arc::clone(&self.shared);
        let id = request_id.clone();
        let task = self.tasks.spawn(async move {
            let response = handle_request(parent.as_ref(), kind).await;
            shared.send(&outgoing::success_response(&id, &response));
        });
        self.pending
            .insert(task.id(), PendingAnswer { request_id: request_id.clone(), kind: closed });
        self.by_request.insert(request_id, task);
    }

    fn deny(&self, request_id: &str, closed: &ControlRequestKind, reason: &str) {
        self.shared.send(&outgoing::denial_response(request_id, closed, reason));
    }

    fn handle_failed_task(&mut self, error: &JoinError) {
        if let Some(open) = self.pending.get(&error.id())
            && error.is_panic()
        {
            tracing::error!(request = %open.request_id, "answering a question of claude failed");
            self.deny(&open.request_id, &open.kind, "this call could not be judged");
        }
        self.remove(error.id());
    }

    fn remove(&mut self, id: Id) {
        if let Some(open) = self.pending.remove(&id) {
            self.by_request.remove(&open.request_id);
        }
    }
}

async fn handle_request(parent: &dyn ControlHandler, kind: ControlPayload) -> LineJson {
    let response = match kind {
        ControlPayload::HookCallback { callback_id, input, tool_use_id } => {
            handle_hook_callback(parent, &callback_id, input, tool_use_id).await
        }
        ControlPayload::CanUseTool(request) => {
            outgoing::permission_response(parent.can_use_tool(request).await)
        }
        ControlPayload::McpMessage { server, message } => {
            return outgoing::mcp_response(parent.mcp_message(server, message).await);
        }
        // Both are answered in `start` without a task.
        ControlPayload::TooDeep { .. } | ControlPayload::Other { .. } => json!({}),
    };
    outgoing::encode(&response)
}

async fn handle_hook_callback(
    parent: &dyn ControlHandler,
    callback_id: &str,
    mut payload: Map<String, Value>,
    tool_use_id: Option<String>,
) -> Value {
    match HookEvent::from_callback_id(callback_id) {
        Some(HookEvent::PreToolUse) => {
            let in_payload = payload.text("tool_use_id");
            let tool_use = ToolUse {
                tool_name: payload.text_or_empty("tool_name"),
                input: payload.value("tool_input").unwrap_or_default(),
                tool_use_id: tool_use_id.or(in_payload).unwrap_or_default(),
                payload,
            };
            outgoing::hook_response(parent.pre_tool_use(tool_use).await)
        }
        Some(event) => parent.hook_event(event.name().to_owned(), payload).await,
        None => {
            let reason = "this hook was never registered".to_owned();
            outgoing::hook_response(HookDecision::Deny { reason })
        }
    }
}
