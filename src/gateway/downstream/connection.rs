//! One live connection to one server: one handshake, any number of requests at once.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    ClientRequest, CustomRequest, ErrorData, ProgressNotificationParam, ServerResult,
};
use rmcp::service::{
    ClientCacheConfig, ClientInitializeError, PeerRequestOptions, RequestHandle, RunningService,
    ServiceError, serve_client_with_ct,
};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::client_side::{Changes, ClientSide, ServerLog};
use super::error::GatewayError;
use super::launch::{Launch, ServerProcess};
use super::lines::Lines;
use super::log_relay::Voice;
use super::network;
use super::pace::Pace;
use super::resolved::{Network, Resolved};
use super::secrets::Secrets;
use super::shortcut::Shortcut;
use super::sign_in::{Keeper, SignInNeeded};
use super::tapped::{LogTap, ProgressBook, ProgressSink, Tapped};
use super::tool_list::ToolList;
use super::untouched::unpacked;
use crate::base::{one_line, shorten};
use crate::catalog::Dialect;

/// From the end of its stdin to SIGTERM; and how long a last answer may be on its way.
pub(super) const FAREWELL: Duration = Duration::from_millis(500);
/// So much may a server say that nobody asked for, within so long.
const UNASKED: u32 = 200;
const UNASKED_WITHIN: Duration = Duration::from_millis(100);

/// A connection; ended, with its process, when the last one lets go of it.
pub(super) struct Connection {
    pub(super) server: Arc<str>,
    service: RunningService<RoleClient, ClientSide>,
    /// Over pipes, the way of tool calls.
    pub(super) shortcut: Option<Shortcut>,
    pub(super) progress: ProgressBook,
    pub(super) life: Life,
    /// Set when a request could not be sent: the next one gets a new connection.
    pub(super) stale: AtomicBool,
    /// Whether any request was ever answered: a server that dies before is broken, not unlucky.
    pub(super) worked: AtomicBool,
    secrets: Secrets,
    keeper: Option<Arc<Keeper>>,
    /// What the server said it has.
    tools: Mutex<Option<(u64, Arc<ToolList>)>>,
}

/// How a connection ends, and how that is known.
#[derive(Clone)]
pub(super) struct Life {
    /// Cancelled when the stream has ended.
    pub(super) ended: CancellationToken,
    /// Cancelled to make it end.
    leave: CancellationToken,
    /// Why it ended, once the process is gone.
    reason: watch::Receiver<Option<String>>,
}

/// What one request needs beside its parameters.
pub(super) struct RequestOptions {
    /// From now to the answer.
    pub(super) deadline: Duration,
    /// Taken back by the caller.
    pub(super) cancelled: CancellationToken,
    /// Where progress goes.
    pub(super) progress: Option<mpsc::Sender<ProgressNotificationParam>>,
}

impl RequestOptions {
    /// A request of our own that nobody takes back.
    pub(super) fn within(deadline: Duration) -> Self {
        Self { deadline, cancelled: CancellationToken::new(), progress: None }
    }
}

/// What is to be opened.
pub(super) struct Opening {
    pub(super) server: Arc<str>,
    pub(super) resolved: Resolved,
    pub(super) secrets: Secrets,
    pub(super) changes: Arc<Changes>,
    /// Where its log messages go besides our own log, if anywhere.
    pub(super) voice: Option<Arc<Voice>>,
    /// The sign-in, for a server on the network that has no `Authorization` of its own.
    pub(super) keeper: Option<Arc<Keeper>>,
    /// From the start of the server to its answer to `initialize`.
    pub(super) patience: Duration,
}

/// Why there is no connection.
pub(super) enum Unopened {
    /// For this reason, one line.
    Failed(String),
    /// A person has to sign in.
    SignIn(SignInNeeded),
}

impl Connection {
    /// Starts or reaches the server and shakes hands once.
    pub(super) async fn open(
        opening: Opening,
        leave: CancellationToken,
    ) -> Result<Arc<Self>, Unopened> {
        let (reason_sender, reason) = watch::channel(None);
        let life = Life { ended: CancellationToken::new(), leave, reason };
        let secrets = opening.secrets.clone();
        let opened = match &opening.resolved {
            Resolved::Process(launch) => {
                open_process(&opening, launch, life.clone(), reason_sender).await
            }
            Resolved::Network(place) if place.dialect == Dialect::Sse => {
                open_events(&opening, place, life.clone(), reason_sender).await
            }
            Resolved::Network(place) => open_http(&opening, place, life).await,
        };
        opened.map(Arc::new).map_err(|reason| {
            let needed = opening.keeper.as_ref().and_then(|keeper| keeper.needed());
            needed.map_or_else(|| Unopened::Failed(secrets.hide(&reason)), Unopened::SignIn)
        })
    }

    /// Sends one request and waits for its answer, unchanged.
    pub(super) async fn request(
        &self,
        method: &str,
        params: Value,
        options: RequestOptions,
    ) -> Result<Value, GatewayError> {
        let mut request = CustomRequest::new(method, Some(params));
        if let Some(progress) = options.progress {
            request.extensions.insert(ProgressSink(progress));
        }
        let deadline = Instant::now() + options.deadline;
        let timed_out =
            || GatewayError::Timeout { server: self.server.to_string(), after: options.deadline };
        let sending = self.service.peer().send_cancellable_request(
            ClientRequest::CustomRequest(request),
            PeerRequestOptions::no_options(),
        );
        let mut handle = match timeout_at(deadline, sending).await {
            Ok(Ok(handle)) => handle,
            Ok(Err(error)) => return Err(self.failure(error).await),
            Err(_) => return Err(timed_out()),
        };
        let _book = self.progress.closing(handle.progress_token.clone());
        tokio::select! {
            // An answer that is there counts, whatever else happened meanwhile.
            biased;
            answer = &mut handle.rx => match answer {
                Ok(Ok(result)) => self.answered(result),
                Ok(Err(error)) => Err(self.failure(error).await),
                Err(_) => Err(self.gone().await),
            },
            () = self.life.ended.cancelled() => Err(self.gone().await),
            () = options.cancelled.cancelled() => {
                take_back(handle, "cancelled by the caller");
                Err(GatewayError::Cancelled)
            }
            () = sleep_until(deadline) => {
                take_back(handle, "the deadline passed");
                Err(timed_out())
            }
        }
    }

    pub(super) fn no_json(&self, error: &serde_json::Error) -> GatewayError {
        self.bad_answer(format!("its answer is no JSON: {error}"))
    }

    /// It answered, and nothing can be done with that.
    pub(super) fn bad_answer(&self, reason: impl Into<String>) -> GatewayError {
        GatewayError::unavailable(&self.server, reason)
    }

    fn answered(&self, result: ServerResult) -> Result<Value, GatewayError> {
        self.worked.store(true, Ordering::Relaxed);
        match result {
            ServerResult::CustomResult(raw) => Ok(unpacked(raw.0)),
            typed => serde_json::to_value(typed).map_err(|error| self.no_json(&error)),
        }
    }

    async fn failure(&self, error: ServiceError) -> GatewayError {
        match error {
            ServiceError::McpError(error) => {
                self.worked.store(true, Ordering::Relaxed);
                downstream(error)
            }
            ServiceError::Cancelled { .. } => GatewayError::Cancelled,
            ServiceError::TransportSend(error) => {
                if let Some(needed) = self.keeper.as_ref().and_then(|keeper| keeper.needed()) {
                    self.stale.store(true, Ordering::Relaxed);
                    return GatewayError::sign_in(&self.server, needed);
                }
                // A pipe breaks a moment before the process is known to have ended, which says more.
                if timeout(FAREWELL, self.ended()).await.is_ok() {
                    return self.gone().await;
                }
                self.stale.store(true, Ordering::Relaxed);
                let reason = self.secrets.hide(&without_urls(&chain(error.error.as_ref())));
                GatewayError::unavailable(&self.server, reason)
            }
            _ => self.gone().await,
        }
    }

    /// The connection is over; says why as soon as that is known.
    pub(super) async fn gone(&self) -> GatewayError {
        GatewayError::unavailable(&self.server, self.end_reason().await)
    }

    /// Why the connection ended.
    pub(super) async fn end_reason(&self) -> String {
        let mut reason = self.life.reason.clone();
        let _ = timeout(4 * FAREWELL, reason.wait_for(Option::is_some)).await;
        let known = reason.borrow().clone();
        self.secrets.hide(&known.unwrap_or_else(|| "the connection was closed".to_owned()))
    }

    /// The tools as last read, if nothing has changed since `change`.
    pub(super) fn known_tools(&self, change: u64) -> Option<Arc<ToolList>> {
        let known = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().filter(|(seen, _)| *seen == change).map(|(_, tools)| Arc::clone(tools))
    }

    pub(super) fn remember_tools(&self, change: u64, tools: Arc<ToolList>) {
        *self.tools.lock().unwrap_or_else(PoisonError::into_inner) = Some((change, tools));
    }

    /// Whether requests can still be sent on it.
    pub(super) fn is_alive(&self) -> bool {
        !self.life.ended.is_cancelled() && !self.stale.load(Ordering::Relaxed)
    }

    /// Whether it ever answered anything.
    pub(super) fn has_worked(&self) -> bool {
        self.worked.load(Ordering::Relaxed)
    }

    /// Done when the stream has ended.
    pub(super) async fn ended(&self) {
        self.life.ended.cancelled().await;
    }

    /// Ends it, process included, and waits for that.
    pub(super) async fn close(&self) {
        self.life.leave.cancel();
        self.end_reason().await;
    }

    /// What the server can do, as it said in the handshake.
    pub(super) fn offers(&self, capability: &str) -> bool {
        let info = self.service.peer().peer_info();
        let known = info.and_then(|info| serde_json::to_value(&info.capabilities).ok());
        known.is_some_and(|known| known.get(capability).is_some_and(|value| !value.is_null()))
    }
}

impl Connection {
    /// How the server wants to be used, in its own words.
    pub(super) fn instructions(&self) -> Option<String> {
        self.service.peer().peer_info().and_then(|info| info.instructions.clone())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.life.leave.cancel();
    }
}

async fn open_process(
    opening: &Opening,
    launch: &Launch,
    life: Life,
    reason_sender: watch::Sender<Option<String>>,
) -> Result<Connection, String> {
    let log = ServerLog::new(Arc::clone(&opening.server), opening.secrets.clone());
    let (process, stdout, stdin) = ServerProcess::start(&opening.server, launch, log).await?;
    let lines = Lines::new(Arc::clone(&opening.server), stdout, stdin);
    let shortcut = lines.shortcut();
    tokio::spawn(keep(process, life.clone(), reason_sender));
    let mut connection = shake_hands_or_explain(opening, lines, life).await?;
    connection.shortcut = Some(shortcut);
    Ok(connection)
}

async fn open_http(opening: &Opening, place: &Network, life: Life) -> Result<Connection, String> {
    let transport = network::connect(place, opening.keeper.clone())?;
    shake_hands(opening, transport, life).await
}

async fn open_events(
    opening: &Opening,
    place: &Network,
    life: Life,
    reason_sender: watch::Sender<Option<String>>,
) -> Result<Connection, String> {
    let server = Arc::clone(&opening.server);
    let connecting = network::connect_events(server, place, opening.keeper.clone(), reason_sender);
    let transport = timeout(opening.patience, connecting).await.map_err(|_| {
        let waited = opening.patience.as_millis();
        format!("it did not open its event stream within {waited} ms")
    })??;
    shake_hands_or_explain(opening, transport, life).await
}

async fn shake_hands_or_explain<T: Transport<RoleClient> + 'static>(
    opening: &Opening,
    transport: T,
    life: Life,
) -> Result<Connection, String> {
    match shake_hands(opening, transport, life.clone()).await {
        Ok(connection) => Ok(connection),
        Err(said) => {
            // How the server ended by itself says more than that its stream did.
            let mut reason = life.reason;
            let _ = timeout(FAREWELL, reason.wait_for(Option::is_some)).await;
            life.leave.cancel();
            let ended = reason.borrow().clone();
            Err(ended.map_or(said.clone(), |ended| format!("{said}; {ended}")))
        }
    }
}

async fn shake_hands<T: Transport<RoleClient> + 'static>(
    opening: &Opening,
    transport: T,
    life: Life,
) -> Result<Connection, String> {
    let progress = ProgressBook::default();
    let logs = LogTap {
        server: Arc::clone(&opening.server),
        log: ServerLog::new(Arc::clone(&opening.server), opening.secrets.clone()),
        voice: opening.voice.clone(),
    };
    let ended = life.ended.clone();
    let side = ClientSide {
        server: Arc::clone(&opening.server),
        changes: Arc::clone(&opening.changes),
        log: logs.log.clone(),
    };
    let unasked = Pace::new(UNASKED, UNASKED_WITHIN);
    let tapped = Tapped { inner: transport, progress: progress.clone(), logs, ended, unasked };
    let opened = timeout(opening.patience, serve_client_with_ct(side, tapped, life.leave.clone()));
    let service = match opened.await {
        Ok(Ok(service)) => service,
        Ok(Err(error)) => return Err(handshake_problem(&error)),
        Err(_) => {
            let waited = opening.patience.as_millis();
            return Err(format!("it did not answer `initialize` within {waited} ms"));
        }
    };
    // The gateway has lists of its own that know about changes; rmcp's cache would serve stale ones.
    service.peer().set_response_cache_config(ClientCacheConfig::disabled()).await;
    Ok(Connection {
        server: Arc::clone(&opening.server),
        service,
        shortcut: None,
        progress,
        life,
        stale: AtomicBool::new(false),
        worked: AtomicBool::new(false),
        secrets: opening.secrets.clone(),
        keeper: opening.keeper.clone(),
        tools: Mutex::new(None),
    })
}

/// An error that the server answered with.
pub(super) fn downstream(error: ErrorData) -> GatewayError {
    let message = error.message.into_owned();
    GatewayError::Downstream { code: error.code.0, message, data: error.data }
}

fn handshake_problem(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::ConnectionClosed(_) => "it ended before `initialize`".to_owned(),
        ClientInitializeError::JsonRpcError(error) => {
            format!("it refused `initialize`: {}", one_line(&shorten(&error.message, 200)))
        }
        ClientInitializeError::ExpectedInitResult(_) => {
            "its answer to `initialize` makes no sense".to_owned()
        }
        ClientInitializeError::TransportError { error, .. } => {
            let said = without_urls(&chain(error.error.as_ref()));
            format!("`initialize` did not reach it: {}", one_line(&shorten(&said, 400)))
        }
        other => one_line(&shorten(&without_urls(&chain(other)), 400)),
    }
}

/// Tells the server that nobody waits any more. In a task of its own: it may not be reading.
fn take_back(handle: RequestHandle<RoleClient>, reason: &'static str) {
    tokio::spawn(async move { handle.cancel(Some(reason.to_owned())).await });
}

/// Owns the process: knows how it ended, and ends it when it must.
async fn keep(mut process: ServerProcess, life: Life, reason: watch::Sender<Option<String>>) {
    let by_itself = tokio::select! {
        how = process.wait() => Some(how),
        () = life.ended.cancelled() => None,
        () = life.leave.cancelled() => None,
    };
    let told = life.leave.is_cancelled();
    let how = match by_itself {
        Some(how) => {
            // What it still wrote is read to the end.
            let _ = timeout(FAREWELL, life.ended.cancelled()).await;
            how
        }
        None => {
            // Most servers leave when their stdin ends, which needs no signal.
            match timeout(FAREWELL, process.wait()).await {
                Ok(how) => how,
                Err(_) => process.end().await,
            }
        }
    };
    let _ = reason.send(Some(if told { "it was ended by the gateway".to_owned() } else { how }));
    life.ended.cancel();
    life.leave.cancel();
}

/// An error with its causes.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        let said = source.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = source.source();
    }
    text
}

/// `text` without the addresses that HTTP errors carry: they may hold a secret.
fn without_urls(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, from)) = rest.split_once(" for url (") {
        out.push_str(before);
        rest = from.split_once(')').map_or("", |(_, behind)| behind);
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_out_of_errors() {
        let text = "error sending request for url (http://h/?key=s3cret): refused";
        assert_eq!(without_urls(text), "error sending request: refused");
    }
}
