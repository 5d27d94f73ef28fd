//! `kind = "amqp"`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lapin::uri::AMQPUri;
use outbox_event::units::duration;
use serde::{Deserialize, Serialize};
use url::{Host, Url};

use super::{Amqp, LIMITS, SHORT};
use crate::batching::{Limits, Link};
use crate::common::{TIMEOUT, any_subject};
use crate::kind::Kind;
use crate::rests::Rests;
use crate::{CommonConfig, Secret, Template, target, tls};

/// Most bytes of a frame, unless the address says otherwise. RabbitMQ's own.
const USUAL_FRAME: u32 = 128 << 10;
/// Most bytes of a frame, whatever the address or the broker says: lapin keeps 32 frames for each direction.
const MAX_FRAME: u32 = 1 << 20;
/// Most seconds between two heartbeats, whatever the address says. A connection that the broker blocks is not cut off: only missing
/// heartbeats show that its broker has died, after twice this time.
const MAX_HEARTBEAT: u16 = 10;

/// A connection to RabbitMQ whose messages go to an exchange.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct AmqpConfig {
    /// Where the broker is: `amqp://host:5672/vhost`, or `amqps://` with TLS. Required.
    pub url: String,
    /// The user; `None` for the one in the address, or `guest`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The user's password; `None` for the one in the address, or `guest`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
    /// Certificates in PEM to trust instead of the system's; `None` for the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// The exchange. Default empty: then the routing key is the name of a queue.
    pub exchange: String,
    /// The routing key of a message that has no subject. Default `{aggregate_type}.{event_type}`. In what an event says, spaces,
    /// `.`, `*` and `#` become `_`.
    pub routing_key: Template,
    /// Which routing keys a message may choose for itself, as patterns; `None` for any where there is an exchange that decides what
    /// becomes of them, and no keys if the key is the name of a queue. Default `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subjects: Option<Vec<String>>,
    /// The time within which the broker must have confirmed. Default 10 s; above zero.
    #[serde(with = "duration")]
    pub timeout: Duration,
}

impl Default for AmqpConfig {
    fn default() -> Self {
        Self {
            url: String::new(),
            user: None,
            password: None,
            ca_file: None,
            exchange: String::new(),
            routing_key: "{aggregate_type}.{event_type}".parse().expect("a template of ours"),
            subjects: None,
            timeout: TIMEOUT,
        }
    }
}

impl Kind for AmqpConfig {
    fn kind(&self) -> &'static str {
        "amqp"
    }

    fn target(&self) -> String {
        target::shown(&self.url)
    }

    fn common(&self) -> CommonConfig {
        let usual = || if self.exchange.is_empty() { Vec::new() } else { any_subject() };
        CommonConfig { timeout: self.timeout, subjects: self.subjects.clone().unwrap_or_else(usual), max_age: None }
    }

    fn faults(&self, prefix: &str) -> Vec<String> {
        let url = target::fault(&format!("{prefix}.url"), &self.url, &["amqp", "amqps"]);
        // The parser's error may repeat the address.
        let uri = || {
            self.uri().is_err().then(|| format!("{prefix}.url is not an AMQP address; write it like amqp://host:5672/vhost"))
        };
        let mut faults: Vec<_> = url.or_else(uri).into_iter().collect();
        faults.extend(tls::fault(prefix, self.ca_file.as_deref(), [&*self.url], "amqps"));
        if self.exchange.len() > SHORT {
            faults.push(format!("{prefix}.exchange has {} bytes; at most {SHORT} are allowed", self.exchange.len()));
        }
        faults
    }

    fn limits(&self) -> Limits {
        LIMITS
    }

    fn link(&self, name: &str, _: Rests) -> Result<Arc<dyn Link>, String> {
        Ok(Arc::new(Amqp::new(name, self.clone())?))
    }
}

impl AmqpConfig {
    pub(super) fn uri(&self) -> Result<AMQPUri, String> {
        let mut uri: AMQPUri = self.url.trim().parse()?;
        // The parser replaces an IPv6 address by `localhost`.
        if let Ok(url) = self.url.trim().parse::<Url>()
            && let Some(Host::Ipv6(address)) = url.host()
        {
            uri.authority.host = address.to_string();
        }
        let userinfo = &mut uri.authority.userinfo;
        if let Some(user) = &self.user {
            userinfo.username.clone_from(user);
        }
        if let Some(password) = &self.password {
            password.reveal().clone_into(&mut userinfo.password);
        }
        let query = &mut uri.query;
        // Without a bound of ours the broker's counts, and none at all means 4 GiB.
        query.frame_max = Some(query.frame_max.filter(|frame| *frame > 0).unwrap_or(USUAL_FRAME).min(MAX_FRAME));
        // Zero would mean no heartbeats, unless the broker asks for some.
        query.heartbeat = Some(query.heartbeat.filter(|seconds| *seconds > 0).unwrap_or(MAX_HEARTBEAT).min(MAX_HEARTBEAT));
        Ok(uri)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_of_a_broker_is_bounded_whatever_its_address_says() {
        let heartbeat = |query: &str| {
            let config = AmqpConfig { url: format!("amqp://broker/shop{query}"), ..AmqpConfig::default() };
            config.uri().expect("an address").query.heartbeat
        };
        assert_eq!(heartbeat(""), Some(MAX_HEARTBEAT));
        assert_eq!(heartbeat("?heartbeat=0"), Some(MAX_HEARTBEAT));
        assert_eq!(heartbeat("?heartbeat=300"), Some(MAX_HEARTBEAT));
        assert_eq!(heartbeat("?heartbeat=5"), Some(5));
    }
}
