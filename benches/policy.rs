//! Cost of one policy evaluation and one audit entry: `cargo bench --bench policy`.

#![allow(missing_docs, clippy::expect_used, clippy::panic, reason = "a benchmark, not a library")]

use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use adjutant::audit::{AuditEntry, AuditLog, AuditOptions};
use adjutant::identity::{Caller, KnownBy};
use adjutant::policy::{GatewayRules, evaluate};
use criterion::{Criterion, criterion_group, criterion_main};

const RULES: &str = r#"{"agents": {"backend": {
    "allow": {"servers": ["postgres", "files"], "tools": {"postgres": ["query", "list_*"]}},
    "deny": {"tools": {"*": ["drop_*", "delete_*"], "files": ["write_file"]}}}}}"#;

fn bench_evaluate(criterion: &mut Criterion) {
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

fn bench_audit(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a folder");
    let log = AuditLog::open(&folder.path().join("audit.jsonl"), AuditOptions::default());
    let mut line = AuditEntry::new("execute_tool").with_target("postgres", Some("query"));
    line.caller = Some(Caller::new("backend", KnownBy::Asserted));
    line.duration = Some(Duration::from_micros(300));
    criterion.bench_function("write one audit line", |bencher| {
        bencher.iter(|| log.write(black_box(&line)).expect("a line"));
    });
}

criterion_group!(benches, bench_evaluate, bench_audit);
criterion_main!(benches);
