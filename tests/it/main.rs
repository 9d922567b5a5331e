//! What users are promised, tested from outside: one file per subject.

#[allow(dead_code, reason = "the tests that use all of it land one by one")]
mod support;
