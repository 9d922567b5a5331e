//! Log messages of servers behind the gateway, for a client on stdio that is alone with them.
//!
//! Only after a handshake: the newest revision asks for them with each request, and rmcp has nothing that ties a message to one.

use rmcp::model::{CustomRequest, ErrorCode, ErrorData, JsonObject};

use crate::gateway::{LogRelay, Outbox};

const SET_LEVEL: &str = "logging/setLevel";
const LEVELS: &str = "debug, info, notice, warning, error, critical, alert or emergency";

/// What is announced where messages are passed on.
pub(super) fn capability(relay: Option<&LogRelay>) -> Option<JsonObject> {
    relay.map(|_| JsonObject::new())
}

/// From now on messages go out between all other lines; one that finds no room does not.
pub(super) fn pass_on(relay: &LogRelay, outbox: Outbox) {
    relay.open(move |params| {
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{params}}}\n"
        );
        outbox.has_room() && outbox.push(line.as_bytes()).is_ok()
    });
}

/// The way to this client, once it has shaken hands.
pub(super) fn open(relay: Option<&LogRelay>) -> Result<&LogRelay, ErrorData> {
    let open = relay.filter(|relay| relay.is_open());
    open.ok_or_else(|| ErrorData::new(ErrorCode::METHOD_NOT_FOUND, SET_LEVEL, None))
}

/// What is answered to a request that rmcp does not know, which a level that there is not makes of `logging/setLevel`.
pub(super) fn unknown(relay: Option<&LogRelay>, request: CustomRequest) -> ErrorData {
    if request.method == SET_LEVEL && open(relay).is_ok() {
        let said = format!("`level` must be {LEVELS}");
        return ErrorData::new(ErrorCode::INVALID_PARAMS, said, None);
    }
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None)
}

/// The methods of a handler with `logs`: the same in `adjutant gateway` and `adjutant serve`.
macro_rules! log_methods {
    () => {
        #[expect(deprecated, reason = "clients of today still set a level")]
        async fn set_level(
            &self,
            request: rmcp::model::SetLevelRequestParams,
            _context: RequestContext<RoleServer>,
        ) -> Result<(), ErrorData> {
            log_messages::open(self.logs.as_deref())?.set_level(request.level);
            Ok(())
        }

        async fn on_custom_request(
            &self,
            request: rmcp::model::CustomRequest,
            _context: RequestContext<RoleServer>,
        ) -> Result<rmcp::model::CustomResult, ErrorData> {
            Err(log_messages::unknown(self.logs.as_deref(), request))
        }

        async fn discover(
            &self,
            _context: RequestContext<RoleServer>,
        ) -> Result<rmcp::model::DiscoverResult, ErrorData> {
            let mut info = self.get_info();
            info.capabilities.logging = None;
            let versions = self.supported_protocol_versions().into_owned();
            Ok(rmcp::model::DiscoverResult::from_server_info(versions, info))
        }
    };
}
pub(super) use log_methods;
