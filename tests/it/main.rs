//! What users are promised, tested from outside: one file per subject.

#![allow(
    unreachable_pub,
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::needless_pass_by_value,
    reason = "a test says what it found by panicking"
)]

mod approval;
mod architecture;
mod audit;
mod catalog;
mod clock;
mod command_line;
mod conformance;
#[path = "claude_client.rs"]
mod conversation;
mod cost_store;
mod delegation;
mod demo;
mod dependencies;
mod deploy;
mod events;
mod extensions;
mod gateway;
mod gateway_real;
mod hooks;
#[path = "attacks.rs"]
mod hostile;
mod http;
mod http_clients;
mod identity;
mod init;
mod limits;
#[path = "misbehaving_clients.rs"]
mod odd_clients;
mod outcomes;
mod policy;
mod policy_over_mcp;
mod private_servers;
mod processes;
#[path = "documentation.rs"]
mod readme;
mod real_claude;
mod refusals;
mod serve;
mod session_commands;
mod session_store;
mod sessions;
mod shell_rules;
#[path = "shipped_agents.rs"]
mod shipped;
#[path = "shipped_agents_live.rs"]
mod shipped_live;

mod support;
#[path = "process_pool.rs"]
mod warm;
#[path = "process_pool_faults.rs"]
mod warm_faults;
