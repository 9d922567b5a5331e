//! Servers on the network: Streamable HTTP with every configured header.
//!
//! rmcp's own HTTP client is used: it follows only redirects within the same origin, so neither
//! headers nor a session id ever reach another host.

use std::collections::HashMap;
use std::sync::{Arc, Once};

use reqwest::header::{HeaderName, HeaderValue};
use rmcp::RoleClient;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, Transport};
use tokio::sync::watch;

use super::resolved::Network;
use super::sse;

/// Prepares a connection; nothing is sent yet. The error is one line without secrets.
pub(super) fn connect(
    place: &Network,
) -> Result<impl Transport<RoleClient> + 'static + use<>, String> {
    install_tls();
    let mut config = StreamableHttpClientTransportConfig::with_uri(place.url.as_str());
    config.custom_headers = headers(place)?;
    Ok(StreamableHttpClientTransport::from_config(config))
}

/// The same for a server that has the older transport alone; its stream is opened.
pub(super) async fn connect_events(
    server: Arc<str>,
    place: &Network,
    ended: watch::Sender<Option<String>>,
) -> Result<impl Transport<RoleClient> + 'static + use<>, String> {
    install_tls();
    let headers = headers(place)?.into_iter().collect();
    sse::connect(server, &place.url, headers, ended).await
}

fn headers(place: &Network) -> Result<HashMap<HeaderName, HeaderValue>, String> {
    let parsed = place.headers.iter().map(|(name, value)| {
        let parsed = name.parse().ok().zip(value.parse::<HeaderValue>().ok());
        let (name, mut value) =
            parsed.ok_or_else(|| format!("its header `{name}` is malformed"))?;
        // Its own type keeps it out of whatever prints headers.
        value.set_sensitive(true);
        Ok((name, value))
    });
    parsed.collect()
}

fn install_tls() {
    static ONCE: Once = Once::new();
    // Another part of the program may have been first; either provider will do.
    ONCE.call_once(|| {
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}
