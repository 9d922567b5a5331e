//! `/healthz`, `/readyz` and `/metrics`: handlers and their data, which are numbers and names only, no paths, reasons or
//! secrets.

use std::fmt::{Display, Write};
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

use super::frontend::{HttpFrontend, HttpPeer, RequestInfo};
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
        Err(refusal) => front.refuse(&refusal, peer.ip(), &RequestInfo::default()),
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
        let mut page = MetricsPage::default();
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        page.gauge("adjutant_info", "The version that is running.").sample(&version, 1);
        if let Some(orchestrator) = &self.orchestrator {
            write_runs(&mut page, &orchestrator.run_rows());
            write_queue(&mut page, orchestrator);
        }
        self.write_calls(&mut page);
        self.write_downstream(&mut page);
        page.gauge("adjutant_http_sessions", "Sessions of clients over HTTP.")
            .sample(&[], sessions);
        if let Some(bytes) = resident_bytes() {
            let help = "Memory of this process, without its children.";
            page.gauge("process_resident_memory_bytes", help).sample(&[], bytes);
        }
        page.0
    }

    fn servers_up(&self) -> (usize, usize) {
        let states = self.gateway.server_states(&|_| true);
        let servers = states.as_object().into_iter().flatten();
        let is_up =
            |states: &Value| state_entries(states).any(|state| state["state"] == "connected");
        let up: Vec<bool> = servers.map(|(_, states)| is_up(states)).collect();
        (up.iter().filter(|up| **up).count(), up.len())
    }

    fn write_calls(&self, page: &mut MetricsPage) {
        let help = "Requests to the gateway, by who asked for what.";
        let mut calls = page.counter("adjutant_gateway_calls_total", help);
        for call in self.gateway.call_counts() {
            let decision = if call.outcome == "denied" { "deny" } else { "allow" };
            let labels = [
                ("agent", call.agent.as_str()),
                ("server", &call.server),
                ("tool", &call.tool),
                ("decision", decision),
                ("outcome", call.outcome),
            ];
            calls.sample(&labels, call.count);
        }
    }

    fn write_downstream(&self, page: &mut MetricsPage) {
        let servers = self.gateway.server_states(&|_| true);
        let states = || {
            let servers = servers.as_object().into_iter().flatten();
            servers.flat_map(|(name, states)| state_entries(states).map(move |state| (name, state)))
        };
        let help = "1 for the state that a server behind the gateway is in.";
        let mut current = page.gauge("adjutant_downstream_state", help);
        for (server, state) in states() {
            let (agent, state) = (text(state, "agent"), text(state, "state"));
            current.sample(&[("server", server), ("agent", agent), ("state", state)], 1);
        }
        let help = "How often a server behind the gateway was started again.";
        let mut restarts = page.counter("adjutant_downstream_restarts_total", help);
        for (server, state) in states() {
            let count = state["restarts"].as_u64().unwrap_or(0);
            restarts.sample(&[("server", server), ("agent", text(state, "agent"))], count);
        }
    }
}

fn state_entries(states: &Value) -> impl Iterator<Item = &Value> {
    states.as_array().into_iter().flatten()
}

fn text<'a>(state: &'a Value, name: &str) -> &'a str {
    state[name].as_str().unwrap_or_default()
}

fn write_runs(page: &mut MetricsPage, rows: &[RunRow]) {
    let mut runs =
        page.counter("adjutant_runs_total", "Runs that have ended, by agent and outcome.");
    for row in rows {
        runs.sample(&run_labels(row), row.series.runs);
    }
    let mut costs =
        page.counter("adjutant_run_cost_usd_total", "What the runs have cost, in dollars.");
    for row in rows {
        costs.sample(&run_labels(row), row.series.cost_usd);
    }
    let mut durations = page.histogram("adjutant_run_duration_seconds", "How long runs took.");
    for row in rows {
        let labels = run_labels(row);
        let ends = RUN_BUCKETS.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
        for (end, count) in ends.zip(row.series.buckets.into_iter().chain([row.series.runs])) {
            let labels = [labels.as_slice(), &[("le", end.as_str())]].concat();
            durations.sample_of("_bucket", &labels, count);
        }
        durations.sample_of("_sum", &labels, row.series.seconds);
        durations.sample_of("_count", &labels, row.series.runs);
    }
}

fn run_labels(row: &RunRow) -> [(&str, &str); 2] {
    [("agent", &row.agent), ("outcome", row.outcome)]
}

fn write_queue(page: &mut MetricsPage, orchestrator: &Orchestrator) {
    let counts = orchestrator.admission_counts();
    page.gauge("adjutant_runs_running", "Runs that are going on.").sample(&[], counts.running);
    let (warm, live) = orchestrator.pooled_processes();
    let mut processes = page.gauge("adjutant_pool_processes", "Processes that wait for a call.");
    processes.sample(&[("kind", "warm")], warm);
    processes.sample(&[("kind", "live")], live);
    page.gauge("adjutant_runs_waiting", "Runs that wait for their turn.")
        .sample(&[], counts.waiting);
}

/// Returns the resident memory of this process; `None` without `/proc`.
fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1 << 10)
}

/// A page in the text format of Prometheus.
#[derive(Debug, Default)]
struct MetricsPage(String);

/// A metric family of a page; its samples follow its head.
struct MetricFamily<'a> {
    page: &'a mut String,
    name: &'static str,
}

impl MetricsPage {
    fn counter(&mut self, name: &'static str, help: &str) -> MetricFamily<'_> {
        self.family(name, "counter", help)
    }

    fn gauge(&mut self, name: &'static str, help: &str) -> MetricFamily<'_> {
        self.family(name, "gauge", help)
    }

    fn histogram(&mut self, name: &'static str, help: &str) -> MetricFamily<'_> {
        self.family(name, "histogram", help)
    }

    fn family(&mut self, name: &'static str, kind: &str, help: &str) -> MetricFamily<'_> {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        MetricFamily { page: &mut self.0, name }
    }
}

impl MetricFamily<'_> {
    fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.sample_of("", labels, value);
    }

    /// Adds a sample of one series of a histogram. Label values are escaped.
    fn sample_of(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.page, "{}{suffix}", self.name);
        for (place, (label, text)) in labels.iter().enumerate() {
            let open = if place == 0 { '{' } else { ',' };
            let _ = write!(self.page, "{open}{label}=\"{}\"", escape_label_value(text));
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.page, "{close} {value}");
    }
}

/// Escapes a label value: names can contain any character, and a line holds one sample.
fn escape_label_value(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_cannot_forge_a_sample() {
        let mut page = MetricsPage::default();
        page.counter("x_total", "Things.").sample(&[("a", "q\"} 1\nforged 2\\"), ("b", "")], 3);
        assert_eq!(
            page.0,
            "# HELP x_total Things.\n# TYPE x_total counter\nx_total{a=\"q\\\"} 1\\nforged 2\\\\\",b=\"\"} 3\n"
        );
    }
}
