//! The guard at the door: where a request comes from, and who sent it.

use axum::http::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri};

use super::options::HttpOptions;
use super::refusal::Refusal;
use crate::identity::{Bearer, TokenBook, TokenRefused};

/// What is asked of every request before anything of it is read.
#[derive(Debug)]
pub(super) struct Guard {
    hosts: Vec<String>,
    origins: Vec<String>,
    tokens: TokenBook,
    open: bool,
}

impl Guard {
    pub(super) fn new(options: &HttpOptions, tokens: TokenBook) -> Self {
        Self {
            hosts: options.hosts(),
            origins: options.origins(),
            tokens,
            open: options.insecure_local,
        }
    }

    /// Refuses a request that calls us by a foreign name, or that a foreign page sent: a browser on this machine
    /// can be made to do both.
    pub(super) fn check_source(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let host = single(headers, &HOST).map_err(|()| Refusal::Host)?.ok_or(Refusal::Host)?;
        let authority: Authority = host.parse().map_err(|_| Refusal::Host)?;
        if !self.hosts.iter().any(|known| is_host(known, &authority)) {
            return Err(Refusal::Host);
        }
        match single(headers, &ORIGIN).map_err(|()| Refusal::Origin)? {
            Some(origin) if !self.knows_origin(origin) => Err(Refusal::Origin),
            _ => Ok(()),
        }
    }

    /// Who sent it. Nobody in particular, where tokens are not asked for.
    pub(super) fn identify(&self, headers: &HeaderMap) -> Result<Option<Bearer>, Refusal> {
        match single(headers, &AUTHORIZATION).map_err(|()| Refusal::WrongToken)? {
            None if self.open => Ok(None),
            None => Err(Refusal::NoToken),
            Some(header) => self.bearer(header).map(Some),
        }
    }

    /// The same for what asks for a token even where callers need none.
    pub(super) fn require_token(&self, headers: &HeaderMap) -> Result<Bearer, Refusal> {
        self.identify(headers)?.ok_or(Refusal::NoToken)
    }

    /// How many tokens are good now.
    pub(super) fn usable_tokens(&self) -> usize {
        self.tokens.usable()
    }

    fn bearer(&self, header: &str) -> Result<Bearer, Refusal> {
        let (scheme, token) = header.split_once(' ').ok_or(Refusal::WrongToken)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(Refusal::WrongToken);
        }
        self.tokens.bearer(token.trim()).map_err(|refused| match refused {
            TokenRefused::Unknown => Refusal::WrongToken,
            TokenRefused::Expired => Refusal::ExpiredToken,
        })
    }

    fn knows_origin(&self, origin: &str) -> bool {
        let Ok(origin) = origin.parse::<Uri>() else { return false };
        self.origins.iter().any(|known| is_origin(known, &origin))
    }
}

/// The header's value; an error where it stands there twice or is no text.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(drop),
        (Some(_), Some(_)) => Err(()),
    }
}

/// `known` is a host, or a host with the port that must be named with it.
fn is_host(known: &str, asked: &Authority) -> bool {
    let bare = |host: &str| host.trim_matches(['[', ']']).to_ascii_lowercase();
    if bare(known) == bare(asked.host()) {
        return true;
    }
    let Ok(known) = known.parse::<Authority>() else { return false };
    known.port().is_some()
        && known.port_u16() == asked.port_u16()
        && bare(known.host()) == bare(asked.host())
}

/// `known` is an origin; `:*` in the place of its port stands for any.
fn is_origin(known: &str, asked: &Uri) -> bool {
    let any_port = known.strip_suffix(":*");
    let Ok(known) = any_port.unwrap_or(known).parse::<Uri>() else { return false };
    let host = |uri: &Uri| uri.host().map(str::to_ascii_lowercase);
    asked.scheme_str().is_some()
        && known.scheme_str() == asked.scheme_str()
        && host(&known) == host(asked)
        && (any_port.is_some() || port(&known) == port(asked))
}

/// The port that an origin means, also where it does not say so.
fn port(origin: &Uri) -> Option<u16> {
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

    fn guard() -> (tempfile::TempDir, Guard) {
        let dir = tempfile::tempdir().unwrap();
        let mut options = HttpOptions::at("127.0.0.1:80").unwrap();
        options.allowed_hosts = vec!["mcp.example.com".into(), "other.example.com:8443".into()];
        options.allowed_origins = vec!["https://app.example.com".into()];
        let guard = Guard::new(&options, TokenBook::open(dir.path()));
        (dir, guard)
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
    fn j1_hosts(host: &str, good: bool) {
        let (_dir, guard) = guard();
        assert_eq!(guard.check_source(&headers(&[("host", host)])).is_ok(), good);
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
    fn j1_origins(origin: &str, good: bool) {
        let (_dir, guard) = guard();
        let headers = headers(&[("host", "localhost"), ("origin", origin)]);
        assert_eq!(guard.check_source(&headers).is_ok(), good);
    }

    #[test]
    fn j1_a_header_that_stands_there_twice_is_refused() {
        let (_dir, guard) = guard();
        let local = "http://localhost:80";
        let double = headers(&[("host", "localhost"), ("origin", local), ("origin", local)]);
        assert_eq!(guard.check_source(&double), Err(Refusal::Origin));
        let double = headers(&[("host", "localhost"), ("host", "localhost")]);
        assert_eq!(guard.check_source(&double), Err(Refusal::Host));
        assert_eq!(guard.check_source(&HeaderMap::new()), Err(Refusal::Host));
    }
}
