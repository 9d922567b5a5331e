//! Cost of storing a session: `cargo bench --bench sessions`.
//!
//! A call stores its session twice: at its start and at its end. The output also gives the time of one durable append
//! on the same disk, which is the lower bound of any implementation.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark, not a library"
)]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use adjutant::sessions::{CompletedTurn, LeaseRequest, SessionStore};
use adjutant::store::append_durably;
use adjutant::util::RunId;
use serde_json::json;
use tokio::runtime::Runtime;

const ROUNDS: usize = 300;

fn main() {
    let runtime = Runtime::new().unwrap();
    let line = durable_append_times();
    println!("one durable line on this disk: {}", format_times(&line));
    for count in [1, 200, 10_000] {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fill_store(&data, count);
        let store = SessionStore::open(&data);
        let first = Instant::now();
        runtime.block_on(store_one_call(&store));
        let first = first.elapsed();
        let times = runtime.block_on(async {
            let mut times = Vec::new();
            for _ in 0..ROUNDS {
                let started = Instant::now();
                store_one_call(&store).await;
                times.push(started.elapsed());
            }
            times
        });
        let median = median_of(&times);
        println!(
            "{count:>6} conversations: {}; {:.1} durable lines; the first call, which reads the store, {first:.1?}",
            format_times(&times),
            median.as_secs_f64() / median_of(&line).as_secs_f64(),
        );
    }
}

async fn store_one_call(store: &SessionStore) {
    let begin = LeaseRequest {
        agent: "agent".parse().unwrap(),
        key: "k0".parse().unwrap(),
        fresh: false,
        working_dir: "/work".into(),
        config_dir: "/nowhere/claude".into(),
        new_session_id: uuid::Uuid::new_v4(),
        agent_digest: format!("sha256:{}", "0".repeat(64)),
        run: RunId::new(),
        timeout: Duration::from_secs(5),
    };
    let mut lease = store.lease(begin).await.unwrap();
    lease.record_completed(CompletedTurn { turns: 1, cost_usd: 0.001 }).await;
    assert!(lease.notes().is_empty(), "{:?}", lease.notes());
}

fn fill_store(data: &Path, count: usize) {
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

fn durable_append_times() -> Vec<Duration> {
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

fn median_of(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

fn format_times(times: &[Duration]) -> String {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let late = sorted.get(sorted.len() * 99 / 100).copied().unwrap_or_default();
    format!("median {:.2} ms, 99 of 100 within {:.2} ms", ms(median_of(times)), ms(late))
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
