//! Servers on the network: Streamable HTTP with every configured header.
//!
//! rmcp's own HTTP client is used: it follows only redirects within the same origin, so neither
//! headers nor a session id ever reach another host.

use std::collections::HashMap;
use std::sync::Once;

use rmcp::RoleClient;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, Transport};

use super::resolved::Network;
use super::server_config::Wire;

/// Prepares a connection; nothing is sent yet. The error is one line without secrets.
pub(super) fn connect(
    place: &Network,
) -> Result<impl Transport<RoleClient> + 'static + use<>, String> {
    if place.wire == Wire::Sse {
        return Err("it speaks the old HTTP+SSE transport, which is not supported; use its Streamable HTTP address".to_owned());
    }
    install_tls();
    let mut headers = HashMap::new();
    for (name, value) in &place.headers {
        let parsed = name.parse().ok().zip(value.parse().ok());
        let (name, value) = parsed.ok_or_else(|| format!("its header `{name}` is malformed"))?;
        headers.insert(name, value);
    }
    let mut config = StreamableHttpClientTransportConfig::with_uri(place.url.as_str());
    config.custom_headers = headers;
    Ok(StreamableHttpClientTransport::from_config(config))
}

fn install_tls() {
    static ONCE: Once = Once::new();
    // Another part of the program may have been first; either provider will do.
    ONCE.call_once(|| {
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}
