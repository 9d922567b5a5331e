//! The event log: what every agent did, as lines, timelines and statistics.
//!
//! Writing never delays a run: events pass a bounded queue to a writer thread.

mod claude_process;
mod close_interrupted;
mod event;
mod hook_events;
mod log;
mod log_format;
mod open_sessions;
mod reader;
mod result_files;
mod stats;
mod timeline;
mod upgrade;

pub(crate) use claude_process::{ClaudeProcess, ProcessLiveness};
pub(crate) use close_interrupted::InterruptedRun;
pub(crate) use event::RunSubject;
pub(crate) use hook_events::EndDetection;
pub(crate) use log::{EventLog, EventOptions, event_path};
pub(crate) use reader::{RecordedEvent, read_events};
pub(crate) use result_files::ResultFiles;
pub(crate) use stats::{AgentStats, stats_by_agent};
pub(crate) use timeline::{RunTimeline, TimelineStep, TimelineStepKind, read_timelines};
