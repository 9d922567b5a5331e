//! Code that several benchmarks share. It uses no name of the library, so that renames in `src/` do not affect it;
//! `delegation.rs` needs `tests/it/support` and is declared by the benchmarks that start agents.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "each benchmark uses a part of it, and reports failures by panicking"
)]

pub mod client;
pub mod execute_tool;
pub mod http_gateway;
pub mod startup;
pub mod statistics;
pub mod wire;
