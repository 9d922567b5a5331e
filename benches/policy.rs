//! What a judgement and an audit line cost: `cargo bench --bench policy`.

#![allow(missing_docs, clippy::expect_used, clippy::panic, reason = "a benchmark, not a library")]

use std::hint::black_box;
use std::path::Path;

use adjutant::policy::{GatewayRules, evaluate};
use adjutant::record::{AuditLine, AuditLog, AuditOptions};
use criterion::{Criterion, criterion_group, criterion_main};

const RULES: &str = r#"{"agents": {"backend": {
    "allow": {"servers": ["postgres", "files"], "tools": {"postgres": ["query", "list_*"]}},
    "deny": {"tools": {"*": ["drop_*", "delete_*"], "files": ["write_file"]}}}}}"#;

fn judging(criterion: &mut Criterion) {
    let rules = match GatewayRules::parse(RULES, Path::new("rules.json")) {
        Ok((rules, _)) => rules,
        Err(problems) => panic!("{problems:?}"),
    };
    criterion.bench_function("judge one call", |bencher| {
        bencher.iter(|| {
            evaluate(&rules, "backend", black_box("postgres"), Some(black_box("list_tables")))
        });
    });
}

fn recording(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a folder");
    let log = AuditLog::open(&folder.path().join("audit.jsonl"), AuditOptions::default());
    let mut line = AuditLine::new("execute_tool").on("postgres", Some("query"));
    line.agent = Some("backend".to_owned());
    line.latency_us = Some(300);
    criterion.bench_function("write one audit line", |bencher| {
        bencher.iter(|| log.record(black_box(&line)).expect("a line"));
    });
}

criterion_group!(benches, judging, recording);
criterion_main!(benches);
