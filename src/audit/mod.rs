//! The hash-chained audit log: entry, append, verify.
//!
//! Nothing here decides. An entry is in the file before the answer to its request is sent.

mod batch;
mod chain;
#[cfg(test)]
mod crash_tests;
mod entry;
mod log;
mod upgrade;
mod verify;

pub use entry::{ArgumentDetail, AuditEntry};
pub use log::{AuditLog, AuditOptions};

pub(crate) use batch::AuditBatcher;
pub(crate) use entry::escape_controls;
pub(crate) use log::AuditUnavailable;
pub(crate) use upgrade::upgrade_line;
pub(crate) use verify::{Verification, verify};
