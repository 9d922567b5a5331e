//! Servers on the network: Streamable HTTP with every configured header and the token of its sign-in.
//!
//! Only redirects within the same origin are followed, so neither headers nor tokens nor a session id
//! ever reach another host.

use std::collections::HashMap;
use std::sync::{Arc, Once};
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, StatusCode, redirect};
use rmcp::RoleClient;
use rmcp::transport::common::client_side_sse::SseRetryPolicy;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, Transport};
use tokio::sync::watch;

use super::resolved::Network;
use super::sign_in::{Keeper, SignedClient};
use super::sse;
use super::untouched::Untouched;

const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
const MOST_REDIRECTS: usize = 10;
const RESUME_AFTER: [Duration; 3] =
    [Duration::from_millis(50), Duration::from_millis(200), Duration::from_millis(500)];

/// Prepares a connection; nothing is sent yet. The error is one line without secrets.
pub(super) fn connect(
    place: &Network,
    keeper: Option<Arc<Keeper>>,
) -> Result<impl Transport<RoleClient> + 'static + use<>, String> {
    let mut config = StreamableHttpClientTransportConfig::with_uri(place.url.as_str());
    config.custom_headers = headers(place)?;
    config.retry_config = Arc::new(Resuming);
    let client = SignedClient::new(Untouched(http_client()?), keeper);
    Ok(StreamableHttpClientTransport::with_client(client, config))
}

/// The same for a server that has the older transport alone; its stream is opened.
pub(super) async fn connect_events(
    server: Arc<str>,
    place: &Network,
    keeper: Option<Arc<Keeper>>,
    ended: watch::Sender<Option<String>>,
) -> Result<impl Transport<RoleClient> + 'static + use<>, String> {
    install_tls();
    let mut headers: HeaderMap = headers(place)?.into_iter().collect();
    // A token that expires ends the stream; the next one is opened with its successor.
    if let Some(keeper) = &keeper
        && let Some(token) = keeper.token().await?
    {
        headers.insert(AUTHORIZATION, bearer(&token)?);
    }
    let opened = sse::connect(server, &place.url, headers, ended).await;
    match opened {
        Ok(pipes) => Ok(pipes),
        Err(sse::Refused { reason, unauthorized }) => {
            if let Some(keeper) = keeper.filter(|_| unauthorized) {
                keeper.note_refusal();
            }
            Err(reason)
        }
    }
}

/// How often a stream that broke off is asked for again: long enough for a hiccup, and short enough that whoever waits for an
/// answer of a server that is gone is told so, rather than at the deadline.
#[derive(Debug)]
struct Resuming;

impl SseRetryPolicy for Resuming {
    fn retry(&self, attempts: usize) -> Option<Duration> {
        RESUME_AFTER.get(attempts).copied()
    }
}

/// As rmcp makes its own: without idle connections, which stall on Linux, and with redirects only
/// where the message arrives whole at the same origin.
pub(super) fn http_client() -> Result<Client, String> {
    install_tls();
    let same_origin = redirect::Policy::custom(|attempt| {
        let whole = [StatusCode::TEMPORARY_REDIRECT, StatusCode::PERMANENT_REDIRECT];
        let first = attempt.previous().first();
        let stays = first.is_some_and(|first| first.origin() == attempt.url().origin());
        if attempt.previous().len() > MOST_REDIRECTS {
            attempt.error("it redirects for ever")
        } else if stays && whole.contains(&attempt.status()) {
            attempt.follow()
        } else {
            attempt.stop()
        }
    });
    Client::builder()
        .pool_max_idle_per_host(0)
        .connect_timeout(CONNECT_PATIENCE)
        .redirect(same_origin)
        .build()
        .map_err(|_| "no HTTP client could be made".to_owned())
}

fn bearer(token: &str) -> Result<HeaderValue, String> {
    let value = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut value = value.map_err(|_| "its token is malformed".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

/// The configured headers.
pub(super) fn headers(place: &Network) -> Result<HashMap<HeaderName, HeaderValue>, String> {
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

/// Chooses what TLS is spoken with, once.
pub(super) fn install_tls() {
    static ONCE: Once = Once::new();
    // Another part of the program may have been first; either provider will do.
    ONCE.call_once(|| {
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}
