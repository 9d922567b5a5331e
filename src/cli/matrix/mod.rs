//! `adjutant matrix`: what everybody can do, at a glance, each cell with its rule.

mod build;
mod command;
mod page;
mod table;

pub(super) use command::{MatrixArguments, run};
