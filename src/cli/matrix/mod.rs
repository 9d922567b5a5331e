//! `adjutant matrix`: what everybody can do, at a glance, each cell with its rule.

mod agent_tools;
mod build;
mod command;
mod page;
mod table;

pub(super) use agent_tools::{ServerTools, agent_tools};
pub(super) use command::{MatrixArguments, run};
