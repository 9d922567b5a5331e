//! Downstream results on their way up, unchanged.
//!
//! rmcp's handlers return typed results, which would drop whatever the types do not know. A handler
//! puts the JSON of a downstream result into a slot that travels with the request; this wrapper
//! takes it out again after rmcp has done its checks.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::RoleServer;
use rmcp::model::{
    ClientNotification, ClientRequest, CustomResult, ErrorData, ProtocolVersion, ServerConfig,
    ServerResult,
};
use rmcp::service::{NotificationContext, RequestContext, Service};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Where a raw result waits; in the extensions of the request.
#[derive(Clone, Default)]
pub(super) struct RawSlot(Arc<Mutex<Option<Value>>>);

impl RawSlot {
    /// Leaves `raw` for the wrapper and returns what stands in for it; without a wrapper, the
    /// result as far as the types know it.
    pub(super) fn deliver<T: DeserializeOwned>(
        context: &RequestContext<RoleServer>,
        raw: Value,
        stand_in: T,
    ) -> T {
        match context.extensions.get::<Self>() {
            Some(slot) => {
                *slot.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(raw);
                stand_in
            }
            None => serde_json::from_value(complete(raw)).unwrap_or(stand_in),
        }
    }

    fn take(&self) -> Option<Value> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A service whose results may be raw.
pub(super) struct RawResults<S>(pub(super) S);

impl<S: Service<RoleServer>> Service<RoleServer> for RawResults<S> {
    async fn handle_request(
        &self,
        request: ClientRequest,
        mut context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        let slot = RawSlot::default();
        context.extensions.insert(slot.clone());
        let result = self.0.handle_request(request, context).await?;
        Ok(match slot.take() {
            Some(raw) => ServerResult::CustomResult(CustomResult(with_our_fields(raw, &result))),
            None => result,
        })
    }

    async fn handle_notification(
        &self,
        notification: ClientNotification,
        context: NotificationContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.0.handle_notification(notification, context).await
    }

    fn get_info(&self) -> ServerConfig {
        self.0.get_info()
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.0.supported_protocol_versions()
    }
}

/// Says that a result is complete, as the newest revision has it; rmcp takes that out again for older ones.
fn complete(mut raw: Value) -> Value {
    if let Some(object) = raw.as_object_mut() {
        object.entry("resultType").or_insert("complete".into());
    }
    raw
}

/// `resultType` and how long a result may be kept belong to the revision spoken upstream, whatever
/// the server downstream speaks; rmcp left them on the stand-in only where they belong.
fn with_our_fields(mut raw: Value, stand_in: &ServerResult) -> Value {
    let stand_in = serde_json::to_value(stand_in).unwrap_or_default();
    if let Some(object) = raw.as_object_mut() {
        for name in ["resultType", "ttlMs", "cacheScope"] {
            if let Some(value) = stand_in.get(name) {
                object.entry(name).or_insert(value.clone());
            }
        }
        let complete = object.get("resultType").and_then(Value::as_str) == Some("complete");
        if complete && stand_in.get("resultType").is_none() {
            object.shift_remove("resultType");
        }
    }
    raw
}
