//! What happened, kept: events, the audit log with its chain of hashes, and counts and latencies; and the
//! ledger of what it cost.
//!
//! Nothing here decides; it writes down what was decided, before the answer goes out.

#[path = "../audit/log.rs"]
mod audit;
#[path = "../telemetry/call_counts.rs"]
mod call_counts;
#[path = "../audit/chain.rs"]
mod chain;
#[path = "../events/claude_process.rs"]
mod claude_stamp;
#[path = "../costs/table.rs"]
mod cost_book;
mod cost_ledger;
#[path = "../events/event.rs"]
mod event;
#[path = "../events/log_format.rs"]
mod event_file;
#[path = "../events/reader.rs"]
mod event_reader;
#[path = "../events/log.rs"]
mod events;
#[path = "../telemetry/otlp.rs"]
mod exporter;
#[path = "../telemetry/histogram.rs"]
mod histogram;
#[path = "../events/hook_events.rs"]
mod hook_events;
#[path = "../audit/entry.rs"]
mod line;
#[path = "../telemetry/metrics.rs"]
mod metrics;
#[path = "../util/redact.rs"]
mod redaction;
#[path = "../telemetry/run_metrics.rs"]
mod run_metrics;
#[path = "../events/open_sessions.rs"]
mod session_card;
#[path = "../events/stats.rs"]
mod stats;
#[path = "../events/timeline.rs"]
mod story;
#[path = "../store/log_reader.rs"]
mod tail;
#[path = "../telemetry/spans.rs"]
mod trace;
#[path = "../events/close_interrupted.rs"]
mod unclosed;
#[path = "../audit/verify.rs"]
mod verify;

pub use audit::{AuditLog, AuditOptions, AuditUnavailable};
pub use call_counts::CallCount;
pub use claude_stamp::{ClaudeStamp, Life};
pub use cost_book::{Account, Payment, day_of, session_of_process};
pub use cost_ledger::CostLedger;
pub use event::{EVENT_FORMAT, Event, RunSubject, Weight};
pub use event_reader::{RecordedEvent, read_events};
pub use events::{EventLog, EventOptions, event_path};
pub use exporter::{Collector, SpanExporter};
pub use histogram::Histogram;
pub use hook_events::Noticed;
pub use line::{AUDIT_FORMAT, ArgumentDetail, AuditLine};
pub use metrics::{Ending, Measured, Metrics, MetricsReport, SeriesReport};
pub use redaction::{Redactor, Secret};
pub use run_metrics::{RUN_BUCKETS, RunMetrics, RunRow, RunSeries};
pub use stats::{AgentStats, count_by_agent};
pub use story::{RunStory, Step, StepKind, read_stories};
pub use tail::LogTail;
pub use trace::{NoTraceParent, Span, TraceContext};
pub use unclosed::LeftRun;
pub use verify::{ChainFault, ChainProblem, Verification, verify};
