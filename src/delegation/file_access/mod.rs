//! Decisions about file tools on control files: which files decide about agents, and which calls reach them.

mod control_files;
mod decision;
mod location;

pub(crate) use control_files::{ControlFile, ControlFileKind, ControlFiles};
pub(crate) use decision::FileRequest;
