//! What the settings of the HTTP API come to: who can reach it, and who is let in. Pure.

use outbox::store::Finding;
use outbox::time::Timestamp;
use outbox_http::{HttpConfig, Listen};

use crate::output::{count, relative_to};

const CHECK: &str = "http";

/// What would be served, to whom, and what has no effect. `is_set` tells which keys somebody set.
pub(super) fn http(config: &HttpConfig, now: Timestamp, is_set: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = vec![served(config)];
    if config.listen == Listen::Off {
        findings.extend(without_effect(is_set));
        return findings;
    }
    for token in &config.tokens {
        if let Some(end) = token.expires_at.filter(|end| *end <= now) {
            let found = format!("the token {:?} expired {}: requests with it are refused", token.name, relative_to(end, now));
            findings.push(Finding::warning(CHECK, found, "create another with `outbox token new`, or remove its lines"));
        }
    }
    findings
}

fn served(config: &HttpConfig) -> Finding {
    let Listen::At(address) = config.listen else {
        return Finding::good(
            CHECK,
            "http.listen is off in this configuration: a host started with it serves no API, no dashboard and no metrics",
        );
    };
    let is_local = address.ip().to_canonical().is_loopback();
    let tokens = count(config.tokens.len() as u64, "token");
    Finding::good(
        CHECK,
        match (is_local, config.tokens.is_empty()) {
            (true, true) => {
                format!(
                    "a host with this configuration listens on {address}; every program of this machine is an administrator, without a token"
                )
            }
            (true, false) => format!("a host with this configuration listens on {address}, for this machine only; {tokens}"),
            // The configuration is not valid without a token.
            (false, _) => format!(
                "a host with this configuration listens on {address}, which other machines can reach, without TLS; {tokens}"
            ),
        },
    )
}

/// Settings that somebody made and nothing asks for.
fn without_effect(is_set: &dyn Fn(&str) -> bool) -> Option<Finding> {
    const KEYS: [&str; 8] = [
        "http.tokens",
        "http.allowed_hosts",
        "http.max_body",
        "http.max_events",
        "http.header_timeout",
        "http.body_timeout",
        "http.max_connections",
        "http.max_streams",
    ];
    let set: Vec<&str> = KEYS.into_iter().filter(|key| is_set(key)).collect();
    let are = if set.len() == 1 { "is" } else { "are" };
    (!set.is_empty()).then(|| {
        let found = format!("{} {are} set, but http.listen is off, so nothing is served", set.join(", "));
        Finding::warning(CHECK, found, "set http.listen = \"127.0.0.1:8080\", or remove them")
    })
}

#[cfg(test)]
mod tests {
    use outbox::store::Severity;
    use outbox_http::{Role, Token};

    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_795_249_980_000_000);

    fn said(config: &HttpConfig, set: &[&str]) -> Vec<(Severity, String)> {
        http(config, NOW, &|key| set.contains(&key)).into_iter().map(|finding| (finding.severity, finding.found)).collect()
    }

    #[test]
    fn who_reaches_the_api_and_who_is_let_in_is_told_as_it_is() {
        let at =
            |listen: &str, tokens: Vec<Token>| HttpConfig { listen: listen.parse().unwrap(), tokens, ..HttpConfig::default() };
        let token = || Token::generate("deploy", Role::Admin, None).1;
        for (config, part) in [
            (at("off", Vec::new()), "http.listen is off"),
            (at("127.0.0.1:8080", Vec::new()), "every program of this machine is an administrator"),
            (at("127.0.0.1:8080", vec![token()]), "for this machine only; 1 token"),
            (at("0.0.0.0:8080", vec![token()]), "which other machines can reach, without TLS; 1 token"),
        ] {
            let said = said(&config, &[]);
            assert!(said.len() == 1 && said[0].0 == Severity::Good && said[0].1.contains(part), "{said:?}");
        }
    }

    #[test]
    fn a_token_that_is_over_and_settings_that_nobody_asks_for_are_told() {
        let (_, old) = Token::generate("old", Role::Viewer, Some(NOW));
        let config = HttpConfig { listen: "127.0.0.1:1".parse().unwrap(), tokens: vec![old.clone()], ..HttpConfig::default() };
        let expired = said(&config, &["http.tokens"]);
        assert!(expired.len() == 2 && expired[1].1.starts_with("the token \"old\" expired just now"), "{expired:?}");
        let off = said(&HttpConfig { tokens: vec![old], ..HttpConfig::default() }, &["http.tokens", "http.max_body"]);
        assert!(off[1].1.starts_with("http.tokens, http.max_body are set, but http.listen is off"), "{off:?}");
    }
}
