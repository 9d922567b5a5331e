//! One file or folder per command.

pub(crate) mod audit;
pub(crate) mod auth;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod costs;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod extensions;
pub(crate) mod gateway;
pub(crate) mod hook;
pub(crate) mod init;
pub(crate) mod list;
pub(crate) mod matrix;
pub(crate) mod new;
pub(crate) mod plan;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod schema;
pub(crate) mod serve;
pub(crate) mod sessions;
pub(crate) mod show;
pub(crate) mod stats;
pub(crate) mod token;
pub(crate) mod trust;

pub(crate) use audit::audit_options;
