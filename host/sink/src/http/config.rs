//! `kind = "http"`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use outbox_event::units::duration;
use serde::{Deserialize, Serialize};
use url::Url;

use super::sign::Signer;
use super::{Http, steers};
use crate::batching::{Limits, Link};
use crate::cloud_event::SOURCE;
use crate::common::TIMEOUT;
use crate::kind::Kind;
use crate::rests::Rests;
use crate::{CommonConfig, Secret, Template, target, tls};

/// The default time after which a receiver is given up.
const MAX_AGE: Duration = Duration::from_secs(72 * 3600);

/// Webhooks: a POST for each message.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    /// Where to: `https://hooks.example.com/orders`, or `http://`. Required.
    pub url: String,
    /// A path below the address, such as `{subject}`; the value of a placeholder is one segment. `None` for none: then a message's
    /// subject is ignored. Each path is a receiver: one that does not answer holds up no other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<Template>,
    /// How a message is written. Default raw.
    pub format: Format,
    /// The `source` of CloudEvents. Default `outbox`.
    pub source: String,
    /// The keys that messages are signed with, `whsec_` and base64; several while one replaces another. Empty: not signed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<Secret>,
    /// Headers of every request, such as `authorization`. Never shown.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Secret>,
    /// Certificates in PEM to trust instead of the system's; `None` for the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// Which subjects a message may choose for itself, as patterns. Default none.
    pub subjects: Vec<String>,
    /// The time within which the answer must have begun. Default 10 s; above zero.
    #[serde(with = "duration")]
    pub timeout: Duration,
    /// How long an event may wait while its receiver is unavailable; it is dead if a try fails after that. Default 72 h; zero: no limit.
    #[serde(with = "duration")]
    pub max_age: Duration,
    /// Most requests at once. Default 32; at least 1.
    pub max_in_flight: usize,
}

/// How a message is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// The body as it is; the event's fields in headers.
    #[default]
    Raw,
    /// One JSON object of CloudEvents 1.0 that holds the body.
    CloudeventsStructured,
    /// The body as it is; the attributes of CloudEvents 1.0 in headers `ce-…`.
    CloudeventsBinary,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            url: String::new(),
            path: None,
            format: Format::default(),
            source: SOURCE.to_owned(),
            secrets: Vec::new(),
            headers: BTreeMap::new(),
            ca_file: None,
            subjects: Vec::new(),
            timeout: TIMEOUT,
            max_age: MAX_AGE,
            max_in_flight: 32,
        }
    }
}

impl Kind for HttpConfig {
    fn kind(&self) -> &'static str {
        "http"
    }

    fn target(&self) -> String {
        target::shown(&self.url)
    }

    fn common(&self) -> CommonConfig {
        CommonConfig {
            timeout: self.timeout,
            subjects: self.subjects.clone(),
            max_age: Some(self.max_age).filter(|age| !age.is_zero()),
        }
    }

    fn faults(&self, prefix: &str) -> Vec<String> {
        let mut faults: Vec<_> = target::fault(&format!("{prefix}.url"), &self.url, &["https", "http"]).into_iter().collect();
        if self.url.trim().parse::<Url>().is_ok_and(|url| !url.username().is_empty() || url.password().is_some()) {
            faults.push(format!("{prefix}.url holds a user; put an authorization into {prefix}.headers instead"));
        }
        faults.extend(tls::fault(prefix, self.ca_file.as_deref(), [&*self.url], "https"));
        if self.max_in_flight == 0 {
            faults.push(format!("{prefix}.max_in_flight is 0; it must be at least 1"));
        }
        if self.source.is_empty() {
            faults.push(format!("{prefix}.source is empty; name the service that the events are of"));
        }
        for (number, secret) in self.secrets.iter().enumerate() {
            if Signer::new(secret).is_none() {
                faults.push(format!("{prefix}.secrets: number {} is not whsec_ and base64 of 24 to 64 bytes", number + 1));
            }
        }
        faults.extend(self.headers.keys().filter(|name| self.header(name).is_none()).map(|name| {
            format!("{prefix}.headers: {name:?} is not a header that can be set here, or its value is not a valid header value")
        }));
        faults
    }

    fn limits(&self) -> Limits {
        Limits { messages: 1, bytes: usize::MAX, in_flight: self.max_in_flight }
    }

    fn link(&self, name: &str, rests: Rests) -> Result<Arc<dyn Link>, String> {
        Ok(Arc::new(Http::new(name, self.clone(), rests)?))
    }
}

impl HttpConfig {
    /// One of the headers of every request; `None` when it is none.
    fn header(&self, name: &str) -> Option<(HeaderName, HeaderValue)> {
        let parsed: HeaderName = name.parse().ok()?;
        // The operator may set credentials; headers of the connection and of the message are the host's own.
        if steers(parsed.as_str()) && !matches!(parsed.as_str(), "authorization" | "cookie" | "proxy-authorization") {
            return None;
        }
        let mut value: HeaderValue = self.headers.get(name)?.reveal().parse().ok()?;
        value.set_sensitive(true);
        Some((parsed, value))
    }

    /// The headers of every request.
    pub(super) fn headers(&self) -> impl Iterator<Item = (HeaderName, HeaderValue)> + '_ {
        self.headers.keys().filter_map(|name| self.header(name))
    }
}
