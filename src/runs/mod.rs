//! Runs in progress: registry, directories, limits on concurrent runs, remnants of crashed servers.
//!
//! Nothing here knows policy or MCP.

mod admission;
mod crash_remnants;
mod machine_limit;
#[cfg(target_os = "linux")]
mod placeholders;
mod run_dir;
mod run_registry;
mod startup_limiter;
mod stop;

pub use crash_remnants::{CrashRemnant, clean_up, kill_remnants_of};
pub use run_dir::RunDir;
pub use run_registry::{RunEntry, RunProgress, RunRegistry};

pub(crate) use admission::{Admission, AdmissionCounts, AdmissionLimits, Permit};
pub(crate) use crash_remnants::kill_remnants_with;
pub(crate) use machine_limit::MachineLimit;
#[cfg(target_os = "linux")]
pub(crate) use placeholders::{PlaceholderLease, Placeholders};
pub(crate) use run_registry::RunRegistration;
pub(crate) use startup_limiter::StartupLimiter;
pub(crate) use stop::{StopOutcome, stop_run};
