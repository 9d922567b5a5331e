//! Resources and prompts of servers behind the gateway, as MCP asks for them. Its requests have no `agent_id` as our tools have; who
//! asks says so in `_meta`.

use rmcp::RoleServer;
use rmcp::model::{
    ErrorCode, ErrorData, GetPromptRequestParams, GetPromptResponse, GetPromptResult,
    Implementation, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::gateway_tools;
use super::raw_results::RawSlot;
use super::who::{Callers, tool_use_id};
use crate::gateway::{Gateway, GatewayError, Offer, Who};

/// Where a request says in its `_meta` who asks.
const AGENT_ID: &str = "agent_id";

/// How a server with these tools introduces itself. It says that there are resources and prompts where any agent
/// could have some.
pub(super) fn introduction(
    name: &str,
    mut capabilities: ServerCapabilities,
    gateway: &Gateway,
) -> ServerConfig {
    if gateway.has_offers() {
        let mut resources = rmcp::model::ResourcesCapability::default();
        resources.list_changed = Some(true);
        capabilities.resources = Some(resources);
        let mut prompts = rmcp::model::PromptsCapability::default();
        prompts.list_changed = Some(true);
        capabilities.prompts = Some(prompts);
    }
    let mut info = ServerConfig::new(capabilities);
    info.protocol_version = ProtocolVersion::LATEST_WITH_INITIALIZE;
    info.server_info = Implementation::new(name, env!("CARGO_PKG_VERSION"));
    info
}

/// Everything of one kind.
pub(super) async fn list<T: Serialize + DeserializeOwned + Default>(
    gateway: &Gateway,
    callers: &Callers,
    offer: Offer,
    context: &RequestContext<RoleServer>,
) -> Result<T, ErrorData> {
    let who = who(gateway, callers, offer.method(), context)?;
    let all = gateway.offers(&who, offer).await.map_err(|error| refused(&error))?;
    Ok(RawSlot::deliver(context, all, T::default()))
}

/// One resource.
pub(super) async fn read(
    gateway: &Gateway,
    callers: &Callers,
    request: &ReadResourceRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<ReadResourceResponse, ErrorData> {
    let who = who(gateway, callers, "resources/read", context)?;
    let read = gateway.read_resource(&who, &request.uri, context.ct.clone()).await;
    let raw = read.map_err(|error| refused(&error))?;
    Ok(RawSlot::deliver(context, raw, ReadResourceResult::new(Vec::new())).into())
}

/// One prompt.
pub(super) async fn prompt(
    gateway: &Gateway,
    callers: &Callers,
    request: GetPromptRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<GetPromptResponse, ErrorData> {
    let who = who(gateway, callers, "prompts/get", context)?;
    let arguments = request.arguments.map(Value::Object);
    let got = gateway.get_prompt(&who, &request.name, arguments, context.ct.clone()).await;
    let raw = got.map_err(|error| refused(&error))?;
    Ok(RawSlot::deliver(context, raw, GetPromptResult::new(Vec::new())).into())
}

/// Who asks: what is known of that, and what the request says itself, as with our tools.
fn who(
    gateway: &Gateway,
    callers: &Callers,
    method: &'static str,
    context: &RequestContext<RoleServer>,
) -> Result<Who, ErrorData> {
    let claimed = match context.meta.get(AGENT_ID) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(name)) => Ok(Some(name.clone()).filter(|name| !name.is_empty())),
        Some(_) => Err(gateway_tools::wrong(AGENT_ID, "text")),
    };
    let call_id = tool_use_id(context).unwrap_or_else(|| context.id.to_string());
    let agent_id = claimed.as_ref().ok().cloned().flatten();
    let who = gateway_tools::who(callers.of(method, context), agent_id, call_id);
    match claimed {
        Ok(_) => Ok(who),
        Err(wrong) => Err(refused(&gateway.refuse(method, &who, wrong))),
    }
}

/// These requests have no `isError`: a refusal is a protocol error with the same text.
fn refused(error: &GatewayError) -> ErrorData {
    let code = match error {
        GatewayError::Downstream { code, message, data } => {
            return ErrorData::new(ErrorCode(*code), message.clone(), data.clone());
        }
        GatewayError::NotOffered { what } if what.starts_with("resource") => {
            ErrorCode::RESOURCE_NOT_FOUND
        }
        GatewayError::NotOffered { .. } | GatewayError::InvalidArgument { .. } => {
            ErrorCode::INVALID_PARAMS
        }
        _ => ErrorCode::INTERNAL_ERROR,
    };
    ErrorData::new(code, error.text(), None)
}

/// The methods of a handler with a `gateway` and its `callers`: the same in `adjutant gateway` and `adjutant serve`.
macro_rules! offer_methods {
    () => {
        async fn list_resources(
            &self,
            _request: Option<PaginatedRequestParams>,
            context: RequestContext<RoleServer>,
        ) -> Result<rmcp::model::ListResourcesResult, ErrorData> {
            let offer = crate::gateway::Offer::Resources;
            gateway_offers::list(&self.gateway, &self.callers, offer, &context).await
        }

        async fn list_resource_templates(
            &self,
            _request: Option<PaginatedRequestParams>,
            context: RequestContext<RoleServer>,
        ) -> Result<rmcp::model::ListResourceTemplatesResult, ErrorData> {
            let offer = crate::gateway::Offer::ResourceTemplates;
            gateway_offers::list(&self.gateway, &self.callers, offer, &context).await
        }

        async fn read_resource(
            &self,
            request: rmcp::model::ReadResourceRequestParams,
            context: RequestContext<RoleServer>,
        ) -> Result<rmcp::model::ReadResourceResponse, ErrorData> {
            gateway_offers::read(&self.gateway, &self.callers, &request, &context).await
        }

        async fn list_prompts(
            &self,
            _request: Option<PaginatedRequestParams>,
            context: RequestContext<RoleServer>,
        ) -> Result<rmcp::model::ListPromptsResult, ErrorData> {
            let offer = crate::gateway::Offer::Prompts;
            gateway_offers::list(&self.gateway, &self.callers, offer, &context).await
        }

        async fn get_prompt(
            &self,
            request: rmcp::model::GetPromptRequestParams,
            context: RequestContext<RoleServer>,
        ) -> Result<rmcp::model::GetPromptResponse, ErrorData> {
            gateway_offers::prompt(&self.gateway, &self.callers, request, &context).await
        }
    };
}
pub(super) use offer_methods;
