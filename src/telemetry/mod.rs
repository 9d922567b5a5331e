//! Metrics and traces, in memory, as Prometheus text and over OTLP. Optional: no run depends on them.

mod call_counts;
mod histogram;
mod metrics;
mod otlp;
mod run_metrics;
mod spans;

pub(crate) use call_counts::CallCount;
pub(crate) use metrics::{CallOutcome, CallSample, Metrics, MetricsReport};
pub(crate) use otlp::{OtlpCollector, SpanExporter};
pub(crate) use run_metrics::{RUN_BUCKETS, RunMetrics, RunRow};
pub(crate) use spans::{TraceContext, TraceSpan};
