//! The way to the person behind a client: MCP elicitation, where the client declared it.
//!
//! Up to 2025-11-25 the server sends the question as a request of its own. From 2026-07-28 on it may not: the question is
//! the answer to the call, and the client calls again with what the person said (`rounds`).

use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientResult, ElicitRequest,
    ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, ProtocolVersion,
    RequestId, ServerRequest,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestContext, ServiceError};
use serde_json::{Value, json};

use crate::call::{Asker, Asking, CHOICES, Nobody, Question, Reply};

/// How the person behind a request can be asked.
pub(super) enum Way {
    /// By a request of ours, or not at all; either way within this one call.
    Within(Arc<dyn Asker>),
    /// By letting the client call again.
    Again,
}

/// The way that the client of this request offers.
pub(super) fn way(context: &RequestContext<RoleServer>) -> Way {
    if !declares_forms(context) {
        let why = "the client of Adjutant did not declare that it can ask (MCP elicitation)";
        return Way::Within(Arc::new(Nobody::because(why)));
    }
    match context.protocol_version() {
        Some(version) if version >= ProtocolVersion::V_2026_07_28 => Way::Again,
        Some(_) | None => Way::Within(Arc::new(PeerAsker(context.peer.clone()))),
    }
}

fn declares_forms(context: &RequestContext<RoleServer>) -> bool {
    let declared = context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
    // Before there were kinds of elicitation, an empty object meant forms.
    declared.is_some_and(|kinds| kinds.form.is_some() || kinds.url.is_none())
}

/// Asks with `elicitation/create`. The answer comes back under the request's own id, so that calls side by side do not mix.
struct PeerAsker(Peer<RoleServer>);

impl Asker for PeerAsker {
    fn absence(&self) -> Option<String> {
        None
    }

    fn ask<'a>(&'a self, question: &'a Question) -> Asking<'a> {
        Box::pin(async move {
            match self.elicit(question).await {
                Ok(result) => reply(&result),
                Err(error) => {
                    let why = format!("the client did not pass the question on ({error})");
                    Reply::Unreachable { why }
                }
            }
        })
    }
}

impl PeerAsker {
    async fn elicit(&self, question: &Question) -> Result<ElicitResult, ServiceError> {
        let request = elicitation(question).ok_or(ServiceError::UnexpectedResponse)?;
        let request = ServerRequest::ElicitRequest(request);
        let options = PeerRequestOptions::no_options();
        let handle = self.0.send_cancellable_request(request, options).await?;
        let mut recall = Recall { peer: self.0.clone(), request: Some(handle.id.clone()) };
        let answer = handle.await_response().await;
        recall.request = None;
        match answer? {
            ClientResult::ElicitResult(result) => Ok(result),
            _ => Err(ServiceError::UnexpectedResponse),
        }
    }
}

/// Takes the question back where nobody waits for its answer any more, so that no dialog stays open.
struct Recall {
    peer: Peer<RoleServer>,
    request: Option<RequestId>,
}

impl Drop for Recall {
    fn drop(&mut self) {
        let (Some(request_id), Ok(runtime)) =
            (self.request.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let reason = "nobody waits for the answer any more".to_owned();
        let params = CancelledNotificationParam::new(Some(request_id), Some(reason));
        let peer = self.peer.clone();
        runtime.spawn(async move {
            // A client that is gone shows no dialog either.
            let _ = peer.send_notification(CancelledNotification::new(params).into()).await;
        });
    }
}

/// The question in MCP's words.
pub(super) fn elicitation(question: &Question) -> Option<ElicitRequest> {
    let requested_schema: ElicitationSchema = serde_json::from_value(form()).ok()?;
    let message = question.text();
    Some(ElicitRequest::new(ElicitRequestParams::FormElicitationParams {
        meta: None,
        message,
        requested_schema,
    }))
}

/// One choice. Names beside the values are understood by every revision that has forms.
fn form() -> Value {
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

/// What the person said. Accepting the form without a choice allows nothing.
pub(super) fn reply(result: &ElicitResult) -> Reply {
    match result.action {
        ElicitationAction::Accept => {
            let content = result.content.as_ref();
            let decision = content.and_then(|content| content.get("decision"));
            Reply::of_word(decision.and_then(Value::as_str).unwrap_or_default())
        }
        ElicitationAction::Decline => Reply::Deny,
        // Whatever else a later revision may have: no choice was made.
        _ => Reply::Dismissed,
    }
}
