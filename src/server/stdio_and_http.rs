//! `adjutant serve` over HTTP, alone or beside stdin and stdout: one orchestrator for all of them.

use std::sync::Arc;

use super::handler::Handler;
use super::http::{HttpEnd, HttpServer, Probe};
use super::stdio::{ServeError, talk_stdio};
use super::who::Callers;
use crate::call::Orchestrator;
use crate::gateway::Gateway;
use crate::identity::Caller;

/// Serves callers over HTTP until the process is told to stop; then ends what they had started.
/// `caller` is who has no token, where that is let in at all.
pub async fn serve_http(
    orchestrator: Arc<Orchestrator>,
    gateway: Arc<Gateway>,
    caller: Caller,
    server: HttpServer,
) {
    http(&orchestrator, &gateway, caller, server).await;
    orchestrator.end_all().await;
}

/// Serves one caller on stdin and stdout, and others over HTTP, until the first one goes or the process is told
/// to stop.
pub async fn serve_stdio_and_http(
    orchestrator: Arc<Orchestrator>,
    gateway: Arc<Gateway>,
    caller: Caller,
    server: HttpServer,
) -> Result<(), ServeError> {
    let over_http = http(&orchestrator, &gateway, caller.clone(), server);
    let over_stdio = async {
        // The others use the same servers, which may log what is theirs.
        let logs = None;
        let ended = Box::pin(talk_stdio(&orchestrator, &gateway, caller, logs)).await;
        // Whoever started us has gone: the others get their answers, and no more.
        if !orchestrator.shutdown().stopping().is_cancelled() {
            orchestrator.shutdown().begin();
        }
        ended
    };
    let ((), ended) = tokio::join!(over_http, over_stdio);
    orchestrator.end_all().await;
    ended
}

async fn http(
    orchestrator: &Arc<Orchestrator>,
    gateway: &Arc<Gateway>,
    caller: Caller,
    server: HttpServer,
) {
    let shutdown = orchestrator.shutdown();
    let end = HttpEnd { stopping: shutdown.stopping().clone(), ending: shutdown.ending().clone() };
    // The session of Claude Code that started us is not theirs.
    let caller = Caller { session_id: None, ..caller };
    let callers = Callers::known(caller);
    let handler = Handler::new(Arc::clone(orchestrator), Arc::clone(gateway), callers, None);
    let probe =
        Probe { gateway: Arc::clone(gateway), orchestrator: Some(Arc::clone(orchestrator)) };
    server.serve(probe, move || handler.clone(), end).await;
}
