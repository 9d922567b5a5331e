//! The in-memory transport between a stdio connection and rmcp, which answers everything but `execute_tool`.

use std::borrow::Cow;
use std::future::ready;
use std::io;

use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, ErrorData, JsonRpcMessage,
    ProtocolVersion, RequestId, ServerConfig, ServerJsonRpcMessage, ServerResult,
};
use rmcp::service::{NotificationContext, RequestContext, Service};
use rmcp::transport::Transport;
use tokio::sync::mpsc;

use super::active_requests::ActiveRequests;
use crate::jsonrpc::{Frame, FrameWriter, Id};
use crate::server::packed_result;

/// rmcp's transport: messages come from the connection's reader, and go to its writer.
pub(crate) struct TypedBridge {
    pub(super) messages: mpsc::Receiver<ClientJsonRpcMessage>,
    pub(super) writer: FrameWriter,
    pub(super) requests: ActiveRequests,
}

impl TypedBridge {
    /// Wraps the handler that rmcp serves on this transport, so that the connection can cancel its requests.
    pub(crate) fn service<S>(&self, handler: S) -> BridgedService<S> {
        BridgedService { handler, requests: self.requests.clone() }
    }

    /// Queues a message. A response ends its request, and is dropped if the client cancelled the request.
    ///
    /// Relies on rmcp to answer every request exactly once: an unanswered id would stay in use.
    fn write(&self, message: &ServerJsonRpcMessage) -> io::Result<()> {
        let ended = match message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            _ => None,
        };
        if ended.is_some_and(|id| !self.requests.remove(&to_id(id))) {
            return Ok(());
        }
        let text = serde_json::to_vec(message)?;
        self.writer.push(&packed_result::unpack(&text).unwrap_or_else(|| Frame::seal(text)))
    }
}

impl Transport<RoleServer> for TypedBridge {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        ready(self.write(&message))
    }

    /// Cancel-safe: `recv` is.
    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        self.messages.recv().await
    }

    async fn close(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn to_id(id: &RequestId) -> Id {
    match id {
        RequestId::Number(number) => Id::Number(*number),
        RequestId::String(text) => Id::Text(text.to_string()),
    }
}

/// Registers the cancellation of each request of rmcp with the connection.
pub(crate) struct BridgedService<S> {
    handler: S,
    requests: ActiveRequests,
}

impl<S: Service<RoleServer>> Service<RoleServer> for BridgedService<S> {
    async fn handle_request(
        &self,
        request: ClientRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        self.requests.attach_work(&to_id(&context.id), &context.ct);
        self.handler.handle_request(request, context).await
    }

    async fn handle_notification(
        &self,
        notification: ClientNotification,
        context: NotificationContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.handler.handle_notification(notification, context).await
    }

    fn get_info(&self) -> ServerConfig {
        self.handler.get_info()
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.handler.supported_protocol_versions()
    }
}
