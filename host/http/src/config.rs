//! What the HTTP API may do, for whom, and within which limits.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use outbox_event::units::{ByteSize, duration, too_long};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::access::token::Token;

/// How the HTTP API is served.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    /// The address that [`Server`](super::Server) listens on: `"127.0.0.1:8080"`, or `"off"`. Default off. An address that other
    /// machines can reach needs at least one token.
    pub listen: Listen,
    /// Who may do what. Default none: then everybody who reaches a loopback address of this machine is an administrator.
    pub tokens: Vec<Token>,
    /// Host names, without a port, that requests may carry in their `Host` header beside those of the loopback addresses: the
    /// name that a reverse proxy on this machine passes on; then there must be a token. Where the address is no loopback
    /// address, an empty list allows any.
    pub allowed_hosts: Vec<String>,
    /// Largest body of a request. Default 2 MiB.
    pub max_body: ByteSize,
    /// Most events written by one request. Default 1,000; at least 1.
    pub max_events: usize,
    /// Longest that a client may take to send the headers of a request; also how long an idle connection is kept. Default 30 s.
    #[serde(with = "duration")]
    pub header_timeout: Duration,
    /// Longest that a client may take to send a body. Default 30 s.
    #[serde(with = "duration")]
    pub body_timeout: Duration,
    /// Longest that a client may take nothing of an answer that waits for it; then its connection is closed. Default 30 s.
    #[serde(with = "duration")]
    pub write_timeout: Duration,
    /// Most connections at once. When one more comes, the connection is closed whose client has been idle or slow for longest;
    /// a request that the host works on is waited for. Default 256; at least 1.
    pub max_connections: usize,
    /// Most clients that follow `GET /v1/stream` at once. Default 32.
    pub max_streams: usize,
    /// For [`router`](super::router) alone: whoever reaches it is an administrator, because the service around it has checked
    /// its callers itself. Default false.
    #[serde(skip)]
    pub open: bool,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            listen: Listen::Off,
            tokens: Vec::new(),
            allowed_hosts: Vec::new(),
            max_body: ByteSize::mib(2),
            max_events: 1_000,
            header_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            max_connections: 256,
            max_streams: 32,
            open: false,
        }
    }
}

/// Values of a configuration that make no sense or are unsafe, one text each; at least one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the HTTP configuration has {} faults: {}", .0.len(), .0.join("; "))]
pub struct ConfigFaults(pub Vec<String>);

impl HttpConfig {
    /// Whether nothing is wrong with these values.
    ///
    /// # Errors
    /// All that is, under the names of `[http]`.
    pub(super) fn check(&self) -> Result<(), ConfigFaults> {
        let faults = self.faults("http");
        if faults.is_empty() { Ok(()) } else { Err(ConfigFaults(faults)) }
    }

    /// Everything that is wrong with these values, one text each; names begin with `prefix`.
    #[must_use]
    pub fn faults(&self, prefix: &str) -> Vec<String> {
        let mut faults = Vec::new();
        if let Listen::At(address) = self.listen
            && !address.ip().to_canonical().is_loopback()
            && self.tokens.is_empty()
        {
            faults.push(format!(
                "{prefix}.listen is {address}, which other machines can reach, and no token is configured; make one with `outbox token \
                 new`, or listen on 127.0.0.1:{}",
                address.port()
            ));
        }
        if self.listen != Listen::Off && self.tokens.is_empty() && !self.allowed_hosts.is_empty() {
            faults.push(format!(
                "{prefix}.allowed_hosts lets requests in that a proxy passes on, and no token is configured, so that every one of them \
                 would be an administrator's; make one with `outbox token new`"
            ));
        }
        let sizes = [("max_events", self.max_events), ("max_connections", self.max_connections)];
        faults.extend(
            sizes.iter().filter(|(_, size)| *size == 0).map(|(name, _)| format!("{prefix}.{name} is 0; it must be at least 1")),
        );
        if self.max_body.0 == 0 {
            faults.push(format!("{prefix}.max_body is 0; it must be above zero"));
        }
        let spans = [
            ("header_timeout", self.header_timeout),
            ("body_timeout", self.body_timeout),
            ("write_timeout", self.write_timeout),
        ];
        for (name, span) in spans {
            if span.is_zero() {
                faults.push(format!("{prefix}.{name} is 0; it must be above zero"));
            }
            faults.extend(too_long(format_args!("{prefix}.{name}"), span));
        }
        for (number, token) in self.tokens.iter().enumerate() {
            if token.name.is_empty() || token.name.chars().any(char::is_control) {
                faults.push(format!(
                    "{prefix}.tokens[{number}].name is {:?}, which is not readable; the audit log needs a name",
                    token.name
                ));
            } else if let Some(first) = self.tokens[..number].iter().position(|other| other.name == token.name) {
                faults.push(format!(
                    "{prefix}.tokens[{number}].name is {:?}, like that of {prefix}.tokens[{first}]; the audit log could not tell them \
                     apart",
                    token.name
                ));
            }
        }
        faults
    }
}

/// Where to listen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Listen {
    /// Nowhere.
    #[default]
    Off,
    /// On this address; port 0 stands for any free port.
    At(SocketAddr),
}

/// A text that is no address to listen on. The message says what one looks like.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not an address to listen on; write it like 127.0.0.1:8080, [::1]:8080 or 0.0.0.0:8080, or off")]
pub struct ListenError(String);

impl FromStr for Listen {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<Self, ListenError> {
        if matches!(text, "off" | "none") {
            return Ok(Self::Off);
        }
        // The one name that needs no look-up.
        let text = text.trim_start_matches("http://").trim_end_matches('/');
        if let Some(port) = text.strip_prefix("localhost:").and_then(|port| port.parse().ok()) {
            return Ok(Self::At(SocketAddr::from((Ipv4Addr::LOCALHOST, port))));
        }
        text.parse().map(Self::At).map_err(|_| ListenError(text.to_owned()))
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::At(address) => address.fmt(f),
        }
    }
}

impl Serialize for Listen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Written)
    }
}

/// Reads what people write. A bare port is the usual slip, and is told in the same words as any other.
struct Written;

impl Visitor<'_> for Written {
    type Value = Listen;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an address to listen on, or off")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Listen, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: serde::de::Error>(self, port: i64) -> Result<Listen, E> {
        self.visit_str(&port.to_string())
    }
}

/// Whether a `Host` header names this machine alone, or a host that is allowed. `host` may carry a port.
pub(super) fn names_loopback(host: &str, allowed: &[String]) -> bool {
    let name = without_port(host).trim_end_matches('.').to_ascii_lowercase();
    if name == "localhost" || name.ends_with(".localhost") || allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(&name))
    {
        return true;
    }
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    match address {
        Some(address) => address.parse::<Ipv6Addr>().is_ok_and(|address| IpAddr::V6(address).to_canonical().is_loopback()),
        None => name.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback()),
    }
}

/// The name of an authority: `[::1]:8080` → `[::1]`. Text that is no port stays, so that no other host passes for the name before it.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_to_listen_on_reads_as_people_write_it() {
        let at = |text: &str| text.parse::<Listen>().map(|listen| listen.to_string()).map_err(|error| error.to_string());
        assert_eq!(at("127.0.0.1:8080").as_deref(), Ok("127.0.0.1:8080"));
        assert_eq!(at("localhost:1").as_deref(), Ok("127.0.0.1:1"));
        assert_eq!(at("http://[::1]:8080/").as_deref(), Ok("[::1]:8080"));
        assert_eq!((at("off").as_deref(), at("none").as_deref()), (Ok("off"), Ok("off")));
        assert!(at("8080").unwrap_err().contains("`8080` is not an address to listen on"));
    }

    #[test]
    fn an_address_that_others_can_reach_needs_a_token() {
        let faults = |listen: &str| HttpConfig { listen: listen.parse().unwrap(), ..HttpConfig::default() }.faults("http");
        for open in ["0.0.0.0:8080", "[::]:8080", "192.168.1.5:8080"] {
            assert!(faults(open)[0].contains("no token is configured"), "{open}");
        }
        for loopback in ["127.0.0.1:8080", "127.3.2.1:8080", "[::1]:8080", "[::ffff:127.0.0.1]:8080", "off"] {
            assert_eq!(faults(loopback), Vec::<String>::new(), "{loopback}");
        }
    }

    #[test]
    fn names_of_a_proxy_need_a_token() {
        let behind = HttpConfig {
            listen: "127.0.0.1:8080".parse().unwrap(),
            allowed_hosts: vec!["shop.example".to_owned()],
            ..HttpConfig::default()
        };
        assert!(behind.faults("http")[0].starts_with("http.allowed_hosts"));
        let (_, token) = Token::generate("a", super::super::Role::Viewer, None);
        assert_eq!(HttpConfig { tokens: vec![token], ..behind }.faults("http"), Vec::<String>::new());
    }

    #[test]
    fn only_names_of_this_machine_and_allowed_ones_pass_for_loopback() {
        let allowed = ["shop.example".to_owned()];
        for host in [
            "localhost",
            "localhost:8080",
            "LOCALHOST.",
            "a.localhost:1",
            "127.0.0.1:80",
            "127.9.9.9",
            "[::1]",
            "[::1]:8080",
            "Shop.Example:443",
        ] {
            assert!(names_loopback(host, &allowed), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "192.168.1.5",
            "[::2]:80",
            "127.0.0.1@evil",
            "localhost:80@evil",
            "shop.example:evil.example",
            "[::1]:80@evil",
            "2130706433",
            "0.0.0.0",
        ] {
            assert!(!names_loopback(host, &allowed), "{host}");
        }
    }
}
