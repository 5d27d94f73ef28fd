//! Addresses of brokers and endpoints: what is wrong with them, and how they are shown.

use url::Url;

/// Addresses, separated by commas, as they may be shown: scheme, host and port. Everything else may be a secret: many webhooks have
/// theirs in the path.
#[cfg_attr(
    not(any(feature = "amqp", feature = "http", feature = "nats", feature = "redis")),
    allow(dead_code, reason = "Kafka has a list of brokers instead of an address")
)]
pub(super) fn shown(addresses: &str) -> String {
    let shown = addresses.split(',').map(|address| match address.trim().parse::<Url>() {
        Ok(url) => {
            let host = url.host_str().unwrap_or_default();
            let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
            format!("{}://{host}{port}", url.scheme())
        }
        // A text that is no address may be anything, even a password.
        Err(_) => "(no address)".to_owned(),
    });
    shown.collect::<Vec<_>>().join(",")
}

/// What is wrong with an address, if anything. Does not repeat the address, which may hold a secret.
pub(super) fn fault(name: &str, address: &str, schemes: &[&str]) -> Option<String> {
    let like = || format!("write it like {}://host:port", schemes[0]);
    if address.is_empty() {
        return Some(format!("{name} is missing; {}", like()));
    }
    match address.trim().parse::<Url>() {
        Err(error) => Some(format!("{name} is not a valid address ({error}); {}", like())),
        Ok(url) if !schemes.contains(&url.scheme()) => {
            Some(format!("{name} begins with `{}://`, which is none of {}://; {}", url.scheme(), schemes.join("://, "), like()))
        }
        Ok(url) if url.host_str().is_none_or(str::is_empty) => Some(format!("{name} names no host; {}", like())),
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_anything_secret() {
        assert_eq!(shown("nats://app:s3cret@a:4222, tls://token@b"), "nats://a:4222,tls://b");
        assert_eq!(shown("https://hooks.example.com:8443/services/T000/s3cret?key=s3cret#f"), "https://hooks.example.com:8443");
        assert_eq!(shown("s3cret"), "(no address)");
    }

    #[test]
    fn what_is_no_address_is_told_without_repeating_it() {
        let fault = |text: &str| fault("sinks.a.url", text, &["nats", "tls"]).unwrap_or_default();
        assert!(fault("").contains("is missing; write it like nats://host:port"));
        assert!(fault("http://s3cret@a").contains("begins with `http://`, which is none of nats://, tls://"));
        assert!(!fault("s3cret").contains("s3cret"), "{}", fault("s3cret"));
        assert_eq!(fault("nats://a:4222"), "");
    }
}
