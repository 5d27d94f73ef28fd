//! The hosts that a server may name for others.

use std::net::IpAddr;

/// The longest host name.
const MAX_HOST: usize = 253;

/// Whether a server may name this host for others: a host that others can be at, of bounded length.
pub(super) fn may_be_named(host: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".:-_".contains(&byte);
    let is_name = !host.is_empty() && host.len() <= MAX_HOST && host.bytes().all(is_plain);
    is_name && host.parse().map_or(true, |address: IpAddr| may_be_at(address.to_canonical()))
}

/// Whether a server that another one named can be at this address. A name, or an address in an unusual form, is looked at again when it was
/// resolved.
pub(super) fn may_be_at(address: IpAddr) -> bool {
    match address {
        // Where a cloud keeps its secrets.
        IpAddr::V4(address) => {
            !(address.is_unspecified() || address.is_multicast() || address.is_broadcast() || address.is_link_local())
        }
        IpAddr::V6(address) => !(address.is_unspecified() || address.is_multicast() || address.is_unicast_link_local()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_names_no_host_that_none_can_be_at() {
        for host in ["10.0.0.7", "127.0.0.1", "::1", "fd00::7", "redis-1.example.com", "node_1"] {
            assert!(may_be_named(host), "{host}");
        }
        let long = "a".repeat(MAX_HOST + 1);
        for host in [
            "",
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "fe80::1",
            "fe80::1%eth0",
            "0.0.0.0",
            "::",
            "224.0.0.1",
            "255.255.255.255",
            "a\r\nb",
            "a b",
            "ä",
            &long,
        ] {
            assert!(!may_be_named(host), "{host}");
        }
    }
}
