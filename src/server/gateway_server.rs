//! `adjutant gateway`: the gateway's tools and nothing else.

use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ErrorData, ListToolsResult, PaginatedRequestParams,
    ServerCapabilities, ServerConfig, SubscriptionFilter,
};
use rmcp::service::{
    NotificationContext, RequestContext, SubscriptionContext, serve_server_with_ct,
};
use tokio_util::sync::CancellationToken;

use super::fast_lane::{Desk, FastLane, LAST_ANSWERS};
use super::http::{HttpEnd, HttpServer, Probe};
use super::raw_results::RawResults;
use super::who::{ATTEST, Callers, no_such_tool};
use super::wire::stdin_and_stdout;
use super::{gateway_offers, gateway_tools, log_messages, offer_changes};
use crate::gateway::{Gateway, LogRelay};
use crate::identity::{Attestations, Caller, Doubt, Reception};

const INSTRUCTIONS: &str =
    "Find a server with list_servers, its tools with get_server_tools, call one with execute_tool.";

/// Serves one client on stdin and stdout until it goes away or `stop` is cancelled, then ends
/// every server. Hooks of Claude Code can tell who makes each call.
pub async fn serve_gateway_stdio(gateway: Arc<Gateway>, stop: CancellationToken) {
    let attested = Arc::new(Attestations::default());
    let _reception = Reception::open(&attested);
    let callers = Callers::attested(Caller::main(), attested);
    let logs = Some(Arc::clone(gateway.log_relay()));
    let handler = GatewayServer { gateway: Arc::clone(&gateway), callers, logs };
    let (input, output) = stdin_and_stdout();
    let (lane, rest) = FastLane::open(Arc::new(handler.clone()), input, output);
    let serving = serve_server_with_ct(RawResults(handler), rest, stop.clone());
    let served = Box::pin(serving).await;
    match served {
        Ok(service) => {
            let _ = service.waiting().await;
        }
        Err(error) if !stop.is_cancelled() => {
            tracing::warn!("the client went away before it said who it is: {error}");
        }
        Err(_) => {}
    }
    lane.close(if stop.is_cancelled() { Duration::ZERO } else { LAST_ANSWERS }).await;
    gateway.shutdown().await;
}

/// Serves clients over HTTP until the end, then ends every server.
pub async fn serve_gateway_http(gateway: Arc<Gateway>, server: HttpServer, end: HttpEnd) {
    let callers = Callers::known(Caller::main());
    let handler = GatewayServer { gateway: Arc::clone(&gateway), callers, logs: None };
    let probe = Probe { gateway: Arc::clone(&gateway), orchestrator: None };
    server.serve(probe, move || handler.clone(), end).await;
    gateway.shutdown().await;
}

/// The handler of the gateway alone.
#[derive(Clone)]
struct GatewayServer {
    gateway: Arc<Gateway>,
    callers: Callers,
    /// How the client hears what servers log; `None` where there are several.
    logs: Option<Arc<LogRelay>>,
}

impl Desk for GatewayServer {
    fn gateway(&self) -> Option<&Gateway> {
        Some(&self.gateway)
    }

    fn caller(&self, tool_use_id: Option<String>) -> Result<Caller, Doubt> {
        let usual = || self.callers.usual.clone();
        self.callers.of_use(gateway_tools::EXECUTE_TOOL, tool_use_id, usual)
    }

    fn log_relay(&self) -> Option<&LogRelay> {
        self.logs.as_deref()
    }
}

impl ServerHandler for GatewayServer {
    gateway_offers::offer_methods!();
    log_messages::log_methods!();

    fn get_info(&self) -> ServerConfig {
        let tools = ServerCapabilities::builder().enable_tools().enable_tool_list_changed();
        let mut capabilities = tools.build();
        capabilities.logging = log_messages::capability(self.log_relay());
        gateway_offers::introduction("adjutant-gateway", capabilities, &self.gateway)
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(gateway_tools::definitions(self.gateway.debug())))
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        offer_changes::follow(&self.gateway, &context);
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let mut accepted = SubscriptionFilter::new();
        offer_changes::accept(requested, &mut accepted);
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        offer_changes::listen(&self.gateway, &context).await;
        Ok(())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if request.name == ATTEST {
            return self.callers.hear(request.arguments, &context);
        }
        if !gateway_tools::is_gateway_tool(&request.name, self.gateway.debug()) {
            return Err(no_such_tool(&self.gateway, &request.name));
        }
        let arguments = request.arguments.unwrap_or_default();
        let caller = self.callers.of(&request.name, &context);
        gateway_tools::call(&self.gateway, caller, &request.name, arguments, &context).await
    }
}
