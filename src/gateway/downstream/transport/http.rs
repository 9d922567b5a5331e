//! Streamable HTTP client with the configured headers and the OAuth token.
//!
//! Only redirects within the same origin are followed, so headers, tokens and session ids never reach another host.

use std::collections::HashMap;
use std::error::Error;
use std::iter;
use std::sync::{Arc, Once};
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, StatusCode, redirect};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::SseRetryPolicy;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use tokio::sync::watch;

use super::http_stream::{self, HttpSink, HttpStream};
use super::raw_http_client::RawHttpClient;
use super::sse::{self, SsePipes};
use crate::gateway::config::HttpEndpoint;
use crate::gateway::oauth::TokenSource;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_REDIRECTS: usize = 10;
const RESUME_DELAYS: [Duration; 3] =
    [Duration::from_millis(50), Duration::from_millis(200), Duration::from_millis(500)];

/// Creates a Streamable HTTP connection; sends nothing yet. The error is one line without secrets.
pub(crate) fn connect_streamable(
    place: &HttpEndpoint,
    token_source: Option<Arc<TokenSource>>,
) -> Result<(HttpSink, HttpStream), String> {
    let mut config = StreamableHttpClientTransportConfig::with_uri(place.url.as_str());
    config.custom_headers = configured_headers(place)?;
    config.retry_config = Arc::new(ResumePolicy);
    let client = RawHttpClient { http: http_client()?, token_source };
    Ok(http_stream::split(StreamableHttpClientTransport::with_client(client, config)))
}

/// Opens an HTTP+SSE transport, for servers without Streamable HTTP.
pub(crate) async fn connect_sse(
    place: &HttpEndpoint,
    token_source: Option<Arc<TokenSource>>,
    ended: watch::Sender<Option<String>>,
) -> Result<SsePipes, String> {
    install_tls_provider();
    let mut headers: HeaderMap = configured_headers(place)?.into_iter().collect();
    // An expired token ends the stream; the next connection gets a new token.
    if let Some(token_source) = &token_source
        && let Some(token) = token_source.token().await?
    {
        headers.insert(AUTHORIZATION, bearer_header(&token)?);
    }
    let opened = sse::connect(&place.url, headers, ended).await;
    opened.map_err(|error| {
        if let Some(token_source) = token_source.filter(|_| error.unauthorized) {
            token_source.note_sign_in_needed();
        }
        error.reason
    })
}

/// Delays before a broken event stream is resumed: 50 ms, 200 ms, 500 ms, then failure.
///
/// Enough for a short interruption; calls to a server that is gone fail before their deadline.
#[derive(Debug)]
struct ResumePolicy;

impl SseRetryPolicy for ResumePolicy {
    fn retry(&self, attempts: usize) -> Option<Duration> {
        RESUME_DELAYS.get(attempts).copied()
    }
}

/// Creates an HTTP client without idle connections, which stall on Linux, as rmcp does for its own.
///
/// Follows at most 10 redirects, only 307 and 308 (which keep method and body) within the same origin.
pub(crate) fn http_client() -> Result<Client, String> {
    install_tls_provider();
    let same_origin = redirect::Policy::custom(|attempt| {
        let whole = [StatusCode::TEMPORARY_REDIRECT, StatusCode::PERMANENT_REDIRECT];
        let first = attempt.previous().first();
        let stays = first.is_some_and(|first| first.origin() == attempt.url().origin());
        if attempt.previous().len() > MAX_REDIRECTS {
            attempt.error("it redirects for ever")
        } else if stays && whole.contains(&attempt.status()) {
            attempt.follow()
        } else {
            attempt.stop()
        }
    });
    Client::builder()
        .pool_max_idle_per_host(0)
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(same_origin)
        .build()
        .map_err(|_| "no HTTP client could be made".to_owned())
}

/// Describes an error and its causes, without URLs.
pub(crate) fn describe_transport_error(error: &dyn Error) -> String {
    remove_urls(&error_chain(error))
}

/// Returns the message of an error and of all its causes.
fn error_chain(error: &dyn Error) -> String {
    let causes = iter::successors(error.source(), |&cause| cause.source()).map(ToString::to_string);
    causes.fold(error.to_string(), |text, cause| match text.contains(&cause) {
        true => text,
        false => format!("{text}: {cause}"),
    })
}

/// Removes the URLs that reqwest adds to its errors: a URL can contain a secret.
fn remove_urls(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, from)) = rest.split_once(" for url (") {
        out.push_str(before);
        rest = from.split_once(')').map_or("", |(_, behind)| behind);
    }
    out.push_str(rest);
    out
}

fn bearer_header(token: &str) -> Result<HeaderValue, String> {
    let value = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut value = value.map_err(|_| "its token is malformed".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

/// Parses the configured headers.
pub(crate) fn configured_headers(
    place: &HttpEndpoint,
) -> Result<HashMap<HeaderName, HeaderValue>, String> {
    let parsed = place.headers.iter().map(|(name, value)| {
        let parsed = name.parse().ok().zip(value.parse::<HeaderValue>().ok());
        let (name, mut value) =
            parsed.ok_or_else(|| format!("its header `{name}` is malformed"))?;
        // Hides the value from `Debug` output of headers.
        value.set_sensitive(true);
        Ok((name, value))
    });
    parsed.collect()
}

/// Installs the TLS provider `ring` once per process.
pub(crate) fn install_tls_provider() {
    static ONCE: Once = Once::new();
    // Another component may have installed a provider; either will do.
    ONCE.call_once(|| {
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_removed_from_errors() {
        let text = "error sending request for url (http://h/?key=s3cret): refused";
        assert_eq!(remove_urls(text), "error sending request: refused");
    }
}
