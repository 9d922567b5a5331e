//! What a run needs of the call it belongs to, whichever request carries that at the moment.

use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::Extensions;
use rmcp::service::RequestContext;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::progress::Listener;
use crate::call::Asker;
use crate::identity::Caller;

/// The line to a caller.
#[derive(Clone)]
pub(super) struct Line {
    /// Who calls.
    pub(super) caller: Caller,
    /// The way to the person behind it.
    pub(super) asker: Arc<dyn Asker>,
    /// Cancelled when the caller no longer wants the answer.
    pub(super) cancel: CancellationToken,
    /// Who wants to hear of progress.
    pub(super) listener: watch::Receiver<Option<Listener>>,
    /// What the connection noted about who sent the call.
    pub(super) extensions: Extensions,
}

impl Line {
    /// The line of a call that is one request.
    pub(super) fn within(
        caller: Caller,
        asker: Arc<dyn Asker>,
        context: &RequestContext<RoleServer>,
    ) -> Self {
        let (_, listener) = watch::channel(Listener::of(context));
        let extensions = context.extensions.clone();
        Self { caller, asker, cancel: context.ct.clone(), listener, extensions }
    }
}
