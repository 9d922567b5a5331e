//! Limit on open connections: a new connection closes the one that has been idle longest.
//!
//! A connection is idle until the whole request of an admitted caller has arrived, and again once the response has been
//! written. If new connections waited instead, one client could lock out all others: half a request header costs
//! nothing, and behind a proxy or on loopback all clients have one address.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::util::Mutex;

/// Open connections, at most `limit`.
pub(crate) struct ConnectionTable {
    limit: usize,
    shared: Arc<ConnectionTableShared>,
}

#[derive(Default)]
struct ConnectionTableShared {
    state: Mutex<ConnectionTableState>,
    /// Notified when a connection ends or becomes idle.
    freed: Notify,
}

#[derive(Default)]
struct ConnectionTableState {
    /// Last number given to a connection, or to a change to idle.
    counter: u64,
    connections: HashMap<u64, HttpConnection>,
    /// Ids of idle connections, by the number of their change to idle.
    idle: BTreeMap<u64, u64>,
}

struct HttpConnection {
    /// `None` while a request is in progress.
    idle_since: Option<u64>,
    /// Admitted requests whose response bodies hyper has not consumed yet.
    requests: u32,
    close: CancellationToken,
}

impl ConnectionTable {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, shared: Arc::default() }
    }

    /// Adds a connection. At the limit the longest idle connection is closed; if none is idle, waits until one is.
    pub(crate) async fn add(&self) -> OpenConnection {
        loop {
            if let Some(connection) = self.try_add() {
                return connection;
            }
            self.shared.freed.notified().await;
        }
    }

    fn try_add(&self) -> Option<OpenConnection> {
        let mut state = self.shared.state.lock();
        if state.connections.len() >= self.limit {
            let (_, id) = state.idle.pop_first()?;
            if let Some(connection) = state.connections.remove(&id) {
                tracing::debug!("too many connections: the longest idle one is closed");
                connection.close.cancel();
            }
        }
        let id = state.next_number();
        let close = CancellationToken::new();
        state.idle.insert(id, id);
        let connection = HttpConnection { idle_since: Some(id), requests: 0, close: close.clone() };
        state.connections.insert(id, connection);
        let shared = Arc::clone(&self.shared);
        Some(OpenConnection { shared, id, close, has_unflushed_response: AtomicBool::default() })
    }
}

impl ConnectionTableState {
    fn next_number(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }
}

/// A connection in the table; removed when dropped.
pub(crate) struct OpenConnection {
    shared: Arc<ConnectionTableShared>,
    id: u64,
    close: CancellationToken,
    /// A response body was consumed since the last flush.
    has_unflushed_response: AtomicBool,
}

impl OpenConnection {
    /// Waits until the connection must be closed for a new one; never happens during a request.
    pub(crate) async fn close_requested(&self) {
        self.close.cancelled().await;
    }

    /// Reports that all output has been written. Without a request in progress the connection is idle now.
    pub(crate) fn mark_flushed(&self) {
        if !self.has_unflushed_response.swap(false, Ordering::Relaxed) {
            return;
        }
        let mut state = self.shared.state.lock();
        let now = state.next_number();
        let Some(connection) = state.connections.get_mut(&self.id) else { return };
        if connection.requests == 0 && connection.idle_since.is_none() {
            connection.idle_since = Some(now);
            state.idle.insert(now, self.id);
            drop(state);
            self.shared.freed.notify_one();
        }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        let Some(connection) = state.connections.remove(&self.id) else { return };
        if let Some(since) = connection.idle_since {
            state.idle.remove(&since);
        }
        drop(state);
        self.shared.freed.notify_one();
    }
}

/// One request of a connection and its response.
pub(crate) struct HttpExchange {
    connection: Arc<OpenConnection>,
    is_admitted: AtomicBool,
}

impl HttpExchange {
    pub(crate) fn new(connection: Arc<OpenConnection>) -> Self {
        Self { connection, is_admitted: AtomicBool::default() }
    }

    /// Keeps the connection open until the response is written; `false` if it is already being closed.
    ///
    /// For complete requests of admitted callers only: a connection without one must stay closable.
    pub(crate) fn admit(&self) -> bool {
        let mut state = self.connection.shared.state.lock();
        let Some(connection) = state.connections.get_mut(&self.connection.id) else { return false };
        if !self.is_admitted.swap(true, Ordering::Relaxed) {
            connection.requests += 1;
            if let Some(since) = connection.idle_since.take() {
                state.idle.remove(&since);
            }
        }
        true
    }
}

impl Drop for HttpExchange {
    fn drop(&mut self) {
        if !*self.is_admitted.get_mut() {
            return;
        }
        let mut state = self.connection.shared.state.lock();
        if let Some(connection) = state.connections.get_mut(&self.connection.id) {
            connection.requests -= 1;
        }
        drop(state);
        self.connection.has_unflushed_response.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn add(table: &ConnectionTable) -> Arc<OpenConnection> {
        Arc::new(table.add().now_or_never().expect("a free place"))
    }

    fn is_closed(connection: &OpenConnection) -> bool {
        connection.close_requested().now_or_never().is_some()
    }

    fn serve(connection: &Arc<OpenConnection>) {
        let exchange = HttpExchange::new(Arc::clone(connection));
        assert!(exchange.admit());
        drop(exchange);
        connection.mark_flushed();
    }

    #[test]
    fn the_longest_idle_connection_is_closed_for_a_new_one() {
        let table = ConnectionTable::new(3);
        let [first, second, third] = [(); 3].map(|()| add(&table));
        serve(&first);
        let _fourth = add(&table);
        assert_eq!([&first, &second, &third].map(|c| is_closed(c)), [false, true, false]);
        let _fifth = add(&table);
        assert_eq!([&first, &third].map(|c| is_closed(c)), [false, true]);
    }

    #[test]
    fn a_connection_with_a_request_is_not_closed_until_its_response_is_written() {
        let table = ConnectionTable::new(1);
        let connection = add(&table);
        let exchange = HttpExchange::new(Arc::clone(&connection));
        assert!(exchange.admit());
        assert!(table.add().now_or_never().is_none());
        drop(exchange);
        assert!(table.add().now_or_never().is_none(), "the response is not written yet");
        connection.mark_flushed();
        let _next = add(&table);
        assert!(is_closed(&connection));
    }

    #[test]
    fn a_written_response_frees_nothing_while_the_next_request_is_in_progress() {
        let table = ConnectionTable::new(1);
        let connection = add(&table);
        let exchange = HttpExchange::new(Arc::clone(&connection));
        let next = HttpExchange::new(Arc::clone(&connection));
        assert!(exchange.admit() && next.admit());
        drop(exchange);
        connection.mark_flushed();
        assert!(table.add().now_or_never().is_none());
    }

    #[test]
    fn a_closing_connection_admits_no_request() {
        let table = ConnectionTable::new(1);
        let connection = add(&table);
        let _next = add(&table);
        assert!(!HttpExchange::new(connection).admit());
    }

    #[tokio::test]
    async fn a_closed_connection_frees_its_slot() {
        let table = ConnectionTable::new(1);
        let connection = add(&table);
        let exchange = HttpExchange::new(Arc::clone(&connection));
        assert!(exchange.admit());
        let mut adding = std::pin::pin!(table.add());
        assert!(adding.as_mut().now_or_never().is_none());
        drop((exchange, connection));
        adding.await;
    }
}
