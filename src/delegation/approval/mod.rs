//! Approval by a person: the question, the answer, and what an answer covers.

mod broker;
mod grant;
mod prompt;

pub use prompt::NoApprover;

pub(crate) use broker::{ApprovalBroker, ApprovalResult};
pub(crate) use prompt::{
    ApprovalAnswer, ApprovalFuture, ApprovalPrompt, ApprovalQuestion, CHOICES,
};
