//! The MCP handler of `adjutant serve` and `adjutant gateway`: everything that rmcp's types describe.
//!
//! Parses requests and formats results; permissions are decided by the orchestrator and the gateway. Agents name themselves
//! in `_meta.agent_id` of requests for resources and prompts, which have no arguments of ours.

use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CustomRequest, CustomResult, DiscoverResult,
    ErrorCode, ErrorData, GetPromptRequestParams, GetPromptResponse, GetPromptResult,
    Implementation, JsonObject, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, PromptsCapability,
    ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult,
    ResourcesCapability, ServerCapabilities, ServerConfig, SubscriptionFilter, Tool,
};
use rmcp::service::{NotificationContext, Peer, SubscriptionContext};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::interval;

use super::callers::{
    ATTEST_CALL, McpResult, RequestContext, call_id, parse_malformed_call, reject_unknown_tool,
};
use super::router::CallRouter;
use super::{change_notifications, packed_result};
use crate::delegation::Orchestrator;
use crate::gateway::{FeatureKind, GatewayError, LogSubscription, RequestIdentity};
use crate::identity::Caller;
use crate::jsonrpc::LineJson;
use crate::server::tools::run_subagent::Delegation;
use crate::server::tools::{EXECUTE_TOOL, RUN_SUBAGENT, RUN_SUBAGENTS, gateway};

/// The field of `_meta` with the name of the calling agent.
const AGENT_ID_FIELD: &str = "agent_id";

const GATEWAY_INSTRUCTIONS: &str =
    "Find a server with list_servers, its tools with get_server_tools, call one with execute_tool.";

/// Interval at which [`wait_until_closed`] checks the transport.
const CLOSED_POLL_INTERVAL: Duration = Duration::from_secs(20);

/// The MCP handler; one clone per connection, HTTP session or request.
#[derive(Clone)]
pub(crate) struct McpHandler {
    pub(crate) router: CallRouter,
    /// `None` in `adjutant gateway`, which runs no agents.
    delegation: Option<Delegation>,
    /// Log messages of downstream servers; `None` where several clients share the servers.
    pub(crate) logs: Option<Arc<LogSubscription>>,
}

impl McpHandler {
    /// A handler that offers the gateway's tools, and those for agents if there is an orchestrator.
    pub(crate) fn new(
        router: CallRouter,
        orchestrator: Option<Arc<Orchestrator>>,
        logs: Option<Arc<LogSubscription>>,
    ) -> Self {
        let callers = router.callers.clone();
        let delegation = orchestrator.map(|orchestrator| Delegation::new(orchestrator, callers));
        Self { router, delegation, logs }
    }

    fn tools_for(&self, caller: &Caller) -> Vec<Tool> {
        let mut tools = self.delegation.as_ref().map_or_else(Vec::new, |d| d.tools_for(caller));
        if self.router.is_offered() {
            tools.extend(gateway::definitions(self.router.gateway.offers_status_tool()));
        }
        tools
    }

    fn is_gateway_tool(&self, name: &str) -> bool {
        self.router.is_offered()
            && gateway::is_gateway_tool(name, self.router.gateway.offers_status_tool())
    }

    /// The delegation, for its two tools.
    fn delegation_for(&self, tool: &str) -> Option<&Delegation> {
        self.delegation.as_ref().filter(|_| matches!(tool, RUN_SUBAGENT | RUN_SUBAGENTS))
    }

    /// Calls `tell` whenever the caller's tool list has changed, until `gone` resolves or `tell` returns `false`.
    ///
    /// Changes of downstream servers' lists are reported by `change_notifications`.
    async fn watch_tool_list<F, R>(
        &self,
        delegation: &Delegation,
        caller: &Caller,
        gone: impl Future<Output = ()>,
        tell: F,
    ) where
        F: Fn() -> R,
        R: Future<Output = bool>,
    {
        let mut changes = delegation.orchestrator.catalog_changes();
        let mut servers = self.router.gateway.subscribe_visibility_changes();
        let mut known = self.tools_for(caller);
        tokio::pin!(gone);
        loop {
            tokio::select! {
                () = &mut gone => return,
                changed = changes.changed() => if changed.is_err() { return },
                changed = servers.changed() => if changed.is_err() { return },
            }
            let now = self.tools_for(caller);
            if now != known {
                known = now;
                if !tell().await {
                    return;
                }
            }
        }
    }

    /// Lists the resources, resource templates or prompts that the caller may use.
    async fn list_features<T: Serialize + DeserializeOwned + Default>(
        &self,
        offer: FeatureKind,
        context: &RequestContext,
    ) -> McpResult<T> {
        let who = self.feature_identity(offer.list_method(), context).await?;
        let listed = self.router.gateway.list_features(&who, offer).await;
        pack_feature(listed, T::default())
    }

    /// The identity of a request: the resolved caller, and the claimed `agent_id`. A malformed `agent_id` is rejected and
    /// audited.
    async fn feature_identity(
        &self,
        method: &'static str,
        context: &RequestContext,
    ) -> McpResult<RequestIdentity> {
        let claimed = match context.meta.get(AGENT_ID_FIELD) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(name)) => Ok(Some(name.clone()).filter(|name| !name.is_empty())),
            Some(_) => Err(gateway::invalid_argument(AGENT_ID_FIELD, "text")),
        };
        let caller = self.router.callers.resolve(method, context);
        let (who, claimed) = gateway::request_identity(caller, claimed, call_id(context));
        match claimed {
            Ok(()) => Ok(who),
            Err(wrong) => {
                Err(feature_error(&self.router.gateway.reject(method, &who, wrong).await))
            }
        }
    }
}

/// Packs the result of a request for resources or prompts.
fn pack_feature<T: Serialize + DeserializeOwned>(
    result: Result<Value, GatewayError>,
    empty: T,
) -> McpResult<T> {
    let raw = LineJson::encode(&result.map_err(|error| feature_error(&error))?);
    let raw = raw.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    Ok(packed_result::pack(&raw, empty))
}

/// Converts an error to a JSON-RPC error: results of these requests have no `isError`.
fn feature_error(error: &GatewayError) -> ErrorData {
    let code = match error {
        GatewayError::Downstream { code, message, data } => {
            return ErrorData::new(ErrorCode(*code), message.clone(), data.clone());
        }
        GatewayError::FeatureNotFound { what } if what.starts_with("resource") => {
            ErrorCode::RESOURCE_NOT_FOUND
        }
        GatewayError::FeatureNotFound { .. } | GatewayError::InvalidArgument { .. } => {
            ErrorCode::INVALID_PARAMS
        }
        _ => ErrorCode::INTERNAL_ERROR,
    };
    ErrorData::new(code, error.text(), None)
}

impl ServerHandler for McpHandler {
    fn get_info(&self) -> ServerConfig {
        let tools = ServerCapabilities::builder().enable_tools().enable_tool_list_changed();
        let mut capabilities = tools.build();
        capabilities.logging = self.logs.as_ref().map(|_| JsonObject::new());
        if self.router.gateway.any_server_usable() {
            let mut resources = ResourcesCapability::default();
            resources.list_changed = Some(true);
            capabilities.resources = Some(resources);
            let mut prompts = PromptsCapability::default();
            prompts.list_changed = Some(true);
            capabilities.prompts = Some(prompts);
        }
        let mut info = ServerConfig::new(capabilities);
        info.protocol_version = ProtocolVersion::LATEST_WITH_INITIALIZE;
        let name = if self.delegation.is_some() { "adjutant" } else { "adjutant-gateway" };
        info.server_info = Implementation::new(name, env!("CARGO_PKG_VERSION"));
        match self.delegation {
            Some(_) => info,
            None => info.with_instructions(GATEWAY_INSTRUCTIONS),
        }
    }

    async fn discover(&self, _context: RequestContext) -> McpResult<DiscoverResult> {
        let mut info = self.get_info();
        // In this revision log messages belong to a request, which rmcp does not support.
        info.capabilities.logging = None;
        let versions = self.supported_protocol_versions().into_owned();
        Ok(DiscoverResult::from_server_info(versions, info))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext,
    ) -> McpResult<ListToolsResult> {
        let caller = self.router.callers.sender_of(&context.extensions);
        Ok(ListToolsResult::with_all_items(self.tools_for(&caller)))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext,
    ) -> McpResult<CallToolResponse> {
        let callers = &self.router.callers;
        if let Some(delegation) = self.delegation_for(&request.name) {
            return delegation.call_tool(request, &context).await;
        }
        let name = request.name.as_ref();
        if name == ATTEST_CALL {
            return callers.record_attestation(request.arguments, &context);
        }
        if !self.is_gateway_tool(name) {
            return Err(reject_unknown_tool(&self.router.gateway, name));
        }
        let caller = callers.resolve(name, &context);
        match name {
            EXECUTE_TOOL => self.router.answer_typed(caller, &context).await,
            _ => Ok(gateway::call_tool(&self.router.gateway, caller, name, &context).await.into()),
        }
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext,
    ) -> McpResult<CustomResult> {
        if request.method != "tools/call" {
            return Err(change_notifications::unknown_method(self.logs.as_deref(), request));
        }
        let (name, refused) = parse_malformed_call(&request)?;
        let CallRouter { gateway, callers, .. } = &self.router;
        if let Some(delegation) = self.delegation_for(name) {
            delegation.reject_malformed(name, &context).await;
        } else if self.is_gateway_tool(name) {
            let caller = callers.resolve(name, &context);
            gateway::reject_malformed(gateway, caller, name, &context).await;
        } else {
            return Err(reject_unknown_tool(gateway, name));
        }
        Err(refused)
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext,
    ) -> McpResult<ListResourcesResult> {
        self.list_features(FeatureKind::Resources, &context).await
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext,
    ) -> McpResult<ListResourceTemplatesResult> {
        self.list_features(FeatureKind::ResourceTemplates, &context).await
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext,
    ) -> McpResult<ListPromptsResult> {
        self.list_features(FeatureKind::Prompts, &context).await
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext,
    ) -> McpResult<ReadResourceResponse> {
        let who = self.feature_identity("resources/read", &context).await?;
        let read = self.router.gateway.read_resource(&who, &request.uri, context.ct.clone()).await;
        Ok(pack_feature(read, ReadResourceResult::new(Vec::new()))?.into())
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext,
    ) -> McpResult<GetPromptResponse> {
        let who = self.feature_identity("prompts/get", &context).await?;
        let arguments = request.arguments.map(Value::Object);
        let gateway = &self.router.gateway;
        let got = gateway.get_prompt(&who, &request.name, arguments, context.ct.clone()).await;
        Ok(pack_feature(got, GetPromptResult::new(Vec::new()))?.into())
    }

    #[expect(deprecated, reason = "clients of today still set a level")]
    async fn set_level(
        &self,
        request: rmcp::model::SetLevelRequestParams,
        _context: RequestContext,
    ) -> Result<(), ErrorData> {
        change_notifications::open_log_subscription(self.logs.as_deref())?.set_level(request.level);
        Ok(())
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        change_notifications::spawn_notifications(&self.router.gateway, &context);
        let Some(delegation) = self.delegation.clone() else { return };
        let handler = self.clone();
        tokio::spawn(async move {
            let caller = handler.router.callers.sender_of(&context.extensions);
            let peer = context.peer;
            handler
                .watch_tool_list(&delegation, &caller, wait_until_closed(&peer), || async {
                    peer.notify_tool_list_changed().await.is_ok()
                })
                .await;
        });
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let mut accepted = SubscriptionFilter::new();
        accepted.tools_list_changed = requested.tools_list_changed;
        accepted.resources_list_changed = requested.resources_list_changed;
        accepted.prompts_list_changed = requested.prompts_list_changed;
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let changes = change_notifications::serve_subscription(&self.router.gateway, &context);
        let Some(delegation) = &self.delegation else {
            changes.await;
            return Ok(());
        };
        let sink = context.sink();
        let caller = self.router.callers.sender_of(&context.request_context().extensions);
        let tools = self.watch_tool_list(delegation, &caller, context.cancelled(), || async {
            sink.notify_tool_list_changed().await.is_ok()
        });
        tokio::join!(tools, changes);
        Ok(())
    }
}

/// Returns within 20 s after the client's transport has closed.
///
/// Ends the notification tasks of an HTTP session, which ends before the server does.
pub(crate) async fn wait_until_closed(peer: &Peer<RoleServer>) {
    let mut ticks = interval(CLOSED_POLL_INTERVAL);
    while !peer.is_transport_closed() {
        ticks.tick().await;
    }
}
