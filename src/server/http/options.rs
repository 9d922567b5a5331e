//! Options of the HTTP server, validated before it listens.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// Default of `HttpOptions::requests_per_second`.
const DEFAULT_REQUESTS_PER_SECOND: u32 = 200;
/// Default of `HttpOptions::runs_at_once`.
const DEFAULT_RUNS_AT_ONCE: u32 = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpOptions {
    pub address: SocketAddr,
    /// Accept requests without a token; permitted only on loopback.
    pub insecure_local: bool,
    /// Accepted Host names, in addition to loopback and the address itself.
    pub allowed_hosts: Vec<String>,
    /// Accepted origins of web pages, in addition to those of this machine.
    pub allowed_origins: Vec<String>,
    /// Certificate and key; `None` serves without TLS.
    pub tls: Option<TlsFiles>,
    /// Require a token for `/metrics`.
    pub metrics_need_token: bool,
    /// Requests per second and caller; 0 means no limit.
    pub requests_per_second: u32,
    /// Concurrent runs per caller; 0 means no limit.
    pub runs_at_once: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM file with the certificate and its chain.
    pub certificate: PathBuf,
    /// PEM file with the private key.
    pub key: PathBuf,
}

impl HttpOptions {
    /// Returns the default options for an address.
    ///
    /// Accepts `127.0.0.1:8080`, `localhost:8080`, `[::1]:8080`, or a port alone, which means 127.0.0.1.
    pub fn at(address: &str) -> Result<Self, OptionsError> {
        Ok(Self {
            address: parse_address(address)?,
            insecure_local: false,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            tls: None,
            metrics_need_token: false,
            requests_per_second: DEFAULT_REQUESTS_PER_SECOND,
            runs_at_once: DEFAULT_RUNS_AT_ONCE,
        })
    }

    /// Rejects `--insecure-local` beyond loopback, and without that flag a server with 0 valid `tokens`.
    pub(crate) fn validate(&self, tokens: usize) -> Result<(), OptionsError> {
        let loopback = self.address.ip().is_loopback();
        match (self.insecure_local, loopback, tokens) {
            (true, false, _) => Err(OptionsError::InsecureBeyondLoopback { address: self.address }),
            (false, true, 0) => Err(OptionsError::NoTokensOnLoopback),
            (false, false, 0) => Err(OptionsError::NoTokens { address: self.address }),
            _ => Ok(()),
        }
    }

    /// Returns the accepted Host names. Any other name may be the result of DNS rebinding.
    pub(crate) fn accepted_hosts(&self) -> Vec<String> {
        let mut hosts: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
        if !self.address.ip().is_unspecified() {
            hosts.push(self.address.ip().to_string());
        }
        hosts.extend(self.allowed_hosts.iter().map(|host| host.to_ascii_lowercase()));
        hosts
    }

    /// Returns the accepted origins: those of this machine, and the configured ones.
    pub(crate) fn accepted_origins(&self) -> Vec<String> {
        let schemes = ["http", "https"];
        let local = schemes.iter().flat_map(|scheme| {
            ["localhost", "127.0.0.1", "[::1]"].map(|host| format!("{scheme}://{host}:*"))
        });
        local.chain(self.allowed_origins.iter().cloned()).collect()
    }
}

fn parse_address(text: &str) -> Result<SocketAddr, OptionsError> {
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    if let Ok(port) = text.trim_start_matches(':').parse::<u16>() {
        return Ok(SocketAddr::new(local, port));
    }
    if let Some(port) = text.strip_prefix("localhost:").and_then(|port| port.parse().ok()) {
        return Ok(SocketAddr::new(local, port));
    }
    text.parse().map_err(|_| OptionsError::Address { text: text.to_owned() })
}

/// Invalid or unsafe options.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    #[error("`{text}` is no address to listen at: write one like `127.0.0.1:8080` or `[::1]:8080`")]
    Address {
        /// The address as the user wrote it.
        text: String,
    },
    /// There are no valid tokens on a loopback address.
    #[error(
        "there are no tokens, so nobody could call: make one with `adjutant token new CALLER`, or let every program of this machine in with --insecure-local"
    )]
    NoTokensOnLoopback,
    /// There are no valid tokens on an address that other machines can reach.
    #[error(
        "{address} can be reached from other machines and there are no tokens: make one with `adjutant token new CALLER`"
    )]
    NoTokens {
        /// The listen address.
        address: SocketAddr,
    },
    /// `--insecure-local` is set for an address that other machines can reach.
    #[error(
        "--insecure-local is for loopback alone and {address} can be reached from other machines: listen at 127.0.0.1, or leave it out and use tokens"
    )]
    InsecureBeyondLoopback {
        /// The listen address.
        address: SocketAddr,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case("127.0.0.1:80", "127.0.0.1:80")]
    #[test_case("localhost:80", "127.0.0.1:80")]
    #[test_case("80", "127.0.0.1:80")]
    #[test_case(":80", "127.0.0.1:80"; "a colon does not mean every address")]
    #[test_case("[::1]:80", "[::1]:80")]
    fn addresses_are_parsed(text: &str, meant: &str) {
        assert_eq!(HttpOptions::at(text).unwrap().address.to_string(), meant);
    }

    #[test_case("example.com:80"; "names are not looked up")]
    #[test_case("127.0.0.1"; "no port")]
    #[test_case(""; "empty")]
    fn invalid_addresses_are_rejected(text: &str) {
        assert!(HttpOptions::at(text).is_err());
    }

    #[test]
    fn j1_insecure_local_is_rejected_beyond_loopback() {
        let mut beyond = HttpOptions::at("0.0.0.0:80").unwrap();
        assert!(matches!(beyond.validate(0), Err(OptionsError::NoTokens { .. })));
        assert_eq!(beyond.validate(1), Ok(()));
        beyond.insecure_local = true;
        for tokens in [0, 1] {
            let refused = beyond.validate(tokens);
            assert!(matches!(refused, Err(OptionsError::InsecureBeyondLoopback { .. })));
        }
        let mut local = HttpOptions::at("127.0.0.1:80").unwrap();
        assert_eq!(local.validate(0), Err(OptionsError::NoTokensOnLoopback));
        local.insecure_local = true;
        assert_eq!(local.validate(0), Ok(()));
    }
}
