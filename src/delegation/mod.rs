//! One run of one agent, from request to report.
//!
//! [`pipeline`] calls the steps in order: validate, decide, open the budget, audit, register, admit, prepare the launch, start
//! `claude` and run the turn, judge, deliver. Each other file is one step or a part of one.

mod admit;
mod approval;
mod authorize;
mod budget;
mod deliver;
mod file_access;
mod in_session;
mod judge;
mod launch;
mod limits;
mod one_shot;
mod orchestrator;
mod phase_timings;
mod pipeline;
mod process_spec;
mod processes;
mod recorder;
mod register;
mod request;
mod run_trace;
#[cfg(target_os = "linux")]
mod sandbox;
#[path = "no_sandbox.rs"]
#[cfg(not(target_os = "linux"))]
mod sandbox;
mod secrets;
mod start_up;
mod status;
mod turn;
mod usage_meter;
mod user_hooks;

pub use approval::NoApprover;
pub use orchestrator::Orchestrator;
pub use request::RunRequest;
pub use status::StatusSender;

pub(crate) use approval::{
    ApprovalAnswer, ApprovalFuture, ApprovalPrompt, ApprovalQuestion, CHOICES,
};
pub(crate) use file_access::{ControlFiles, FileRequest};
pub(crate) use launch::{PlanPreview, SandboxPart, preview};
pub(crate) use processes::{ProgramCache, find_credentials, locate_program};
pub(crate) use request::MAX_TEXT_BYTES;
pub(crate) use start_up::event_log;
pub(crate) use status::RunStatus;
