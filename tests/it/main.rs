//! Integration tests of the documented behaviour: one file per subject.

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

#[macro_use]
mod support;

mod approval;
mod architecture;
mod attacks;
mod audit;
mod catalog;
mod claude_client;
mod clock;
mod command_line;
mod commands_of_agents;
mod conformance;
mod control_files;
mod cost_store;
mod delegation;
mod demo;
mod dependencies;
mod deploy;
mod documentation;
mod events;
mod exit_codes;
mod explain_calls;
mod extensions;
mod gateway;
mod gateway_real;
mod golden_stores;
mod hooks;
mod http;
mod http_clients;
mod identity;
mod init;
mod limits;
mod misbehaving_clients;
mod names;
mod outcomes;
mod output_contract;
mod policy;
mod policy_over_mcp;
mod private_servers;
mod processes;
mod progress;
mod project;
mod real_claude;
mod refusals;
#[cfg(target_os = "linux")]
mod sandbox;
mod serve;
mod session_commands;
mod session_store;
mod sessions;
mod shell_rules;
mod shipped_agents;
mod shipped_agents_live;
mod tables;

mod process_pool;
mod process_pool_faults;
