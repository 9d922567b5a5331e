//! Loads 10,000 agents and looks up one among 10 to 10,000: `cargo bench --bench catalog`.

#![allow(clippy::expect_used, missing_docs, reason = "a benchmark has no caller to tell")]

use std::fs;
use std::hint::black_box;
use std::time::Duration;

use adjutant::catalog::{Catalog, Snapshot};
use adjutant::config::Settings;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

/// A project with this many agents, each with permissions, a private server and a schema.
fn project(agents: usize) -> (tempfile::TempDir, Settings) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for number in 0..agents {
        let agent = folder.path().join(format!("agents/agent-{number:05}"));
        fs::create_dir_all(&agent).expect("a folder");
        fs::write(agent.join("agent.md"), agent_file(number)).expect("an agent");
    }
    let settings = Settings::resolve(Some(folder.path())).expect("a project");
    (folder, settings)
}

fn agent_file(number: usize) -> String {
    format!(
        r#"---
name: agent-{number:05}
description: "Answers questions of kind {number}"
allowed_callers: [main]
timeout_ms: 30000
model: haiku
permissions:
  allow: ["Bash(curl:*)", "Bash(wget:*)", Read]
  deny: ["Bash(rm:*)"]
tools: [builtin:Bash, builtin:Read, "mcp:search:*"]
mcp_servers:
  - name: search
    command: npx
    args: ["-y", "search-server"]
    env: {{ API_KEY: "${{API_KEY}}" }}
---
You answer questions of kind {number}. Say where you know it from.
"#
    )
}

fn bench_load(criterion: &mut Criterion) {
    let (_folder, settings) = project(10_000);
    let sound = Snapshot::load(&settings).entries().iter().filter(|e| e.agent().is_some()).count();
    assert_eq!(sound, 10_000, "every agent is sound");
    let mut group = criterion.benchmark_group("load");
    group.sample_size(10).measurement_time(Duration::from_secs(10));
    group.bench_function("10000 agents", |bencher| bencher.iter(|| Snapshot::load(&settings)));
    let catalog = Catalog::open(&settings);
    group.bench_function("10000 agents again, nothing changed", |bencher| {
        bencher.iter(|| catalog.reload());
    });
    group.finish();
}

fn bench_lookup(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lookup");
    for agents in [10, 1_000, 10_000] {
        let (_folder, settings) = project(agents);
        let catalog = Catalog::open(&settings);
        let name = format!("agent-{:05}", agents / 2);
        group.bench_with_input(BenchmarkId::new("snapshot", agents), &name, |bencher, name| {
            bencher.iter(|| catalog.snapshot().get(black_box(name)).is_some());
        });
        group.bench_with_input(BenchmarkId::new("as on disk", agents), &name, |bencher, name| {
            bencher.iter(|| catalog.current(black_box(name)).get(name).is_some());
        });
    }
    group.finish();
}

criterion_group!(benches, bench_load, bench_lookup);
criterion_main!(benches);
