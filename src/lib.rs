//! Adjutant hands work from a main agent to specialists with rights of their own.
//!
//! # Layout
//!
//! A folder is a step of a call; they stand here in the order a call meets them.
//! `docs/architecture.md` says what each may import, and `tests/it/architecture.rs` holds it to that.
//!
//! ```text
//! server ▶ call ▶ identity ▶ catalog ▶ policy ▶ plan ▶ worker + claude ▶ outcome ▶ sessions ▶ record
//! ```

pub mod base;
pub mod config;

pub mod catalog;
pub mod identity;
pub mod policy;

pub mod plan;

pub mod claude;
pub mod worker;

pub mod outcome;
pub mod sessions;

pub mod record;

pub mod gateway;

pub mod call;
pub mod server;

pub mod scripted;

pub mod cli;
