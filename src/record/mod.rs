//! What happened, kept: events, the audit log with its chain of hashes, and counts and latencies; and the
//! ledger of what it cost.
//!
//! Nothing here decides; it writes down what was decided, before the answer goes out.

mod audit;
mod call_counts;
mod chain;
mod claude_stamp;
mod cost_book;
mod cost_ledger;
mod event;
mod event_file;
mod event_reader;
mod events;
mod exporter;
mod histogram;
mod hook_events;
mod line;
mod metrics;
mod redaction;
mod run_metrics;
mod session_card;
mod stats;
mod story;
mod tail;
mod trace;
mod unclosed;
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
