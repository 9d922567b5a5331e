//! Resources and prompts of servers behind the gateway, as MCP asks for them.

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

use super::guest::Guest;
use super::raw_results::RawSlot;
use crate::gateway::{Gateway, GatewayError, Offer, Who};

/// How a server with these tools introduces itself. It says that there are resources and prompts where a client of
/// this gateway could have any.
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
    offer: Offer,
    context: &RequestContext<RoleServer>,
) -> Result<T, ErrorData> {
    let all = gateway.offers(&who(context), offer).await.map_err(|error| refused(&error))?;
    Ok(RawSlot::deliver(context, all, T::default()))
}

/// One resource.
pub(super) async fn read(
    gateway: &Gateway,
    request: &ReadResourceRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<ReadResourceResponse, ErrorData> {
    let read = gateway.read_resource(&who(context), &request.uri, context.ct.clone()).await;
    let raw = read.map_err(|error| refused(&error))?;
    Ok(RawSlot::deliver(context, raw, ReadResourceResult::new(Vec::new())).into())
}

/// One prompt.
pub(super) async fn prompt(
    gateway: &Gateway,
    request: GetPromptRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<GetPromptResponse, ErrorData> {
    let arguments = request.arguments.map(Value::Object);
    let got = gateway.get_prompt(&who(context), &request.name, arguments, context.ct.clone()).await;
    let raw = got.map_err(|error| refused(&error))?;
    Ok(RawSlot::deliver(context, raw, GetPromptResult::new(Vec::new())).into())
}

/// These requests have no room for an `agent_id`.
fn who(context: &RequestContext<RoleServer>) -> Who {
    let caller = Guest::caller(&context.extensions);
    Who { caller, call_id: Some(context.id.to_string()), ..Who::default() }
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
        GatewayError::NotOffered { .. } => ErrorCode::INVALID_PARAMS,
        _ => ErrorCode::INTERNAL_ERROR,
    };
    ErrorData::new(code, error.text(), None)
}

/// The methods of a handler with a `gateway`: the same in `adjutant gateway` and `adjutant serve`.
macro_rules! offer_methods {
    () => {
        async fn list_resources(
            &self,
            _request: Option<PaginatedRequestParams>,
            context: RequestContext<RoleServer>,
        ) -> Result<rmcp::model::ListResourcesResult, ErrorData> {
            let offer = crate::gateway::Offer::Resources;
            gateway_offers::list(&self.gateway, offer, &context).await
        }

        async fn list_resource_templates(
            &self,
            _request: Option<PaginatedRequestParams>,
            context: RequestContext<RoleServer>,
        ) -> Result<rmcp::model::ListResourceTemplatesResult, ErrorData> {
            let offer = crate::gateway::Offer::ResourceTemplates;
            gateway_offers::list(&self.gateway, offer, &context).await
        }

        async fn read_resource(
            &self,
            request: rmcp::model::ReadResourceRequestParams,
            context: RequestContext<RoleServer>,
        ) -> Result<rmcp::model::ReadResourceResponse, ErrorData> {
            gateway_offers::read(&self.gateway, &request, &context).await
        }

        async fn list_prompts(
            &self,
            _request: Option<PaginatedRequestParams>,
            context: RequestContext<RoleServer>,
        ) -> Result<rmcp::model::ListPromptsResult, ErrorData> {
            let offer = crate::gateway::Offer::Prompts;
            gateway_offers::list(&self.gateway, offer, &context).await
        }

        async fn get_prompt(
            &self,
            request: rmcp::model::GetPromptRequestParams,
            context: RequestContext<RoleServer>,
        ) -> Result<rmcp::model::GetPromptResponse, ErrorData> {
            gateway_offers::prompt(&self.gateway, request, &context).await
        }
    };
}
pub(super) use offer_methods;
