//! `adjutant matrix`: permissions of all agents in one table, each cell with its rule.

mod agent_tools;
mod build;
mod command;
mod page;
mod table;

pub(crate) use agent_tools::{ServerTools, agent_tools};
pub(crate) use command::MatrixArguments;
