//! `adjutant demo`: a whole delegation, seen from outside, with nothing to set up.

#[path = "../commands/demo/command.rs"]
mod act;
#[path = "../commands/demo/cast.rs"]
mod cast;
#[path = "../commands/demo/install.rs"]
mod install;
#[path = "../commands/demo/page.rs"]
mod page;
#[path = "../commands/demo/play.rs"]
mod play;
#[path = "../commands/demo/project.rs"]
mod scene;
#[path = "../commands/demo/stand_in.rs"]
mod stand_in;

pub(super) use act::{DemoArguments, run};
pub(super) use stand_in::hidden_command;
