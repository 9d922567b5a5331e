//! Authentication of HTTP requests: Host, Origin and bearer token.

use axum::http::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri};

use super::options::HttpOptions;
use super::refusal::HttpRefusal;
use crate::identity::{Caller, TokenRejection, TokenStore};

/// Checks on the headers of every request, before its body is read.
#[derive(Debug)]
pub(crate) struct AuthLayer {
    hosts: Vec<String>,
    origins: Vec<String>,
    tokens: TokenStore,
    insecure_local: bool,
}

impl AuthLayer {
    pub(crate) fn new(options: &HttpOptions, tokens: TokenStore) -> Self {
        Self {
            hosts: options.accepted_hosts(),
            origins: options.accepted_origins(),
            tokens,
            insecure_local: options.insecure_local,
        }
    }

    /// Refuses an unknown Host or Origin.
    ///
    /// A web page can make a browser on this machine send both: by DNS rebinding, or by a cross-origin request.
    pub(crate) fn check_source(&self, headers: &HeaderMap) -> Result<(), HttpRefusal> {
        let host = single_value(headers, &HOST).ok().flatten().and_then(|host| host.parse().ok());
        let is_known = |host: &Authority| self.hosts.iter().any(|known| host_matches(known, host));
        if !host.is_some_and(|host| is_known(&host)) {
            return Err(HttpRefusal::Host);
        }
        match single_value(headers, &ORIGIN).map_err(|()| HttpRefusal::Origin)? {
            Some(origin) if !self.is_known_origin(origin) => Err(HttpRefusal::Origin),
            _ => Ok(()),
        }
    }

    /// Returns the caller that the bearer token names, or `None` without a token if `--insecure-local` is set.
    pub(crate) fn identify(&self, headers: &HeaderMap) -> Result<Option<Caller>, HttpRefusal> {
        match single_value(headers, &AUTHORIZATION).map_err(|()| HttpRefusal::WrongToken)? {
            None if self.insecure_local => Ok(None),
            None => Err(HttpRefusal::NoToken),
            Some(header) => self.authenticate(header).map(Some),
        }
    }

    /// Requires a token, even with `--insecure-local`.
    pub(crate) fn require_token(&self, headers: &HeaderMap) -> Result<(), HttpRefusal> {
        self.identify(headers)?.map(drop).ok_or(HttpRefusal::NoToken)
    }

    /// Returns the number of valid tokens; 0 if none is needed. The error says what is wrong with the file.
    pub(crate) fn usable_tokens(&self) -> Result<usize, String> {
        if self.insecure_local {
            return Ok(0);
        }
        self.tokens.unexpired_count().map_err(|error| error.to_string())
    }

    fn authenticate(&self, header: &str) -> Result<Caller, HttpRefusal> {
        let (scheme, token) = header.split_once(' ').ok_or(HttpRefusal::WrongToken)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(HttpRefusal::WrongToken);
        }
        self.tokens.authenticate(token.trim()).map_err(|refused| match refused {
            TokenRejection::Unknown => HttpRefusal::WrongToken,
            TokenRejection::Expired => HttpRefusal::ExpiredToken,
            TokenRejection::Unavailable { reason } => HttpRefusal::TokensUnavailable { reason },
        })
    }

    fn is_known_origin(&self, origin: &str) -> bool {
        let Ok(origin) = origin.parse::<Uri>() else { return false };
        self.origins.iter().any(|known| origin_matches(known, &origin))
    }
}

/// Returns the value of a header; an error if the header is repeated or not text.
fn single_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(drop),
        (Some(_), Some(_)) => Err(()),
    }
}

/// Compares a Host with a known one; a port in `known` must match too.
fn host_matches(known: &str, asked: &Authority) -> bool {
    let bare = |host: &str| host.trim_matches(['[', ']']).to_ascii_lowercase();
    if bare(known) == bare(asked.host()) {
        return true;
    }
    let Ok(known) = known.parse::<Authority>() else { return false };
    known.port().is_some()
        && known.port_u16() == asked.port_u16()
        && bare(known.host()) == bare(asked.host())
}

/// Compares an Origin with a known one; the port `:*` in `known` matches any port.
fn origin_matches(known: &str, asked: &Uri) -> bool {
    let any_port = known.strip_suffix(":*");
    let Ok(known) = any_port.unwrap_or(known).parse::<Uri>() else { return false };
    let host = |uri: &Uri| uri.host().map(str::to_ascii_lowercase);
    asked.scheme_str().is_some()
        && known.scheme_str() == asked.scheme_str()
        && host(&known) == host(asked)
        && (any_port.is_some() || effective_port(&known) == effective_port(asked))
}

/// Returns the port of an origin, or the default port of its scheme.
fn effective_port(origin: &Uri) -> Option<u16> {
    let usual = match origin.scheme_str() {
        Some("http") => Some(80),
        Some("https") => Some(443),
        _ => None,
    };
    origin.port_u16().or(usual)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use test_case::test_case;

    fn auth_layer() -> (tempfile::TempDir, AuthLayer) {
        let dir = tempfile::tempdir().unwrap();
        let mut options = HttpOptions::at("127.0.0.1:80").unwrap();
        options.allowed_hosts = vec!["mcp.example.com".into(), "other.example.com:8443".into()];
        options.allowed_origins = vec!["https://app.example.com".into()];
        let auth = AuthLayer::new(&options, TokenStore::new(dir.path()));
        (dir, auth)
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test_case("localhost:80", true)]
    #[test_case("LOCALHOST", true)]
    #[test_case("127.0.0.1:9999", true; "a tunnel has another port")]
    #[test_case("[::1]:80", true)]
    #[test_case("mcp.example.com", true)]
    #[test_case("other.example.com:8443", true)]
    #[test_case("other.example.com", false; "not by the port that was named")]
    #[test_case("evil.example.com", false)]
    #[test_case("localhost.evil.example.com", false)]
    #[test_case("user@localhost", true; "what stands before the host is no host")]
    #[test_case("", false; "empty")]
    fn j1_only_known_hosts_are_accepted(host: &str, good: bool) {
        let (_dir, auth) = auth_layer();
        assert_eq!(auth.check_source(&headers(&[("host", host)])).is_ok(), good);
    }

    #[test_case("http://localhost:3000", true)]
    #[test_case("http://127.0.0.1", true)]
    #[test_case("https://app.example.com", true)]
    #[test_case("https://app.example.com:443", true)]
    #[test_case("https://app.example.com:444", false)]
    #[test_case("http://app.example.com", false; "another scheme")]
    #[test_case("http://evil.example.com", false)]
    #[test_case("http://localhost.evil.example.com", false)]
    #[test_case("null", false; "the origin of a file or a sandbox")]
    #[test_case("", false; "empty origin")]
    fn j1_only_known_origins_are_accepted(origin: &str, good: bool) {
        let (_dir, auth) = auth_layer();
        let headers = headers(&[("host", "localhost"), ("origin", origin)]);
        assert_eq!(auth.check_source(&headers).is_ok(), good);
    }

    #[test]
    fn j1_a_repeated_header_is_refused() {
        let (_dir, auth) = auth_layer();
        let local = "http://localhost:80";
        let double = headers(&[("host", "localhost"), ("origin", local), ("origin", local)]);
        assert_eq!(auth.check_source(&double), Err(HttpRefusal::Origin));
        let double = headers(&[("host", "localhost"), ("host", "localhost")]);
        assert_eq!(auth.check_source(&double), Err(HttpRefusal::Host));
        assert_eq!(auth.check_source(&HeaderMap::new()), Err(HttpRefusal::Host));
    }
}
