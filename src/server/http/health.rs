//! `/healthz`, `/readyz` and `/metrics`: handlers and their data, which are numbers and names only, no paths, reasons or
//! secrets.

use std::fs;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use rmcp::handler::server::ServerHandler;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use super::frontend::{HttpFrontend, HttpPeer};
use super::metrics_text::{Exposition, MetricType};
use crate::delegation::Orchestrator;
use crate::gateway::Gateway;
use crate::telemetry::{RUN_BUCKETS, RunRow};

const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Liveness: always 200. Checks nothing, so that a busy server does not look dead.
pub(crate) async fn health() -> &'static str {
    "ok\n"
}

/// Readiness: 200 if calls can be accepted, else 503. Lists the checks, except during shutdown.
pub(crate) async fn ready<S: ServerHandler>(State(front): State<Arc<HttpFrontend<S>>>) -> Response {
    if front.stopping.is_cancelled() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let probe = front.probe.clone();
    // The check writes a file, which blocks.
    let Ok((ready, found)) = spawn_blocking(move || probe.readiness()).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(found)).into_response()
}

/// Metrics for Prometheus.
pub(crate) async fn metrics<S: ServerHandler>(
    State(front): State<Arc<HttpFrontend<S>>>,
    Extension(HttpPeer(peer)): Extension<HttpPeer>,
    headers: HeaderMap,
) -> Response {
    match front.admit_to_metrics(&headers) {
        Ok(()) => ([(CONTENT_TYPE, PROMETHEUS)], front.probe.metrics(front.http_sessions.len()))
            .into_response(),
        Err(refusal) => front.refuse_anonymous(&refusal, peer.ip()),
    }
}

/// Sources of the health checks and metrics.
#[derive(Clone)]
pub struct HealthProbe {
    pub gateway: Arc<Gateway>,
    /// `None` in `adjutant gateway`, which runs no agents.
    pub orchestrator: Option<Arc<Orchestrator>>,
}

impl HealthProbe {
    /// Returns true if calls can be accepted, and the result of each check as JSON.
    pub(crate) fn readiness(&self) -> (bool, Value) {
        let (up, servers) = self.servers_up();
        let audit = self.gateway.audit_error().is_none();
        let mut checks = json!({
            "audit_log": { "ok": audit },
            "servers": { "up": up, "of": servers },
        });
        let mut ready = audit;
        if let (Some(orchestrator), Some(checks)) = (&self.orchestrator, checks.as_object_mut()) {
            let found = orchestrator.readiness();
            ready &= found.store_writable && found.claude_found;
            let agents =
                json!({ "ok": true, "agents": found.valid_agents, "broken": found.invalid_agents });
            checks.insert("catalog".to_owned(), agents);
            checks.insert("store".to_owned(), json!({ "ok": found.store_writable }));
            checks.insert("claude".to_owned(), json!({ "ok": found.claude_found }));
        }
        (ready, json!({ "ready": ready, "checks": checks }))
    }

    /// Returns the page for Prometheus; `sessions` is the number of HTTP sessions.
    pub(crate) fn metrics(&self, sessions: usize) -> String {
        let mut page = Exposition::default();
        page.family("adjutant_info", MetricType::Gauge, "The version that is running.");
        page.sample("adjutant_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
        if let Some(orchestrator) = &self.orchestrator {
            write_runs(&mut page, &orchestrator.run_rows());
            write_queue(&mut page, orchestrator);
        }
        self.write_calls(&mut page);
        self.write_downstream(&mut page);
        page.family("adjutant_http_sessions", MetricType::Gauge, "Sessions of clients over HTTP.");
        page.sample("adjutant_http_sessions", &[], sessions);
        if let Some(bytes) = resident_bytes() {
            let help = "Memory of this process, without its children.";
            page.family("process_resident_memory_bytes", MetricType::Gauge, help);
            page.sample("process_resident_memory_bytes", &[], bytes);
        }
        page.into_text()
    }

    fn servers_up(&self) -> (usize, usize) {
        let states = self.gateway.server_states(&|_| true);
        let servers = states.as_object().into_iter().flatten();
        let is_up =
            |states: &Value| state_entries(states).any(|state| state["state"] == "connected");
        let up: Vec<bool> = servers.map(|(_, states)| is_up(states)).collect();
        (up.iter().filter(|up| **up).count(), up.len())
    }

    fn write_calls(&self, page: &mut Exposition) {
        let name = "adjutant_gateway_calls_total";
        page.family(name, MetricType::Counter, "Requests to the gateway, by who asked for what.");
        for call in self.gateway.call_counts() {
            let decision = if call.outcome == "denied" { "deny" } else { "allow" };
            let labels = [
                ("agent", call.agent.as_str()),
                ("server", &call.server),
                ("tool", &call.tool),
                ("decision", decision),
                ("outcome", call.outcome),
            ];
            page.sample(name, &labels, call.count);
        }
    }

    fn write_downstream(&self, page: &mut Exposition) {
        let states = self.gateway.server_states(&|_| true);
        let all = || {
            let servers = states.as_object().into_iter().flatten();
            servers.flat_map(|(name, states)| state_entries(states).map(move |state| (name, state)))
        };
        let name = "adjutant_downstream_state";
        page.family(
            name,
            MetricType::Gauge,
            "1 for the state that a server behind the gateway is in.",
        );
        for (server, state) in all() {
            page.sample(name, &server_labels(server, state, true), 1);
        }
        let name = "adjutant_downstream_restarts_total";
        page.family(
            name,
            MetricType::Counter,
            "How often a server behind the gateway was started again.",
        );
        for (server, state) in all() {
            let restarts = state["restarts"].as_u64().unwrap_or(0);
            page.sample(name, &server_labels(server, state, false), restarts);
        }
    }
}

fn state_entries(states: &Value) -> impl Iterator<Item = &Value> {
    states.as_array().into_iter().flatten()
}

/// Returns the labels of a server: its name, the agent it is private to, and optionally its state.
fn server_labels<'a>(
    server: &'a str,
    state: &'a Value,
    with_state: bool,
) -> Vec<(&'a str, &'a str)> {
    let text = |name: &str| state[name].as_str().unwrap_or_default();
    let mut labels = vec![("server", server), ("agent", text("agent"))];
    if with_state {
        labels.push(("state", text("state")));
    }
    labels
}

fn write_runs(page: &mut Exposition, rows: &[RunRow]) {
    page.family(
        "adjutant_runs_total",
        MetricType::Counter,
        "Runs that have ended, by agent and outcome.",
    );
    for row in rows {
        page.sample("adjutant_runs_total", &run_labels(row), row.series.runs);
    }
    page.family(
        "adjutant_run_cost_usd_total",
        MetricType::Counter,
        "What the runs have cost, in dollars.",
    );
    for row in rows {
        page.sample("adjutant_run_cost_usd_total", &run_labels(row), row.series.cost_usd);
    }
    page.family("adjutant_run_duration_seconds", MetricType::Histogram, "How long runs took.");
    for row in rows {
        let bucket = |page: &mut Exposition, end: &str, count: u64| {
            let labels = [run_labels(row).as_slice(), &[("le", end)]].concat();
            page.sample("adjutant_run_duration_seconds_bucket", &labels, count);
        };
        for (end, count) in RUN_BUCKETS.iter().zip(row.series.buckets) {
            bucket(page, &end.to_string(), count);
        }
        bucket(page, "+Inf", row.series.runs);
        page.sample("adjutant_run_duration_seconds_sum", &run_labels(row), row.series.seconds);
        page.sample("adjutant_run_duration_seconds_count", &run_labels(row), row.series.runs);
    }
}

fn run_labels(row: &RunRow) -> [(&str, &str); 2] {
    [("agent", &row.agent), ("outcome", row.outcome)]
}

fn write_queue(page: &mut Exposition, orchestrator: &Orchestrator) {
    let counts = orchestrator.admission_counts();
    page.family("adjutant_runs_running", MetricType::Gauge, "Runs that are going on.");
    page.sample("adjutant_runs_running", &[], counts.running);
    let (warm, live) = orchestrator.pooled_processes();
    let name = "adjutant_pool_processes";
    page.family(name, MetricType::Gauge, "Processes that wait for a call.");
    page.sample(name, &[("kind", "warm")], warm);
    page.sample(name, &[("kind", "live")], live);
    page.family("adjutant_runs_waiting", MetricType::Gauge, "Runs that wait for their turn.");
    page.sample("adjutant_runs_waiting", &[], counts.waiting);
}

/// Returns the resident memory of this process; `None` without `/proc`.
fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1 << 10)
}
