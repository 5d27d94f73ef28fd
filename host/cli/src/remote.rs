//! Which host is meant by `--url`, and with which token: checked once, before anything is sent.

use std::net::IpAddr;

use outbox::deceptive::shown;
use url::{Host, Url};

use crate::failure::{Exit, Failure};

/// A running host. The token is never shown.
#[derive(Clone)]
pub(crate) struct Remote {
    /// Without a slash at its end.
    base: String,
    token: Option<String>,
    is_open: bool,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("base", &self.base).finish_non_exhaustive()
    }
}

impl Remote {
    /// Checks an address and a token. Neither message repeats what may be a secret.
    ///
    /// # Errors
    /// 2 for an address that is none, 4 for a token that no header can carry.
    pub(crate) fn new(url: &str, token: Option<String>) -> Result<Self, Failure> {
        let usage = |why: &str| {
            let what = format!("--url {why}; write it like http://127.0.0.1:8080 or https://outbox.example.com");
            Failure::new(Exit::Usage, what)
        };
        let parsed: Url = url.trim().parse().map_err(|error| usage(&format!("is not a valid address ({error})")))?;
        if !matches!(parsed.scheme(), "http" | "https") {
            return Err(usage(&format!("has the scheme `{}`", shown(parsed.scheme()))));
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(usage("holds a user name or a password, which a host does not know: give a token with OUTBOX_TOKEN"));
        }
        if parsed.query().is_some() || parsed.fragment().is_some() {
            return Err(usage("has a query or a fragment"));
        }
        if parsed.path().trim_end_matches('/').rsplit('/').next() == Some("v1") {
            return Err(usage("ends in /v1; give the address without /v1"));
        }
        let token = token.map(|token| token.trim().to_owned());
        if let Some(token) = &token
            && (token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()))
        {
            let what =
                "the token is empty, or holds spaces or other characters that no token has; `outbox token new` creates one";
            return Err(Failure::new(Exit::Config, what));
        }
        let is_open = parsed.scheme() == "http" && !is_loopback(&parsed);
        Ok(Self { base: parsed.as_str().trim_end_matches('/').to_owned(), token, is_open })
    }

    /// The address, without a slash at its end.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    pub(crate) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Whether a token goes to another machine as everybody on the way can read it.
    pub(crate) fn shows_token(&self) -> bool {
        self.is_open && self.token.is_some()
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).to_canonical().is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        Remote::new(url, None).expect_err("refused").message().to_owned()
    }

    #[test]
    fn an_address_is_checked_and_no_secret_in_it_is_repeated() {
        assert_eq!(Remote::new(" http://127.0.0.1:8080/ ", None).expect("valid").base(), "http://127.0.0.1:8080");
        assert_eq!(Remote::new("https://shop.example/outbox/", None).expect("valid").base(), "https://shop.example/outbox");
        assert!(refused("127.0.0.1:8080").starts_with("--url "), "{}", refused("127.0.0.1:8080"));
        assert!(refused("postgres://db/shop").contains("has the scheme `postgres`"));
        assert!(refused("http://h/?x=1").contains("query"));
        for url in ["http://h/v1", "http://h/outbox/v1/"] {
            assert!(refused(url).contains("give the address without /v1"), "{}", refused(url));
        }
        let secret = refused("https://ada:s3cret@h");
        assert!(secret.contains("OUTBOX_TOKEN") && !secret.contains("s3cret"), "{secret}");
    }

    #[test]
    fn a_token_that_no_header_can_carry_is_refused_and_none_is_printed() {
        for token in ["", " ", "obx_a b", "obx_a\nb", "obx_ä"] {
            let failure = Remote::new("https://h", Some(token.to_owned())).expect_err("refused");
            assert!(!failure.message().contains("obx_a"), "{}", failure.message());
        }
        let remote = Remote::new("https://h", Some("obx_s3cret\n".to_owned())).expect("files end with a line break");
        assert_eq!(remote.token(), Some("obx_s3cret"));
        assert!(!format!("{remote:?}").contains("s3cret"));
    }

    #[test]
    fn a_token_that_others_could_read_on_the_way_is_known() {
        let shows = |url: &str| Remote::new(url, Some("obx_a".to_owned())).expect("valid").shows_token();
        assert!(shows("http://shop.example") && shows("http://192.168.1.5:8080"));
        for safe in ["https://shop.example", "http://localhost:1", "http://127.0.0.1:8080", "http://[::1]:8080"] {
            assert!(!shows(safe), "{safe}");
        }
        assert!(!Remote::new("http://shop.example", None).expect("valid").shows_token(), "there is none");
    }
}
