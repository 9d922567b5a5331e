//! Downstream results on their way up, unchanged.
//!
//! rmcp's handlers return typed results, which would drop whatever the types do not know. On stdio a handler
//! puts the JSON of a downstream result into a slot that travels with the request; a wrapper takes it out again
//! after rmcp has done its checks. Over HTTP rmcp lets nobody between itself and the handler: there the result
//! travels as a parcel in the `_meta` of what stands in for it, and is unpacked on its way out.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use memchr::memmem;
use rmcp::RoleServer;
use rmcp::model::{
    ClientNotification, ClientRequest, CustomResult, ErrorData, ProtocolVersion, ServerConfig,
    ServerResult,
};
use rmcp::service::{NotificationContext, RequestContext, Service};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The name of a parcel.
const PARCEL: &str = "adjutant/result";

/// Where a raw result waits; in the extensions of the request.
#[derive(Clone, Default)]
pub(super) struct RawSlot(Arc<Mutex<Option<Value>>>);

impl RawSlot {
    /// Leaves `raw` for the wrapper and returns what stands in for it; without a wrapper, what stands in for it
    /// carries it.
    pub(super) fn deliver<T: Serialize + DeserializeOwned>(
        context: &RequestContext<RoleServer>,
        raw: Value,
        stand_in: T,
    ) -> T {
        match context.extensions.get::<Self>() {
            Some(slot) => {
                *slot.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(raw);
                stand_in
            }
            None => carrying(raw, &stand_in).unwrap_or(stand_in),
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
            Some(raw) => {
                let stand_in = serde_json::to_value(result).unwrap_or_default();
                ServerResult::CustomResult(CustomResult(with_our_fields(raw, &stand_in)))
            }
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

/// What stands in for a result, with the result in its `_meta`.
fn carrying<T: Serialize + DeserializeOwned>(raw: Value, stand_in: &T) -> Option<T> {
    let mut carrier = serde_json::to_value(stand_in).ok()?;
    let meta = Map::from_iter([(PARCEL.to_owned(), raw)]);
    carrier.as_object_mut()?.insert("_meta".to_owned(), Value::Object(meta));
    serde_json::from_value(carrier).ok()
}

/// A message whose result is the one that was carried in it; `None` where none was.
pub(super) fn unpacked(message: &[u8]) -> Option<Bytes> {
    // Most messages carry nothing, and are not read a second time.
    memmem::find(message, PARCEL.as_bytes())?;
    let mut message: Value = serde_json::from_slice(message).ok()?;
    let stand_in = message.get_mut("result")?;
    let raw = stand_in.get_mut("_meta")?.get_mut(PARCEL)?.take();
    *stand_in = with_our_fields(raw, stand_in);
    serde_json::to_vec(&message).ok().map(Bytes::from)
}

/// `resultType` and how long a result may be kept belong to the revision spoken upstream, whatever
/// the server downstream speaks; rmcp left them on the stand-in only where they belong.
fn with_our_fields(mut raw: Value, stand_in: &Value) -> Value {
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

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::CallToolResult;
    use serde_json::json;

    #[test]
    fn a_result_survives_the_types_in_its_parcel() {
        let raw = json!({ "zeta": [1, null], "content": [{ "type": "hologram" }], "_meta": { PARCEL: 1 } });
        let carrier = carrying(raw.clone(), &CallToolResult::success(Vec::new())).unwrap();
        let sent = json!({ "jsonrpc": "2.0", "id": 7, "result": carrier }).to_string();
        let message: Value = serde_json::from_slice(&unpacked(sent.as_bytes()).unwrap()).unwrap();
        let mut expected = raw;
        expected["resultType"] = json!("complete");
        assert_eq!(message["result"].to_string(), expected.to_string());
    }

    #[test]
    fn what_only_speaks_of_parcels_stays() {
        let said = json!({ "jsonrpc": "2.0", "id": 7, "result": { "content": [{ "type": "text", "text": PARCEL }] } });
        assert_eq!(unpacked(said.to_string().as_bytes()), None);
        assert_eq!(unpacked(PARCEL.as_bytes()), None);
    }
}
