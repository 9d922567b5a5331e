//! Web page on loopback that the agents of the demo fetch, so that no network is needed.

use std::io;
use std::net::Ipv4Addr;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

/// Content of the page, which an agent can know only by fetching it.
pub(crate) const SECRET: &str = "the harbour master's cat is called Nelson";

/// A web server with one page on loopback; stopped when dropped.
pub(crate) struct DemoPage {
    pub(crate) url: String,
    serving: AbortHandle,
}

impl DemoPage {
    pub(crate) async fn serve() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}/news.txt", listener.local_addr()?);
        let text = format!("News of the day: {SECRET}.\n");
        let router = Router::new().route("/news.txt", get(move || async move { text }));
        let serving = tokio::spawn(async move {
            // An error is irrelevant: the demo checks that the content of the page came back.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { url, serving: serving.abort_handle() })
    }
}

impl Drop for DemoPage {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
