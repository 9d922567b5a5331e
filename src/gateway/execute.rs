//! A tool call: authorize, find the server and the tool, send, audit, reply.
//!
//! The only path of a call, for `execute_tool` and for the servers of an agent. A call to a connected server with a known
//! tool has no task: it is sent where its request is read, and audited and answered where the response is read. Any
//! other call gets a task that connects the server first.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rmcp::model::ProgressNotificationParam;
use tokio::sync::mpsc;
use tokio::time::timeout_at;
use tokio_util::sync::CancellationToken;

use super::audit_trail::{AuditDraft, AuditTrail};
use super::authorize::{CallPolicy, GatewayPolicy, authorize};
use super::error::GatewayError;
use super::gateway::{Gateway, RequestIdentity};
use super::listing::is_unblocked;
use super::server_view::ServerView;
use crate::gateway::downstream::{
    ConnectionUse, DownstreamConnection, DownstreamServer, progress_callback,
};
use crate::jsonrpc::{LineJson, RpcRequest};

/// Operation name in the audit log.
const EXECUTE_TOOL: &str = "execute_tool";

/// Callback with the result of a call, called exactly once, after the audit entry is written.
pub(crate) type OnResult = Box<dyn FnOnce(Result<LineJson, GatewayError>) + Send>;

/// A parsed tool call.
pub struct ToolCall {
    pub server: String,
    pub tool: String,
    /// JSON object, as received.
    pub arguments: LineJson,
    /// Maximum time from now to the response; `None` uses the timeout of the server.
    pub timeout: Option<Duration>,
    /// Cancelled by the caller.
    pub cancelled: CancellationToken,
    /// Receiver of progress notifications, in order; notifications are dropped while it is full.
    pub progress: Option<mpsc::Sender<ProgressNotificationParam>>,
}

impl Gateway {
    /// Authorizes and executes one tool call. Returns at once; `on_result` runs exactly once, after the audit entry is
    /// written.
    pub fn execute(self: &Arc<Self>, who: RequestIdentity, call: ToolCall, on_result: OnResult) {
        let in_force = self.in_force();
        let caller = self.resolve_caller(&in_force, &who);
        let mut draft = AuditDraft::new(EXECUTE_TOOL, who);
        match caller {
            Ok(caller) => {
                draft.caller = Some(caller.clone());
                let policy = GatewayPolicy { in_force, caller };
                self.execute_under(policy, draft, call, on_result);
            }
            Err(error) => {
                self.describe_call(&mut draft, &call);
                finish(&self.audit_trail, draft, Err(error), on_result);
            }
        }
    }

    /// Authorizes and executes a call under a policy.
    pub(crate) fn execute_under(
        self: &Arc<Self>,
        policy: impl CallPolicy + 'static,
        mut draft: AuditDraft,
        call: ToolCall,
        on_result: OnResult,
    ) {
        self.describe_call(&mut draft, &call);
        let authorized = authorize(&policy, &mut draft, &call.server, Some(&call.tool))
            .and_then(|()| policy.server(self, &call.server));
        let server = match authorized {
            Ok(server) => server,
            Err(error) => return finish(&self.audit_trail, draft, Err(error), on_result),
        };
        let timeout = call.timeout.unwrap_or(server.spec.timeout);
        let execution = Execution {
            gateway: Arc::clone(self),
            is_client: policy.is_client(),
            deadline: draft.started + timeout,
            timeout,
            server,
            draft,
            call,
            on_result,
        };
        match execution.ready_connection() {
            Some(connection) => execution.send(&connection),
            None => drop(tokio::spawn(execution.prepare_and_send(policy))),
        }
    }

    /// Adds server, tool and arguments to the draft of an audit entry.
    fn describe_call(&self, draft: &mut AuditDraft, call: &ToolCall) {
        draft.server = Some(call.server.clone());
        draft.tool = Some(call.tool.clone());
        draft.request_bytes = call.arguments.as_str().len();
        draft.arguments = self.audit_trail.arguments_to_log(&call.arguments);
    }
}

/// An authorized call.
struct Execution {
    gateway: Arc<Gateway>,
    server: Arc<DownstreamServer>,
    draft: AuditDraft,
    call: ToolCall,
    deadline: Instant,
    /// Time until the deadline, at the start of the call.
    timeout: Duration,
    /// Set if the client may receive the log messages of the server from now on.
    is_client: bool,
    on_result: OnResult,
}

impl Execution {
    /// Returns the connection if the call can be sent at once; never waits.
    fn ready_connection(&self) -> Option<Arc<DownstreamConnection>> {
        if !self.gateway.audit_trail.is_writable() {
            return None;
        }
        let (connection, list) = self.server.cached_connection_and_tools()?;
        let is_listed = list.get(&self.call.tool).is_some();
        (is_listed && is_unblocked(&self.server, &list)).then_some(connection)
    }

    /// Prepares the server, at most until the deadline, then sends the call.
    async fn prepare_and_send(self, policy: impl CallPolicy) {
        let view = ServerView { gateway: &self.gateway, policy };
        let preparing = view.prepare(&self.server, &self.call.tool);
        let prepared = tokio::select! {
            prepared = timeout_at(self.deadline.into(), preparing) => {
                prepared.unwrap_or_else(|_| {
                    let server = self.call.server.clone();
                    Err(GatewayError::Timeout { server, after: self.timeout })
                })
            }
            () = self.call.cancelled.cancelled() => Err(GatewayError::Cancelled),
        };
        match prepared {
            Ok((connection, _used)) => self.send(&connection),
            Err(error) => {
                finish(&self.gateway.audit_trail, self.draft, Err(error), self.on_result);
            }
        }
    }

    fn send(self, connection: &Arc<DownstreamConnection>) {
        let Self { gateway, server, draft, call, deadline, timeout, is_client, on_result } = self;
        if is_client {
            server.note_call();
        }
        let name = LineJson::string(&call.tool);
        let request = RpcRequest {
            method: "tools/call",
            params: &LineJson::object(&[("name", &name), ("arguments", &call.arguments)]),
            deadline,
            cancelled: Some(call.cancelled),
            on_progress: call.progress.map(progress_callback),
        };
        let audit_trail = Arc::clone(&gateway.audit_trail);
        connection.start_call(request, timeout, move |result| {
            finish(&audit_trail, draft, result, on_result);
        });
    }
}

impl<P: CallPolicy> ServerView<'_, P> {
    /// Connects the server and finds the tool. The second value keeps the connection in use.
    async fn prepare(
        &self,
        server: &Arc<DownstreamServer>,
        tool: &str,
    ) -> Result<(Arc<DownstreamConnection>, ConnectionUse), GatewayError> {
        self.gateway.audit_trail.ensure_writable().await?;
        let connection = server.ensure_connected().await?;
        let used = connection.begin_use();
        self.find_tool(server, tool).await?;
        if connection.is_alive() {
            return Ok((connection, used));
        }
        // The server has ended after it listed its tools.
        let connection = server.ensure_connected().await?;
        let used = connection.begin_use();
        Ok((connection, used))
    }
}

/// Writes the audit entry, then replies.
fn finish(
    audit_trail: &Arc<AuditTrail>,
    draft: AuditDraft,
    result: Result<LineJson, GatewayError>,
    on_result: OnResult,
) {
    audit_trail.record_then(draft, result, |raw| raw.as_str().len(), on_result);
}

/// Runs `work` and passes its progress to `tell`, in order, all of it before returning the result.
pub(crate) async fn forward_progress<T, N, Told: Future<Output = ()>>(
    work: impl Future<Output = T>,
    mut news: mpsc::Receiver<N>,
    tell: impl Fn(N) -> Told,
) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            result = &mut work => {
                while let Ok(one) = news.try_recv() {
                    tell(one).await;
                }
                return result;
            }
            Some(one) = news.recv() => tell(one).await,
        }
    }
}
