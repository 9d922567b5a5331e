//! The page that the agents are to fetch: on this machine, so that the demo needs no network.

use std::io;
use std::net::Ipv4Addr;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

/// What the page says, and nobody can know without fetching it.
pub(super) const SECRET: &str = "the harbour master's cat is called Nelson";

/// A page on loopback, gone when dropped.
pub(super) struct Page {
    pub(super) url: String,
    serving: AbortHandle,
}

impl Page {
    pub(super) async fn serve() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}/news.txt", listener.local_addr()?);
        let text = format!("News of the day: {SECRET}.\n");
        let router = Router::new().route("/news.txt", get(move || async move { text }));
        let serving = tokio::spawn(async move {
            // A server on loopback ends with the demo; there is nobody to tell.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { url, serving: serving.abort_handle() })
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
