//! `kind = "nats"`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_nats::ConnectOptions;
use outbox_event::units::duration;
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use url::Url;

use super::{LIMITS, Nats, is_no_token};
use crate::batching::{Limits, Link};
use crate::common::{TIMEOUT, any_subject};
use crate::error::quoted;
use crate::kind::Kind;
use crate::rests::Rests;
use crate::{CommonConfig, Secret, Template, target, tls};

const SCHEMES: [&str; 2] = ["nats", "tls"];

/// A connection to NATS whose messages a stream of JetStream must keep.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct NatsConfig {
    /// The servers, separated by commas. `nats://host:4222` uses TLS when the server asks for it; one `tls://host:4222` requires
    /// TLS of all of them. Required. User and password, or a token, may stand before an `@` in the first.
    pub url: String,
    /// The user; `None` for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The user's password; `None` for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
    /// A token; `None` for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
    /// The text of a file of credentials (`.creds`), as `"${file:PATH}"`; `None` for none. Needs the feature `sink-nats-nkeys`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Secret>,
    /// The seed of an NKey (`SU…`); `None` for none. Needs the feature `sink-nats-nkeys`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nkey: Option<Secret>,
    /// Certificates in PEM to trust instead of the system's; `None` for the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// The subject of a message that has none. Default `{aggregate_type}.{event_type}`. In what an event says, spaces, `.`, `*`
    /// and `>` become `_`.
    pub subject: Template,
    /// Which subjects a message may choose for itself, as patterns. Default any; but never one that begins with `$`.
    pub subjects: Vec<String>,
    /// The time within which the stream must have answered. Default 10 s; above zero.
    #[serde(with = "duration")]
    pub timeout: Duration,
}

impl Default for NatsConfig {
    fn default() -> Self {
        Self {
            url: String::new(),
            user: None,
            password: None,
            token: None,
            credentials: None,
            nkey: None,
            ca_file: None,
            subject: "{aggregate_type}.{event_type}".parse().expect("a template of ours"),
            subjects: any_subject(),
            timeout: TIMEOUT,
        }
    }
}

impl Kind for NatsConfig {
    fn kind(&self) -> &'static str {
        "nats"
    }

    fn target(&self) -> String {
        target::shown(&self.url)
    }

    fn common(&self) -> CommonConfig {
        CommonConfig { timeout: self.timeout, subjects: self.subjects.clone(), max_age: None }
    }

    fn faults(&self, prefix: &str) -> Vec<String> {
        let urls = self.url.split(',');
        let mut faults: Vec<_> = urls.filter_map(|url| target::fault(&format!("{prefix}.url"), url, &SCHEMES)).collect();
        faults.extend(tls::fault(prefix, self.ca_file.as_deref(), self.url.split(','), "tls"));
        if self.password.is_some() && self.user.is_none() {
            faults.push(format!("{prefix}.password is set, but {prefix}.user is not; set both"));
        }
        let ways = [self.user.is_some(), self.token.is_some(), self.credentials.is_some(), self.nkey.is_some()];
        if ways.into_iter().filter(|set| *set).count() > 1 {
            faults.push(format!("{prefix} has more than one of user, token, credentials and nkey; keep one"));
        }
        for (setting, is_set) in [("credentials", self.credentials.is_some()), ("nkey", self.nkey.is_some())] {
            if is_set && !cfg!(feature = "nats-nkeys") {
                faults.push(format!(
                    "{prefix}.{setting} needs an outbox that is built with `cargo build --features sink-nats-nkeys`"
                ));
            }
        }
        if self.subject.as_str().is_empty() || self.subject.literals().any(|text| text.chars().any(is_no_token)) {
            faults.push(format!(
                "{prefix}.subject is `{}`; a subject to publish to has no spaces, `*` and `>`",
                quoted(self.subject.as_str())
            ));
        }
        faults
    }

    fn limits(&self) -> Limits {
        LIMITS
    }

    fn link(&self, name: &str, _: Rests) -> Result<Arc<dyn Link>, String> {
        Ok(Arc::new(Nats::new(name, self.clone())?))
    }
}

impl NatsConfig {
    pub(super) fn options(&self) -> Result<ConnectOptions, String> {
        let mut options = ConnectOptions::new();
        let (user, password, token) = self.of_url();
        if let Some(user) = self.user.clone().or(user) {
            let password = self.password.as_ref().map(|password| password.reveal().to_owned()).or(password);
            options = options.user_and_password(user, password.unwrap_or_default());
        } else if let Some(token) = token {
            options = options.token(token);
        }
        if let Some(token) = &self.token {
            options = options.token(token.reveal().to_owned());
        }
        #[cfg(feature = "nats-nkeys")]
        {
            if let Some(seed) = &self.nkey {
                options = options.nkey(seed.reveal().to_owned());
            }
            if let Some(text) = &self.credentials {
                // Whatever is wrong with them may repeat them.
                options =
                    options.credentials(text.reveal()).map_err(|_| "the credentials are not a file of NATS".to_owned())?;
            }
        }
        // The list may contain addresses without a scheme as well as some with `tls:`.
        Ok(options.require_tls(self.is_tls()).tls_client_config(tls::client(self.ca_file.as_deref())?))
    }

    /// Whether any address asks for TLS; a scheme may be written in capitals.
    fn is_tls(&self) -> bool {
        self.url.split(',').filter_map(|url| url.trim().parse::<Url>().ok()).any(|url| url.scheme() == "tls")
    }

    /// User and password in the first address, or a token: the part before the `@` when there is no colon in it. The NATS
    /// client ignores credentials in an address.
    fn of_url(&self) -> (Option<String>, Option<String>, Option<String>) {
        let Ok(url) = self.url.split(',').next().unwrap_or_default().trim().parse::<Url>() else { return (None, None, None) };
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        match (url.username(), url.password()) {
            ("", _) => (None, None, None),
            (user, Some(password)) => (Some(decoded(user)), Some(decoded(password)), None),
            (token, None) => (None, None, Some(decoded(token))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> String {
        serde_json::from_str::<NatsConfig>(text).expect("readable").faults("sinks.orders").join("\n")
    }

    #[test]
    fn credentials_may_stand_in_the_address() {
        let of = |url: &str| NatsConfig { url: url.to_owned(), ..NatsConfig::default() }.of_url();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(of("nats://app:p%40ss@a, nats://b"), (some("app"), some("p@ss"), None));
        assert_eq!(of("tls://t0ken@a"), (None, None, some("t0ken")));
        assert_eq!(of("nats://a"), (None, None, None));
    }

    #[test]
    fn one_address_that_asks_for_tls_asks_for_all() {
        let is_tls = |url: &str| NatsConfig { url: url.to_owned(), ..NatsConfig::default() }.is_tls();
        assert!(is_tls("nats://a, tls://b") && is_tls("TLS://a:4222"));
        assert!(!is_tls("nats://a, nats://tls"));
    }

    #[test]
    fn faults_name_the_setting_and_no_secret() {
        assert!(faults("{}").contains("sinks.orders.url is missing"));
        assert!(faults(r#"{"url": "nats://a", "subject": "orders.>"}"#).contains("sinks.orders.subject"));
        let two = faults(r#"{"url": "nats://a", "token": "s3cret", "user": "app"}"#);
        assert!(two.contains("more than one") && !two.contains("s3cret"), "{two}");
    }

    #[cfg(not(feature = "nats-nkeys"))]
    #[test]
    fn nkeys_and_credentials_are_refused_by_a_build_without_them_and_not_repeated() {
        for setting in ["nkey", "credentials"] {
            let text = format!(r#"{{"url": "nats://a", "{setting}": "s3cret"}}"#);
            let refused = faults(&text);
            assert!(refused.contains(&format!("sinks.orders.{setting} needs an outbox that is built with")), "{refused}");
            assert!(refused.contains("--features sink-nats-nkeys") && !refused.contains("s3cret"), "{refused}");
        }
    }

    #[cfg(feature = "nats-nkeys")]
    #[test]
    fn credentials_that_are_none_are_refused_and_not_repeated() {
        let config: NatsConfig = serde_json::from_str(r#"{"url": "nats://a", "credentials": "s3cret"}"#).expect("readable");
        let refused = config.options().map(drop).expect_err("no file of credentials");
        assert!(refused.contains("not a file of NATS") && !refused.contains("s3cret"), "{refused}");
    }
}
