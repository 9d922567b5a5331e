//! Checks the endpoints in the metadata of an authorization server.
//!
//! The metadata is untrusted and decides where the browser is sent and where codes and tokens go. The OAuth library
//! filters the addresses that names resolve to; this check covers the URLs themselves, before any is used.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use reqwest::Url;
use rmcp::transport::auth::AuthorizationMetadata;

/// Class of a network address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AddressRange {
    Public,
    Loopback,
    /// Private network.
    Private,
    /// Link-local, unspecified, multicast or broadcast; never a valid endpoint.
    Forbidden,
}

/// Checks the endpoints and PKCE support; the error is one line.
pub(crate) fn check_metadata(
    server: &Url,
    metadata: &AuthorizationMetadata,
    private_addresses: bool,
) -> Result<(), String> {
    let named = [
        ("authorization_endpoint", Some(&metadata.authorization_endpoint)),
        ("token_endpoint", Some(&metadata.token_endpoint)),
        ("registration_endpoint", metadata.registration_endpoint.as_ref()),
    ];
    for (name, written) in named {
        if let Some(written) = written {
            check_endpoint(server, written, private_addresses)
                .map_err(|reason| format!("its `{name}` {reason}"))?;
        }
    }
    let methods = metadata.code_challenge_methods_supported.as_deref().unwrap_or_default();
    if methods.iter().any(|method| method == "S256") {
        return Ok(());
    }
    Err("it does not say that it supports PKCE with S256, which MCP requires".to_owned())
}

fn check_endpoint(server: &Url, written: &str, private_addresses: bool) -> Result<(), String> {
    let url = Url::parse(written).map_err(|_| "is no address".to_owned())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("is neither `http` nor `https`".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("carries a name or a password".to_owned());
    }
    let own = address_range(server);
    let there = address_range(&url);
    let allowed = match there {
        AddressRange::Public => true,
        AddressRange::Loopback => own == AddressRange::Loopback,
        AddressRange::Private => own == AddressRange::Private || private_addresses,
        AddressRange::Forbidden => false,
    };
    if !allowed {
        return Err("points into a network that the server itself is not in".to_owned());
    }
    if url.scheme() == "http" && there == AddressRange::Public {
        return Err("is `http`: codes and tokens would go unprotected".to_owned());
    }
    Ok(())
}

fn address_range(url: &Url) -> AddressRange {
    let host = url.host_str().unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => address_range_v4(address),
        Ok(IpAddr::V6(address)) => address_range_v6(address),
        Err(_) if host == "localhost" || host.ends_with(".localhost") => AddressRange::Loopback,
        // Names of cloud metadata services.
        Err(_) if host == "metadata" || host.starts_with("metadata.") => AddressRange::Forbidden,
        Err(_) if host.is_empty() => AddressRange::Forbidden,
        Err(_) => AddressRange::Public,
    }
}

fn address_range_v4(address: Ipv4Addr) -> AddressRange {
    let [first, second, ..] = address.octets();
    if address.is_loopback() {
        AddressRange::Loopback
    } else if address.is_private() || (first == 100 && (64..128).contains(&second)) {
        AddressRange::Private
    } else if address.is_link_local()
        || address.is_broadcast()
        || address.is_multicast()
        || first == 0
        || first >= 240
        || (first == 198 && matches!(second, 18 | 19))
    {
        AddressRange::Forbidden
    } else {
        AddressRange::Public
    }
}

fn address_range_v6(address: Ipv6Addr) -> AddressRange {
    if let Some(inside) = address.to_ipv4_mapped() {
        return address_range_v4(inside);
    }
    let [first, second, ..] = address.segments();
    if address.is_loopback() {
        AddressRange::Loopback
    } else if first & 0xfe00 == 0xfc00 {
        AddressRange::Private
    } else if address.is_unspecified()
        || address.is_multicast()
        || first & 0xffc0 == 0xfe80
        // Embedded IPv4 addresses: NAT64, 6to4, Teredo, and the deprecated compatible form.
        || first == 0x64
        || first == 0x2002
        || (first == 0x2001 && second == 0)
        || first == 0
    {
        AddressRange::Forbidden
    } else {
        AddressRange::Public
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    fn check(server: &str, endpoint: &str) -> Result<(), String> {
        check_endpoint(&Url::parse(server).unwrap(), endpoint, false)
    }

    #[test_case("https://mcp.example.com/mcp", "https://login.example.org/token")]
    #[test_case("http://127.0.0.1:1/mcp", "http://127.0.0.1:2/token"; "loopback to loopback")]
    #[test_case("http://localhost:1/mcp", "http://[::1]:2/token")]
    #[test_case("http://10.0.0.5/mcp", "http://10.0.0.9/token"; "within a private network")]
    #[test_case("http://127.0.0.1:1/mcp", "https://login.example.org/token")]
    fn j5_an_endpoint_in_the_same_range_is_accepted(server: &str, endpoint: &str) {
        assert_eq!(check(server, endpoint), Ok(()));
    }

    #[test_case("file:///etc/passwd", "is neither `http` nor `https`")]
    #[test_case("javascript:alert(1)", "is neither `http` nor `https`")]
    #[test_case("--version", "is no address")]
    #[test_case("https://me:pw@login.example.org/", "carries a name or a password")]
    #[test_case("http://login.example.org/", "is `http`: codes and tokens would go unprotected")]
    fn j5_an_invalid_endpoint_is_rejected(endpoint: &str, expected: &str) {
        assert_eq!(check("https://mcp.example.com/mcp", endpoint), Err(expected.to_owned()));
    }

    #[test_case("http://169.254.169.254/latest"; "link local")]
    #[test_case("https://10.1.2.3/token"; "private")]
    #[test_case("https://127.0.0.1/token"; "loopback")]
    #[test_case("https://localhost./token"; "loopback by name")]
    #[test_case("https://[::ffff:169.254.169.254]/"; "mapped")]
    #[test_case("https://[fe80::1]/"; "link local v6")]
    #[test_case("https://[fd00::1]/"; "private v6")]
    #[test_case("https://[64:ff9b::a9fe:a9fe]/"; "nat64")]
    #[test_case("https://0x7f000001/"; "another way to write it")]
    #[test_case("https://metadata.google.internal/")]
    #[test_case("https://0.0.0.0/")]
    fn j5_a_public_server_cannot_name_internal_endpoints(endpoint: &str) {
        let reason = check("https://mcp.example.com/mcp", endpoint).unwrap_err();
        assert_eq!(reason, "points into a network that the server itself is not in");
    }

    #[test]
    fn j5_a_local_server_cannot_name_other_private_endpoints() {
        assert!(check("http://127.0.0.1:1/mcp", "http://169.254.169.254/token").is_err());
        assert!(check("http://127.0.0.1:1/mcp", "http://192.168.0.1/token").is_err());
    }

    #[test]
    fn private_endpoints_are_accepted_if_configured() {
        let server = Url::parse("https://mcp.corp.example/mcp").unwrap();
        assert!(check_endpoint(&server, "https://10.0.0.9/token", true).is_ok());
        assert!(check_endpoint(&server, "https://169.254.169.254/token", true).is_err());
    }
}
