//! Requests of one stdio connection that have not ended, whichever way they are answered.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::jsonrpc::Id;
use crate::util::Mutex;

/// The active requests of one connection, by id; clones share one table.
///
/// An id stays in use until the work on its request has ended, also after a cancellation: otherwise the late result of
/// the cancelled request would answer the next request with that id.
#[derive(Clone, Default)]
pub(crate) struct ActiveRequests(Arc<Mutex<RequestTable>>);

#[derive(Default)]
struct RequestTable {
    by_id: HashMap<Id, ActiveRequest>,
    /// Set when the connection closes: no request is registered any more.
    is_closed: bool,
}

#[derive(Default)]
struct ActiveRequest {
    /// Cancels the work on the request; `None` before rmcp calls the handler.
    cancel_work: Option<CancellationToken>,
    /// Set when the client has cancelled the request: no response is sent.
    is_cancelled: bool,
}

impl ActiveRequests {
    /// Registers a request; `false` if its id is in use or the connection is closing.
    pub(crate) fn register(&self, id: &Id, work: Option<CancellationToken>) -> bool {
        let mut table = self.0.lock();
        if table.is_closed {
            return false;
        }
        let Entry::Vacant(place) = table.by_id.entry(id.clone()) else { return false };
        place.insert(ActiveRequest { cancel_work: work, is_cancelled: false });
        true
    }

    pub(crate) fn is_in_use(&self, id: &Id) -> bool {
        self.0.lock().by_id.contains_key(id)
    }

    /// Attaches the token that cancels rmcp's handler of a request; cancels the token if the client has already
    /// cancelled the request.
    pub(crate) fn attach_work(&self, id: &Id, work: &CancellationToken) {
        let mut table = self.0.lock();
        let Some(request) = table.by_id.get_mut(id) else { return };
        request.cancel_work = Some(work.clone());
        if request.is_cancelled {
            work.cancel();
        }
    }

    /// Cancels a request on behalf of the client; `false` if no active request has this id.
    pub(crate) fn cancel(&self, id: &Id) -> bool {
        let mut table = self.0.lock();
        let Some(request) = table.by_id.get_mut(id) else { return false };
        request.is_cancelled = true;
        request.cancel_work.iter().for_each(CancellationToken::cancel);
        true
    }

    /// Cancels all work; results that arrive before the writer closes are still sent.
    pub(crate) fn cancel_all(&self) {
        let mut table = self.0.lock();
        table.is_closed = true;
        let work = table.by_id.values().filter_map(|request| request.cancel_work.as_ref());
        work.for_each(CancellationToken::cancel);
    }

    /// Removes a request whose work has ended; `true` unless the client has cancelled it.
    pub(crate) fn remove(&self, id: &Id) -> bool {
        self.0.lock().by_id.remove(id).is_none_or(|request| !request.is_cancelled)
    }
}
