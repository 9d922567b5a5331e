//! Pure helpers without a subject: names and ids, text, time, globs, redaction.
//!
//! Nothing here starts a process or knows an agent or a protocol.

mod glob;
mod ids;
mod json_spans;
mod line_reader;
mod rate_limiter;
mod redact;
mod sync;
mod text;
mod time;

pub use ids::RunId;
pub use time::now;

pub(crate) use glob::Pattern;
pub(crate) use ids::{AgentName, InvalidAgentName, RESERVED_MAIN};
pub(crate) use json_spans::{
    JsonSyntaxError, SpannedKind, SpannedMember, SpannedValue, parse_spanned_json,
};
pub(crate) use line_reader::{LineReader, ReadLine};
pub(crate) use rate_limiter::RateLimiter;
pub(crate) use redact::{Redactor, is_secret_name};
pub(crate) use sync::{Mutex, run_blocking};
pub(crate) use text::{nearest_names, one_line, shorten, shorten_cow, strip_control_chars};
pub(crate) use time::{Timestamp, parse_age};
