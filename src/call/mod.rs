//! The spine: the steps of a call in order, top to bottom, and nothing else.

#[path = "../delegation/admit.rs"]
mod admit;
#[path = "../delegation/approval/grant.rs"]
mod approval_scope;
#[path = "../delegation/approval/broker.rs"]
mod approvals;
#[path = "../delegation/approval/prompt.rs"]
mod asking;
mod audit;
#[path = "../delegation/processes/process_control.rs"]
mod bridge;
#[path = "../delegation/budget.rs"]
mod budget;
mod contract;
#[path = "../delegation/turn.rs"]
mod converse;
#[path = "../delegation/credentials.rs"]
mod credentials;
#[path = "../delegation/truncate_answer.rs"]
mod cut;
#[path = "../delegation/authorize.rs"]
mod find;
#[path = "../delegation/in_session.rs"]
mod go_on;
mod ground;
mod history;
#[path = "../delegation/user_hooks.rs"]
mod hook_answer;
mod hooks;
#[path = "../delegation/judge.rs"]
mod judge;
#[path = "../delegation/processes/process_pool.rs"]
mod kept;
#[path = "../delegation/usage_meter.rs"]
mod meter;
#[path = "../util/sync.rs"]
mod on_disk;
#[path = "../delegation/processes/agent_process.rs"]
mod open;
#[path = "../delegation/orchestrator.rs"]
mod orchestrator;
#[path = "../delegation/processes/notification_sink.rs"]
mod outlet;
#[path = "../delegation/register.rs"]
mod post;
#[path = "../delegation/process_spec.rs"]
mod prepare;
mod preview;
mod process;
#[path = "../delegation/processes/claude_program.rs"]
mod program;
mod readiness;
#[path = "../delegation/recorder.rs"]
mod recorder;
#[path = "../delegation/secrets.rs"]
mod redact;
mod replies;
#[path = "../delegation/request.rs"]
mod request;
#[path = "../delegation/processes/live_process.rs"]
mod reuse;
#[path = "../delegation/run_trace.rs"]
mod spans;
#[path = "../delegation/start_up.rs"]
mod start_up;
#[path = "../delegation/status.rs"]
mod status;
mod steps;
#[path = "../delegation/phase_timings.rs"]
mod timing;
mod wanted;
#[path = "../delegation/processes/prewarm.rs"]
mod warm;

pub use asking::{Asker, Asking, CHOICES, Nobody, Question, Reply};
pub use credentials::{config_dir, credentials};
pub use orchestrator::Orchestrator;
pub use preview::{Preview, preview};
pub use program::{Program, Programs, locate};
pub use readiness::Readiness;
pub use request::{MAX_TEXT_BYTES, Request};
pub use status::{Status, StatusBoard};
