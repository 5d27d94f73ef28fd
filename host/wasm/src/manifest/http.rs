//! `[http]`: which origins a plugin may ask, and how much at once.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;
use outbox_event::units::{ByteSize, duration};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The largest response body that a manifest may allow.
const MAX_RESPONSE: ByteSize = ByteSize::mib(16);
/// The most requests at once that a manifest may allow.
const MAX_CONCURRENCY: usize = 10_000;

/// The HTTP requests that a plugin may make.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// The origins that may be asked. Empty for none.
    pub allow: Vec<Origin>,
    /// Networks that these origins may lie in although they are not public, such as `10.2.0.0/16`; loopback and link-local
    /// addresses count as private as well. Empty for none.
    pub allow_private: Vec<Network>,
    /// The longest that one request may take, up to the last byte of its response. Default 10 s; above zero.
    #[serde(with = "duration")]
    pub timeout: Duration,
    /// The largest response body. Default 1 MiB; above zero, at most 16 MiB.
    pub max_response: ByteSize,
    /// Requests at once, of all calls together. Default 128; 1 to 10,000.
    pub concurrency: usize,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            allow_private: Vec::new(),
            timeout: Duration::from_secs(10),
            max_response: ByteSize::mib(1),
            concurrency: 128,
        }
    }
}

impl Http {
    /// Whether a request to this scheme, host and port is granted.
    pub(crate) fn allows(&self, wanted: &Origin) -> bool {
        self.allow.iter().any(|allowed| allowed.covers(wanted))
    }

    /// Whether an address that is not public may be connected to all the same.
    pub(crate) fn allows_private(&self, address: IpAddr) -> bool {
        self.allow_private.iter().any(|network| network.0.contains(&address))
    }

    /// Whether `now` grants all of this.
    pub(super) fn within(&self, now: &Self) -> bool {
        let private = |network: &Network| now.allow_private.iter().any(|granted| granted.0.contains(&network.0));
        self.allow.iter().all(|origin| now.allows(origin)) && self.allow_private.iter().all(private)
    }

    /// Everything that is wrong with these values.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.timeout.is_zero() {
            faults.push("http.timeout is 0s; it must be above zero".to_owned());
        }
        if self.max_response == ByteSize(0) || self.max_response > MAX_RESPONSE {
            faults
                .push(format!("http.max_response is {}; it must be above zero and at most {MAX_RESPONSE}", self.max_response));
        }
        if !(1..=MAX_CONCURRENCY).contains(&self.concurrency) {
            faults.push(format!("http.concurrency is {}; it must be from 1 to {MAX_CONCURRENCY}", self.concurrency));
        }
        faults
    }
}

/// Scheme, host and port: `https://api.example.com`, `http://localhost:8080`, `https://*.example.com` for all hosts below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    https: bool,
    /// In lower case, an IPv6 address in brackets. Begins with `*.` for all hosts below it.
    host: String,
    port: u16,
}

impl Origin {
    /// The origin of a URL that a guest gave. The host is taken as it was written: what it stands for is decided by the
    /// resolver, and looked at there.
    pub(crate) fn of(url: &http::Uri) -> Result<Self, String> {
        let https = match url.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            Some(other) => return Err(format!("the scheme `{other}` is neither http nor https")),
            None => return Err("it is not absolute: begin with https://".to_owned()),
        };
        let authority = url.authority().ok_or("it has no host")?;
        if authority.as_str().contains('@') {
            return Err("it has a user name or a password before the host; use a header".to_owned());
        }
        let host = authority.host().to_ascii_lowercase();
        if host.is_empty() {
            return Err("it has no host".to_owned());
        }
        let port = match authority.port() {
            Some(port) => port.as_u16(),
            // `port()` is `None` as well for a port that is no number of 16 bits.
            None if authority.as_str().len() > host.len() => return Err("its port is not a number from 1 to 65535".to_owned()),
            None => default_port(https),
        };
        Ok(Self { https, host, port })
    }

    /// The host and the port in the one way in which they are written: connections are kept by it.
    pub(crate) fn authority(&self) -> String {
        if self.port == default_port(self.https) { self.host.clone() } else { format!("{}:{}", self.host, self.port) }
    }

    fn covers(&self, wanted: &Self) -> bool {
        let host = match self.host.strip_prefix('*') {
            Some(suffix) => wanted.host.len() > suffix.len() && wanted.host.ends_with(suffix),
            None => self.host == wanted.host,
        };
        host && self.https == wanted.https && self.port == wanted.port
    }
}

fn default_port(https: bool) -> u16 {
    if https { 443 } else { 80 }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.https { "https" } else { "http" }, self.host)?;
        if self.port == default_port(self.https) { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

impl FromStr for Origin {
    type Err = String;

    /// Reads an origin as an operator writes it; a slash at the end is fine, a path is not.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("`{text}` is not an origin such as https://api.example.com: {why}");
        if text == "*" {
            return Err(wrong(
                "no pattern stands for every origin; name each one, or all hosts below one by https://*.example.com",
            ));
        }
        let url: http::Uri = text.replacen("://*.", "://", 1).parse().map_err(|_| wrong("it cannot be read as a URL"))?;
        if url.path_and_query().is_some_and(|path| path.as_str() != "/") {
            return Err(wrong("leave out the path; all paths of an origin are allowed together"));
        }
        let mut origin = Self::of(&url).map_err(|why| wrong(&why))?;
        if text.contains("://*.") {
            if !origin.host.contains('.') || origin.host.starts_with('[') {
                return Err(wrong("`*.` must stand before a name with a dot"));
            }
            origin.host.insert_str(0, "*.");
        }
        if origin.host.contains('*') && !origin.host.starts_with("*.") {
            return Err(wrong("`*` may only stand for everything before the first dot"));
        }
        Ok(origin)
    }
}

impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Origin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A range of addresses, such as `10.2.0.0/16`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(IpNet);

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let one = text.parse::<IpAddr>().map(IpNet::from);
        one.or_else(|_| text.parse())
            .map(|net| Self(net.trunc()))
            .map_err(|_| format!("`{text}` is not a network such as 10.2.0.0/16 or fd00::/8, nor an address"))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Network {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(text: &str) -> Origin {
        text.parse().unwrap_or_else(|fault| panic!("{text}: {fault}"))
    }

    fn wanted(url: &str) -> Origin {
        Origin::of(&url.parse().unwrap()).unwrap_or_else(|fault| panic!("{url}: {fault}"))
    }

    #[test]
    fn an_origin_is_written_in_one_way_and_read_in_several() {
        for (written, means) in [
            ("https://api.example.com", "https://api.example.com"),
            ("https://API.example.com/", "https://api.example.com"),
            ("https://api.example.com:443", "https://api.example.com"),
            ("http://localhost:8080", "http://localhost:8080"),
            ("http://[::1]:80", "http://[::1]"),
            ("https://*.example.com", "https://*.example.com"),
        ] {
            assert_eq!(origin(written).to_string(), means);
            assert_eq!(origin(means), origin(written));
        }
    }

    #[test]
    fn what_is_no_origin_is_refused_with_the_reason() {
        for (written, why) in [
            ("api.example.com", "not absolute"),
            ("ftp://example.com", "neither http nor https"),
            ("https://example.com/v2", "leave out the path"),
            ("https://example.com/?a=b", "leave out the path"),
            ("https://me:secret@example.com", "user name"),
            ("https://", "cannot be read"),
            ("*", "no pattern stands for every origin"),
            ("https://*.com", "before a name with a dot"),
            ("https://*", "everything before the first dot"),
            ("https://api.*.com", "everything before the first dot"),
            ("https://example.com:99999", "port"),
        ] {
            let fault = written.parse::<Origin>().expect_err(written);
            assert!(fault.contains(why) && fault.contains(written), "{written}: {fault}");
        }
    }

    #[test]
    fn scheme_host_and_port_all_count_and_nothing_is_guessed() {
        let http = Http { allow: vec![origin("https://api.example.com"), origin("http://*.test.org:81")], ..Http::default() };
        for url in
            ["https://api.example.com/a?b", "https://API.EXAMPLE.com:443/", "http://a.test.org:81", "http://a.b.test.org:81/"]
        {
            assert!(http.allows(&wanted(url)), "{url}");
        }
        for url in [
            "http://api.example.com/",
            "https://api.example.com:8443/",
            "https://api.example.com.evil.org/",
            "https://evilapi.example.com/",
            "https://api.example.com./",
            "https://example.com/",
            "http://test.org:81/",
            "http://eviltest.org:81/",
            "https://[::ffff:1.2.3.4]/",
        ] {
            assert!(!http.allows(&wanted(url)), "{url}");
        }
        for url in ["https://api.example.com@evil.org/", "https://api.example.com:pw@evil.org/"] {
            assert!(Origin::of(&url.parse().unwrap()).is_err(), "{url}");
        }
    }

    #[test]
    fn a_network_is_a_range_or_one_address() {
        for (written, means) in [("10.2.3.4/16", "10.2.0.0/16"), ("127.0.0.1", "127.0.0.1/32"), ("fd00::/8", "fd00::/8")] {
            assert_eq!(written.parse::<Network>().unwrap().to_string(), means);
        }
        assert!("10.2.0.0/33".parse::<Network>().is_err());
        assert!("intranet".parse::<Network>().unwrap_err().contains("10.2.0.0/16"));
    }
}
