//! Words that all folders share: names and ids, files written whole, locks, time and text.
//!
//! Nothing here knows about agents, processes or protocols.

#[path = "../store/fs.rs"]
mod files;
#[path = "../util/ids.rs"]
mod ids;
#[path = "../util/json_spans.rs"]
mod json_lines;
#[path = "../store/lock.rs"]
mod lock;
#[path = "../process/proc_stat.rs"]
mod process;
#[path = "../process/find_program.rs"]
mod program;
#[path = "../store/scratch.rs"]
mod scratch;
#[path = "../store/log_file.rs"]
mod shared_log;
#[path = "../util/text.rs"]
mod text;
#[path = "../util/time.rs"]
mod time;
#[path = "../store/copy_tree.rs"]
mod tree;

pub use files::{
    ReadRefused, ScratchDir, Staged, append_durably, append_line, check_writable,
    create_private_dir, read_bounded, read_inside, remove_file, set_aside, sweep_staged,
    write_atomic, write_project_file,
};
pub use ids::{AgentName, InvalidAgentName, RESERVED_MAIN, RunId};
pub use json_lines::{Lined, LinedMember, LinedValue, NotJson, parse_json_lines};
pub use lock::{FileLock, LockBusy};
pub use process::ProcessStat;
pub use program::find_program;
pub use scratch::{
    create_new_dir, make_private, remove_empty_dir, remove_tree, rename, write_new, write_program,
    write_volatile,
};
pub use shared_log::{SharedLog, SharedSnapshot, SharedTail, note_path, snapshot_shared_log};
pub use text::{nearest, one_line, shorten, shortened, without_controls};
pub use time::{Timestamp, now, parse_age};
pub use tree::copy_tree;
