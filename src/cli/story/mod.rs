//! `adjutant runs show`: one run as text, as JSON, or as a page.

mod page;
mod show;
mod text;
mod timing;

pub(super) use show::{ShowRun, recent, show};
