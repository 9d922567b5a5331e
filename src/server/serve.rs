//! `adjutant serve` on stdin and stdout: nothing but protocol goes over them.

use std::sync::Arc;
use std::time::Duration;

use rmcp::ServiceExt;

use super::fast_lane::{FastLane, LAST_ANSWERS};
use super::handler::Handler;
use super::raw_results::RawResults;
use super::who::Callers;
use super::wire::stdin_and_stdout;
use crate::call::Orchestrator;
use crate::gateway::{Gateway, LogRelay};
use crate::identity::{Attestations, Caller, Reception};

/// Serves one caller until it goes away; then ends what it had started.
pub async fn serve_stdio(
    orchestrator: Arc<Orchestrator>,
    gateway: Arc<Gateway>,
    caller: Caller,
) -> Result<(), ServeError> {
    let logs = Some(Arc::clone(gateway.log_relay()));
    let ended = Box::pin(talk_stdio(&orchestrator, &gateway, caller, logs)).await;
    orchestrator.end_all().await;
    ended
}

/// Talks with one caller until it goes away, or the process is told to stop and its calls have ended. Where it is alone with
/// the servers it hears what they log, by `logs`.
pub(super) async fn talk_stdio(
    orchestrator: &Arc<Orchestrator>,
    gateway: &Arc<Gateway>,
    caller: Caller,
    logs: Option<Arc<LogRelay>>,
) -> Result<(), ServeError> {
    let attested = Arc::new(Attestations::default());
    let _reception = Reception::open(&attested);
    let callers = Callers::attested(caller, attested);
    let handler = Handler::new(Arc::clone(orchestrator), Arc::clone(gateway), callers, logs);
    let stopping = orchestrator.shutdown().stopping().clone();
    let (input, output) = stdin_and_stdout();
    let (lane, rest) = FastLane::open(Arc::new(handler.clone()), input, output);
    let service = tokio::select! {
        service = RawResults(handler).serve(rest) => service.map_err(|error| ServeError::Handshake(Box::new(error)))?,
        () = stopping.cancelled() => return Ok(()),
    };
    let stop = service.cancellation_token();
    let waiting = service.waiting();
    tokio::pin!(waiting);
    let ended = tokio::select! {
        ended = &mut waiting => ended.map(drop),
        () = stopping.cancelled() => {
            // Calls that are going on still get their answers, within the grace.
            orchestrator.finish().await;
            stop.cancel();
            waiting.await.map(drop)
        }
    };
    lane.close(if stopping.is_cancelled() { Duration::ZERO } else { LAST_ANSWERS }).await;
    ended.map_err(ServeError::Broken)
}

/// Why serving ended badly.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The caller did not speak MCP.
    #[error("the client and the server could not agree")]
    Handshake(#[source] Box<rmcp::service::ServerInitializeError>),
    /// A task of ours broke.
    #[error("the connection broke")]
    Broken(#[source] tokio::task::JoinError),
}
