//! `adjutant matrix`: what everybody can do, at a glance, each cell with its rule.

#[path = "../commands/matrix/agent_tools.rs"]
mod agent_tools;
#[path = "../commands/matrix/build.rs"]
mod build;
#[path = "../commands/matrix/command.rs"]
mod command;
#[path = "../commands/matrix/page.rs"]
mod page;
#[path = "../commands/matrix/table.rs"]
mod table;

pub(super) use agent_tools::{ServerTools, agent_tools};
pub(super) use command::{MatrixArguments, run};
