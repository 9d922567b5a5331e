//! What users are promised, tested from outside: one file per subject.

mod support;
