//! What `--http` and its companions ask for, checked before anything listens.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// How many requests a caller may make in a second, unless told otherwise.
const REQUESTS_PER_SECOND: u32 = 200;
/// How many runs a caller may have at once, unless told otherwise.
const RUNS_AT_ONCE: u32 = 16;

/// How HTTP is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpOptions {
    /// Where to listen.
    pub address: SocketAddr,
    /// Whether somebody without a token is let in; only on loopback.
    pub insecure_local: bool,
    /// Names that clients may call this server by, besides loopback's and the address itself.
    pub allowed_hosts: Vec<String>,
    /// Web pages that may call, besides those of this machine.
    pub allowed_origins: Vec<String>,
    /// The certificate and its key, where TLS is ours to speak.
    pub tls: Option<TlsFiles>,
    /// Whether `/metrics` asks for a token.
    pub metrics_need_token: bool,
    /// Requests per second and caller; 0 for no limit.
    pub requests_per_second: u32,
    /// Runs at once per caller; 0 for no limit.
    pub runs_at_once: u32,
}

/// Where the certificate and its key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, with those above it; PEM.
    pub certificate: PathBuf,
    /// Its private key; PEM.
    pub key: PathBuf,
}

impl HttpOptions {
    /// The usual ways at an address: `127.0.0.1:8080`, `localhost:8080`, `[::1]:8080`, or a port alone.
    pub fn at(address: &str) -> Result<Self, OptionsError> {
        Ok(Self {
            address: parse(address)?,
            insecure_local: false,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            tls: None,
            metrics_need_token: false,
            requests_per_second: REQUESTS_PER_SECOND,
            runs_at_once: RUNS_AT_ONCE,
        })
    }

    /// Refuses what would let anybody in; `tokens` is how many are good now.
    pub(super) fn check(&self, tokens: usize) -> Result<(), OptionsError> {
        let loopback = self.address.ip().is_loopback();
        match (self.insecure_local, loopback, tokens) {
            (true, false, _) => Err(OptionsError::InsecureBeyondLoopback { address: self.address }),
            (false, true, 0) => Err(OptionsError::NoTokensOnLoopback),
            (false, false, 0) => Err(OptionsError::NoTokens { address: self.address }),
            _ => Ok(()),
        }
    }

    /// The names by which clients may call this server; a foreign one is a page that had its own name point here.
    pub(super) fn hosts(&self) -> Vec<String> {
        let mut hosts: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
        if !self.address.ip().is_unspecified() {
            hosts.push(self.address.ip().to_string());
        }
        hosts.extend(self.allowed_hosts.iter().map(|host| host.to_ascii_lowercase()));
        hosts
    }

    /// The pages that may call: those of this machine, and the ones that were named.
    pub(super) fn origins(&self) -> Vec<String> {
        let schemes = ["http", "https"];
        let local = schemes.iter().flat_map(|scheme| {
            ["localhost", "127.0.0.1", "[::1]"].map(|host| format!("{scheme}://{host}:*"))
        });
        local.chain(self.allowed_origins.iter().cloned()).collect()
    }
}

fn parse(text: &str) -> Result<SocketAddr, OptionsError> {
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    if let Ok(port) = text.trim_start_matches(':').parse::<u16>() {
        return Ok(SocketAddr::new(local, port));
    }
    if let Some(port) = text.strip_prefix("localhost:").and_then(|port| port.parse().ok()) {
        return Ok(SocketAddr::new(local, port));
    }
    text.parse().map_err(|_| OptionsError::Address { text: text.to_owned() })
}

/// Why HTTP is not served like this.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// Not an address.
    #[error("`{text}` is no address to listen at: write one like `127.0.0.1:8080` or `[::1]:8080`")]
    Address {
        /// What was written.
        text: String,
    },
    /// Nobody could come in.
    #[error(
        "there are no tokens, so nobody could call: make one with `adjutant token new CALLER`, or let every program of this machine in with --insecure-local"
    )]
    NoTokensOnLoopback,
    /// Nobody could come in, and an open door is not for this address.
    #[error(
        "{address} can be reached from other machines and there are no tokens: make one with `adjutant token new CALLER`"
    )]
    NoTokens {
        /// The address.
        address: SocketAddr,
    },
    /// An open door is only for this machine.
    #[error(
        "--insecure-local is for loopback alone and {address} can be reached from other machines: listen at 127.0.0.1, or leave it out and use tokens"
    )]
    InsecureBeyondLoopback {
        /// The address.
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
    fn addresses(text: &str, meant: &str) {
        assert_eq!(HttpOptions::at(text).unwrap().address.to_string(), meant);
    }

    #[test_case("example.com:80"; "names are not looked up")]
    #[test_case("127.0.0.1"; "no port")]
    #[test_case(""; "empty")]
    fn no_addresses(text: &str) {
        assert!(HttpOptions::at(text).is_err());
    }

    #[test]
    fn j1_no_open_door_beyond_this_machine() {
        let mut beyond = HttpOptions::at("0.0.0.0:80").unwrap();
        assert!(matches!(beyond.check(0), Err(OptionsError::NoTokens { .. })));
        assert_eq!(beyond.check(1), Ok(()));
        beyond.insecure_local = true;
        for tokens in [0, 1] {
            let refused = beyond.check(tokens);
            assert!(matches!(refused, Err(OptionsError::InsecureBeyondLoopback { .. })));
        }
        let mut local = HttpOptions::at("127.0.0.1:80").unwrap();
        assert_eq!(local.check(0), Err(OptionsError::NoTokensOnLoopback));
        local.insecure_local = true;
        assert_eq!(local.check(0), Ok(()));
    }
}
