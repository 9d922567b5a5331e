//! The Messages API outside of the sandbox, with everything a request to it needs.

use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Certificate, Client, NoProxy, Proxy, Response, redirect};

use super::http_request::RequestHead;
use super::model_credential::{ModelCredential, ModelLogin};
use crate::store::read_bounded;

const DEFAULT_BASE_URL: &str = "https://api.anthropic.com";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_CA_BYTES: u64 = 4 << 20;

/// Files with certificates that are trusted besides those of the system. `SSL_CERT_FILE` replaces the system's and is
/// read by the TLS library.
const CA_VARIABLES: [&str; 1] = ["NODE_EXTRA_CA_CERTS"];

/// Headers that are never forwarded: credentials of the client, and those between the client and the proxy.
const DROPPED: [&str; 13] = [
    "x-api-key",
    "authorization",
    "cookie",
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "proxy-connection",
];

/// The Messages API, as reached from outside.
#[derive(Debug)]
pub struct ModelUpstream {
    client: Client,
    /// Without a slash at the end.
    base_url: String,
    custom_headers: HeaderMap,
    pub(super) credential: ModelCredential,
}

impl ModelUpstream {
    /// Takes address, proxies, certificates and additional headers from the variables of Adjutant's environment.
    pub fn from_environment(
        lookup: impl Fn(&str) -> Option<String>,
        login: ModelLogin,
    ) -> Result<Self, String> {
        let value = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let base_url = value("ANTHROPIC_BASE_URL").unwrap_or_else(|| DEFAULT_BASE_URL.to_owned());
        let base_url = base_url.trim_end_matches('/').to_owned();
        let is_http = base_url.starts_with("https://") || base_url.starts_with("http://");
        if !is_http || base_url.contains(['?', '#']) {
            return Err("ANTHROPIC_BASE_URL is not an address that begins with http".to_owned());
        }
        let custom_headers =
            parse_custom_headers(&value("ANTHROPIC_CUSTOM_HEADERS").unwrap_or_default())?;
        let client = build_client(&value)?;
        Ok(Self { client, base_url, custom_headers, credential: ModelCredential::new(login) })
    }

    /// Sends a request with the real credential. `target` is one of the paths that the proxy allows.
    pub(super) async fn send(
        &self,
        head: &RequestHead,
        body: Vec<u8>,
        credential: Vec<(&'static str, String)>,
    ) -> Result<Response, String> {
        let mut headers = forwarded_headers(head)?;
        for (name, value) in &self.custom_headers {
            headers.insert(name, value.clone());
        }
        for (name, value) in credential {
            let mut value = HeaderValue::try_from(value)
                .map_err(|_| "the credential has characters that no header may have".to_owned())?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(name), value);
        }
        let url = format!("{}{}", self.base_url, head.target);
        let sent = self.client.post(url).headers(headers).body(body).send().await;
        // Without the address: it may contain a secret.
        sent.map_err(|error| describe(&error.without_url()))
    }
}

fn build_client(value: &impl Fn(&str) -> Option<String>) -> Result<Client, String> {
    // An error means that a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let either = |name: &str| value(name).or_else(|| value(&name.to_uppercase()));
    let not_for = NoProxy::from_string(&either("no_proxy").unwrap_or_default());
    let malformed = |_| "the address in HTTPS_PROXY or HTTP_PROXY is malformed".to_owned();
    let mut builder = Client::builder()
        .no_proxy()
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(redirect::Policy::none());
    if let Some(proxy) = either("https_proxy").or_else(|| either("all_proxy")) {
        builder = builder.proxy(Proxy::https(proxy).map_err(malformed)?.no_proxy(not_for.clone()));
    }
    if let Some(proxy) = either("http_proxy") {
        builder = builder.proxy(Proxy::http(proxy).map_err(malformed)?.no_proxy(not_for));
    }
    for name in CA_VARIABLES {
        let Some(file) = value(name) else { continue };
        let unusable =
            |error: String| format!("the certificates of {name} cannot be used: {error}");
        let pem = read_bounded(file.as_ref(), MAX_CA_BYTES).map_err(|e| unusable(e.to_string()))?;
        let certificates =
            Certificate::from_pem_bundle(&pem).map_err(|error| unusable(error.to_string()))?;
        builder = builder.tls_certs_merge(certificates);
    }
    builder.build().map_err(|error| format!("no HTTP client could be made: {error}"))
}

/// Parses `ANTHROPIC_CUSTOM_HEADERS`: one `Name: value` per line.
fn parse_custom_headers(text: &str) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let malformed = || "a line of ANTHROPIC_CUSTOM_HEADERS is not `Name: value`".to_owned();
        let (name, value) = line.split_once(':').ok_or_else(malformed)?;
        let name: HeaderName = name.trim().parse().map_err(|_| malformed())?;
        let mut value: HeaderValue = value.trim().parse().map_err(|_| malformed())?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Returns the headers of the client that the model receives.
fn forwarded_headers(head: &RequestHead) -> Result<HeaderMap, String> {
    let hop_by_hop: Vec<String> = head.connection_options().collect();
    let mut headers = HeaderMap::new();
    for (name, value) in &head.headers {
        if DROPPED.contains(&name.as_str())
            || name.starts_with("proxy-")
            || hop_by_hop.contains(name)
        {
            continue;
        }
        let refused = || "a header cannot be forwarded".to_owned();
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refused())?;
        headers.append(name, HeaderValue::from_bytes(value).map_err(|_| refused())?);
    }
    Ok(headers)
}

/// Returns the message of an error and of its causes.
fn describe(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_and_headers_named_by_connection_are_not_forwarded() {
        let head = "POST /v1/messages HTTP/1.1\r\nHost: evil\r\nX-Api-Key: fake\r\nAuthorization: Bearer fake\r\n\
            Cookie: a\r\nConnection: X-Hop, anthropic-version\r\nX-Hop: 1\r\nProxy-Authorization: x\r\nUpgrade: h2c\r\n\
            Expect: 100-continue\r\nanthropic-beta: a\r\nanthropic-beta: b\r\nanthropic-version: 1\r\n\r\n";
        let head = RequestHead::parse(head.as_bytes()).unwrap();
        let headers = forwarded_headers(&head).unwrap();
        let names: Vec<_> = headers
            .iter()
            .map(|(name, value)| format!("{name}={}", value.to_str().unwrap()))
            .collect();
        assert_eq!(names, ["anthropic-beta=a", "anthropic-beta=b"]);
    }

    #[test]
    fn custom_headers_are_lines() {
        let headers = parse_custom_headers("X-Team: a: b\n\n X-Other:c\n").unwrap();
        assert_eq!(
            (headers["x-team"].as_bytes(), headers["x-other"].as_bytes()),
            (&b"a: b"[..], &b"c"[..])
        );
        assert!(parse_custom_headers("no colon").is_err());
    }

    #[test]
    fn a_malformed_environment_is_refused() {
        let with = |name: &'static str, value: &'static str| {
            let lookup = move |wanted: &str| (wanted == name).then(|| value.to_owned());
            ModelUpstream::from_environment(lookup, ModelLogin::OauthToken("t".into())).map(|_| ())
        };
        assert!(with("ANTHROPIC_BASE_URL", "ftp://x").is_err());
        assert!(with("ANTHROPIC_BASE_URL", "http://x/?a").is_err());
        assert!(with("NODE_EXTRA_CA_CERTS", "/nowhere.pem").is_err());
        assert!(with("ANTHROPIC_BASE_URL", "http://x/prefix/").is_ok());
    }
}
