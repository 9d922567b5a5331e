//! What a call's bookkeeping costs: `cargo bench --bench sessions`.
//!
//! A call records its conversation twice: when it begins and when it is over. Beside the absolute numbers stands what
//! one durable line costs on the same disk, because that is the part no program can save.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark, not a library"
)]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use adjutant::base::{RunId, append_durably};
use adjutant::sessions::{Begin, CompletedTurn, SessionStore};
use serde_json::json;
use tokio::runtime::Runtime;

const ROUNDS: usize = 300;

fn main() {
    let runtime = Runtime::new().unwrap();
    let line = durable_line();
    println!("one durable line on this disk: {}", milliseconds(&line));
    for count in [1, 200, 10_000] {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fill(&data, count);
        let store = SessionStore::open(&data);
        let first = Instant::now();
        runtime.block_on(call(&store));
        let first = first.elapsed();
        let times = runtime.block_on(async {
            let mut times = Vec::new();
            for _ in 0..ROUNDS {
                let started = Instant::now();
                call(&store).await;
                times.push(started.elapsed());
            }
            times
        });
        let median = middle(&times);
        println!(
            "{count:>6} conversations: {}; {:.1} durable lines; the first call, which reads the store, {first:.1?}",
            milliseconds(&times),
            median.as_secs_f64() / middle(&line).as_secs_f64(),
        );
    }
}

async fn call(store: &SessionStore) {
    let begin = Begin {
        agent: "agent".parse().unwrap(),
        key: "k0".parse().unwrap(),
        fresh: false,
        folder: "/work".into(),
        config_dir: "/nowhere/claude".into(),
        new_id: uuid::Uuid::new_v4(),
        contract: format!("sha256:{}", "0".repeat(64)),
        run: RunId::new(),
        patience: Duration::from_secs(5),
    };
    let mut lease = store.begin(begin).await.unwrap();
    lease.completed(CompletedTurn { turns: 1, cost_usd: 0.001 }).await;
    assert!(lease.notes().is_empty(), "{:?}", lease.notes());
}

fn fill(data: &Path, count: usize) {
    let entries: Vec<_> = (0..count)
        .map(|number| {
            json!({
                "agent": "agent", "key": format!("k{number}"), "state": "ready", "session_id": uuid::Uuid::new_v4(),
                "turns": 3, "cost_usd": 0.01, "created": "2026-01-01T00:00:00Z", "last_used": "2026-01-01T00:00:00Z",
                "last_run": RunId::new().to_string(), "folder": "/work", "config_dir": "/nowhere/claude",
                "contract": format!("sha256:{}", "0".repeat(64)),
            })
        })
        .collect();
    fs::create_dir_all(data).unwrap();
    let text = serde_json::to_vec_pretty(&json!({"format": 1, "conversations": entries})).unwrap();
    fs::write(data.join("sessions.json"), text).unwrap();
}

fn durable_line() -> Vec<Duration> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("line");
    (0..ROUNDS as u64)
        .map(|number| {
            let started = Instant::now();
            append_durably(&path, number * 400, &[b'x'; 400]).unwrap();
            started.elapsed()
        })
        .collect()
}

fn middle(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

fn milliseconds(times: &[Duration]) -> String {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let late = sorted.get(sorted.len() * 99 / 100).copied().unwrap_or_default();
    format!("median {:.2} ms, 99 of 100 within {:.2} ms", ms(middle(times)), ms(late))
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
