//! `/healthz`, `/readyz` and `/metrics`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use rmcp::handler::server::ServerHandler;
use tokio::task::spawn_blocking;

use super::front::{Front, Peer};

const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The process is there. Asks nothing and nobody, so that a busy server is not taken for a dead one.
pub(super) async fn health() -> &'static str {
    "ok\n"
}

/// Calls could be taken: 200, else 503, with what is missing.
pub(super) async fn ready<S: ServerHandler>(State(front): State<Arc<Front<S>>>) -> Response {
    if front.stopping.is_cancelled() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let probe = front.probe.clone();
    // It writes a file to see whether it can.
    let Ok((ready, found)) = spawn_blocking(move || probe.readiness()).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(found)).into_response()
}

/// The counts, for Prometheus.
pub(super) async fn metrics<S: ServerHandler>(
    State(front): State<Arc<Front<S>>>,
    Extension(Peer(peer)): Extension<Peer>,
    headers: HeaderMap,
) -> Response {
    match front.admit_to_metrics(&headers) {
        Ok(()) => {
            ([(CONTENT_TYPE, PROMETHEUS)], front.probe.metrics(front.book.len())).into_response()
        }
        Err(refusal) => front.refused(&refusal, peer.ip()),
    }
}
