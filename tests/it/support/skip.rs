//! Tests that need an external part, which may be missing on a developer's machine.

use std::fmt::Display;
use std::io::Write;
use std::{env, io, thread};

/// Returns the external part. If it is missing, says so on stderr for each test that is skipped, and fails if `CI` is set.
#[track_caller]
pub fn or_skip<T>(part: Result<T, impl Display>) -> Option<T> {
    part.map_err(|missing| skip(missing)).ok()
}

/// Says on stderr that this test, or a part of it, is skipped, and what is missing for it. Fails if `CI` is set.
#[track_caller]
pub fn skip(missing: impl Display) {
    assert!(env::var_os("CI").is_none(), "no test may be skipped in CI: {missing}");
    let thread = thread::current();
    let test = thread.name().unwrap_or_default();
    // `eprintln!` would be captured: the harness shows the output of failed tests only.
    let _ = writeln!(io::stderr(), "SKIPPED {test}: {missing}");
}
