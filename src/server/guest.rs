//! Who a request over HTTP comes from, as its connection's guard found out. Travels with the request.

use std::sync::Arc;

use axum::http::request::Parts;
use rmcp::model::Extensions;

use super::http::{RunSlot, RunSlots};
use crate::identity::Caller;
use crate::outcome::{Code, Failure};

/// Somebody who came in over HTTP.
#[derive(Clone, Debug)]
pub(super) struct Guest {
    /// The name that the token was made for; nobody where tokens are not asked for.
    pub(super) caller: Option<Caller>,
    /// How many runs it may have at once.
    pub(super) runs: Arc<RunSlots>,
}

impl Guest {
    /// The guest behind a request; `None` on stdio.
    fn of(extensions: &Extensions) -> Option<&Self> {
        extensions.get::<Parts>()?.extensions.get::<Self>()
    }

    /// What is known for sure about who sent a request over HTTP.
    pub(super) fn caller(extensions: &Extensions) -> Option<Caller> {
        Self::of(extensions)?.caller.clone()
    }

    /// A place among the runs of whoever sent a request; nobody counts those of stdio.
    pub(super) fn run_slot(extensions: &Extensions) -> Result<Option<RunSlot>, Failure> {
        let Some(guest) = Self::of(extensions) else { return Ok(None) };
        guest.runs.take().map(Some).map_err(too_many)
    }
}

fn too_many(most: u32) -> Failure {
    let runs = if most == 1 { "run" } else { "runs" };
    let message = format!("this caller has {most} {runs} going on, as many as it may have at once");
    Failure::new(Code::TooManyRuns, message, "try again as soon as one of them has answered")
}
