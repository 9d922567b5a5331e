//! `adjutant runs show`: one run as text, as JSON, or as a page.

#[path = "../commands/runs_show/page.rs"]
mod page;
#[path = "../commands/runs_show/command.rs"]
mod show;
#[path = "../commands/runs_show/text.rs"]
mod text;
#[path = "../commands/runs_show/timing.rs"]
mod timing;

pub(super) use show::{ShowRun, recent, show};
