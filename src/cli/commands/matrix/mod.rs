//! `adjutant matrix`: permissions of all agents in one table, each cell with its rule.

mod build;
mod command;
mod page;

pub(crate) use build::{Matrix, MatrixFilter, MatrixRow, RowKind};
pub(crate) use command::MatrixArguments;
