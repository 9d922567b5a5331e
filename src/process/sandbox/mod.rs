//! A sandbox for one process: its description, and how bubblewrap sets it up.
//!
//! `supervisor → bwrap → adjutant __relay (pid 1) → adjutant __confine → program`. The process that the supervisor starts
//! is `adjutant __sandbox`, which turns the description into options and files for bwrap and executes it. The relay
//! forwards loopback ports to Unix sockets and reaps orphans; `__confine` drops what the program must not have.

mod bwrap;
mod confine;
mod path_state;
mod probe;
mod relay;
pub(crate) mod seccomp;
mod spec;

pub use bwrap::sandboxed;
pub use path_state::PathState;
pub use probe::{SandboxRefusal, find_bwrap, probe};
pub use spec::{
    Mount, MountKind, Placeholder, PortForward, SandboxLimits, SandboxSpec, SandboxVariable,
};

pub(super) use bwrap::run as run_sandbox;
pub(super) use confine::run as run_confine;
pub(super) use relay::run as run_relay;
