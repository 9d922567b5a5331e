//! Adjutant: an MCP server that lets Claude Code delegate tasks to subagents with their own permissions.
//!
//! The binary is `adjutant`; the library exists for the integration tests and the benchmarks.
//!
//! The modules are listed bottom-up: a module imports only modules above it in this file. `docs/architecture.md` has
//! the purpose and the allowed imports of each, and `tests/it/architecture.rs` checks them.

// Base.
pub mod util;

pub mod api;

pub mod store;

pub mod config;

pub mod jsonrpc;

// Operating system.
pub mod process;

pub mod runs;

// Decisions.
pub mod identity;

pub mod catalog;

pub mod policy;

// Run of an agent.
pub mod plan;

pub mod claude;

pub mod outcome;

pub mod sessions;

// Records.
pub mod audit;

pub mod events;

pub mod costs;

pub mod telemetry;

pub mod egress;

// Orchestration.
pub mod gateway;

pub mod delegation;

// Clients and people.
pub mod server;

pub mod scripted_model;

pub mod cli;
