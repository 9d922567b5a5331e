//! What `/readyz` and `/metrics` look at. They tell numbers and names, never a path, a reason or a secret.

use std::fs;
use std::sync::Arc;

use serde_json::{Value, json};

use super::exposition::{Exposition, Kind};
use crate::call::Orchestrator;
use crate::gateway::Gateway;
use crate::record::{RUN_BUCKETS, RunRow};

/// The parts of the process that can say how they are.
#[derive(Clone)]
pub struct Probe {
    /// The gateway.
    pub gateway: Arc<Gateway>,
    /// What runs agents; `adjutant gateway` has none.
    pub orchestrator: Option<Arc<Orchestrator>>,
}

impl Probe {
    /// Whether calls can be taken, and why not.
    pub(super) fn readiness(&self) -> (bool, Value) {
        let (up, servers) = self.servers_up();
        let audit = self.gateway.audit_problem().is_none();
        let mut checks = json!({
            "audit_log": { "ok": audit },
            "servers": { "up": up, "of": servers },
        });
        let mut ready = audit;
        if let (Some(orchestrator), Some(checks)) = (&self.orchestrator, checks.as_object_mut()) {
            let found = orchestrator.readiness();
            ready &= found.store_writable && found.claude_found;
            let agents =
                json!({ "ok": true, "agents": found.sound_agents, "broken": found.broken_agents });
            checks.insert("catalog".to_owned(), agents);
            checks.insert("store".to_owned(), json!({ "ok": found.store_writable }));
            checks.insert("claude".to_owned(), json!({ "ok": found.claude_found }));
        }
        (ready, json!({ "ready": ready, "checks": checks }))
    }

    /// The page for Prometheus; `sessions` and `connections` are the server's own.
    pub(super) fn metrics(&self, sessions: usize) -> String {
        let mut page = Exposition::default();
        page.family("adjutant_info", Kind::Gauge, "The version that is running.");
        page.sample("adjutant_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
        if let Some(orchestrator) = &self.orchestrator {
            runs(&mut page, &orchestrator.run_rows());
            queue(&mut page, orchestrator);
        }
        self.calls(&mut page);
        self.downstream(&mut page);
        page.family("adjutant_http_sessions", Kind::Gauge, "Sessions of clients over HTTP.");
        page.sample("adjutant_http_sessions", &[], sessions);
        if let Some(bytes) = resident_bytes() {
            let help = "Memory of this process, without its children.";
            page.family("process_resident_memory_bytes", Kind::Gauge, help);
            page.sample("process_resident_memory_bytes", &[], bytes);
        }
        page.into_text()
    }

    fn servers_up(&self) -> (usize, usize) {
        let states = self.gateway.server_states(&|_| true);
        let servers = states.as_object().into_iter().flatten();
        let is_up = |states: &Value| entries(states).any(|state| state["state"] == "connected");
        let up: Vec<bool> = servers.map(|(_, states)| is_up(states)).collect();
        (up.iter().filter(|up| **up).count(), up.len())
    }

    fn calls(&self, page: &mut Exposition) {
        let name = "adjutant_gateway_calls_total";
        page.family(name, Kind::Counter, "Requests to the gateway, by who asked for what.");
        for call in self.gateway.call_counts() {
            let decision = if call.ending == "denied" { "deny" } else { "allow" };
            let labels = [
                ("agent", call.agent.as_str()),
                ("server", &call.server),
                ("tool", &call.tool),
                ("decision", decision),
                ("outcome", call.ending),
            ];
            page.sample(name, &labels, call.count);
        }
    }

    fn downstream(&self, page: &mut Exposition) {
        let states = self.gateway.server_states(&|_| true);
        let all = || {
            let servers = states.as_object().into_iter().flatten();
            servers.flat_map(|(name, states)| entries(states).map(move |state| (name, state)))
        };
        let name = "adjutant_downstream_state";
        page.family(name, Kind::Gauge, "1 for the state that a server behind the gateway is in.");
        for (server, state) in all() {
            page.sample(name, &labels(server, state, true), 1);
        }
        let name = "adjutant_downstream_restarts_total";
        page.family(
            name,
            Kind::Counter,
            "How often a server behind the gateway was started again.",
        );
        for (server, state) in all() {
            let restarts = state["restarts"].as_u64().unwrap_or(0);
            page.sample(name, &labels(server, state, false), restarts);
        }
    }
}

fn entries(states: &Value) -> impl Iterator<Item = &Value> {
    states.as_array().into_iter().flatten()
}

/// The server, the agent that it is kept for if there is one, and the state it is in.
fn labels<'a>(server: &'a str, state: &'a Value, with_state: bool) -> Vec<(&'a str, &'a str)> {
    let text = |name: &str| state[name].as_str().unwrap_or_default();
    let mut labels = vec![("server", server), ("agent", text("agent"))];
    if with_state {
        labels.push(("state", text("state")));
    }
    labels
}

fn runs(page: &mut Exposition, rows: &[RunRow]) {
    page.family(
        "adjutant_runs_total",
        Kind::Counter,
        "Runs that have ended, by agent and outcome.",
    );
    for row in rows {
        page.sample("adjutant_runs_total", &of(row), row.series.runs);
    }
    page.family(
        "adjutant_run_cost_usd_total",
        Kind::Counter,
        "What the runs have cost, in dollars.",
    );
    for row in rows {
        page.sample("adjutant_run_cost_usd_total", &of(row), row.series.cost_usd);
    }
    page.family("adjutant_run_duration_seconds", Kind::Histogram, "How long runs took.");
    for row in rows {
        let bucket = |page: &mut Exposition, end: &str, count: u64| {
            let labels = [of(row).as_slice(), &[("le", end)]].concat();
            page.sample("adjutant_run_duration_seconds_bucket", &labels, count);
        };
        for (end, count) in RUN_BUCKETS.iter().zip(row.series.buckets) {
            bucket(page, &end.to_string(), count);
        }
        bucket(page, "+Inf", row.series.runs);
        page.sample("adjutant_run_duration_seconds_sum", &of(row), row.series.seconds);
        page.sample("adjutant_run_duration_seconds_count", &of(row), row.series.runs);
    }
}

fn of(row: &RunRow) -> [(&str, &str); 2] {
    [("agent", &row.agent), ("outcome", row.outcome)]
}

fn queue(page: &mut Exposition, orchestrator: &Orchestrator) {
    let counts = orchestrator.queue();
    page.family("adjutant_runs_running", Kind::Gauge, "Runs that are going on.");
    page.sample("adjutant_runs_running", &[], counts.running);
    let (warm, live) = orchestrator.waiting_processes();
    let name = "adjutant_pool_processes";
    page.family(name, Kind::Gauge, "Processes that wait for a call.");
    page.sample(name, &[("kind", "warm")], warm);
    page.sample(name, &[("kind", "live")], live);
    page.family("adjutant_runs_waiting", Kind::Gauge, "Runs that wait for their turn.");
    page.sample("adjutant_runs_waiting", &[], counts.waiting);
}

/// What the system says about this process, where it has `/proc`.
fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1 << 10)
}
