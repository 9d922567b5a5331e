//! Who is calling, and how that is known.

mod caller;

pub use caller::{Caller, KnownBy};
