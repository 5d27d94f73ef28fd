//! HTTP requests of a guest, by the contract's own `http` interface or by `wasi:http`: to origins that the operator allows, at
//! addresses that are looked at before anything is connected, within bounds.

mod address;
mod client;
mod connector;
pub(super) mod kept;
mod lookups;
mod network;
mod plain;
#[cfg(test)]
mod tests;
pub(super) mod wasi;

use std::sync::Arc;

use http::header::{HeaderName, HeaderValue, USER_AGENT};

pub(crate) use self::client::HttpClient;
pub use self::client::HttpStandIn;
use self::client::SendError;
use self::connector::ConnectError;
pub(crate) use self::network::Network;
use outbox_event::TRACEPARENT;
use outbox_event::text::keepable;

use super::outgoing::{Counter, Outgoing};
use super::{Identity, RefusalKind};
use crate::manifest::Origin;
use crate::manifest::advice::at_the_end;

/// The header by which a receiver tells a repeated request.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Makes the requests of a guest.
pub(super) struct Requests {
    pub(super) identity: Arc<Identity>,
    /// What the call has sent, messages as well.
    pub(super) outgoing: Outgoing,
}

impl Requests {
    pub(super) fn new(identity: Arc<Identity>) -> Self {
        Self { identity, outgoing: Outgoing::default() }
    }

    /// The client, for a URL that is granted; the URL is then written in the one way by which connections are found again.
    fn granted(&self, url: &mut http::Uri) -> Result<Arc<HttpClient>, SendError> {
        let client = self.client(url)?;
        *url = canonical(std::mem::take(url)).map_err(SendError::Invalid)?;
        Ok(client)
    }

    fn client(&self, url: &http::Uri) -> Result<Arc<HttpClient>, SendError> {
        let Some(client) = &self.identity.grants.http else {
            let origin = Origin::of(url).map_err(SendError::Invalid)?;
            return Err(SendError::NotAllowed(origin));
        };
        client.check(url)?;
        Ok(client.clone())
    }

    /// Adds what the host says of itself and of the event, where the guest has not; counts the request. `id` is the event's in a
    /// call for several.
    fn complete(&mut self, headers: &mut http::HeaderMap, id: Option<&str>) -> Result<(), SendError> {
        let event = self
            .outgoing
            .next_of(Counter::Requests, id)
            .map_err(|fault| SendError::Invalid(format!("the request is not valid: {fault}")))?;
        let mut add = |name: HeaderName, value: String| {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.entry(name).or_insert(value);
            }
        };
        add(USER_AGENT, format!("outbox/{} ({})", env!("CARGO_PKG_VERSION"), self.identity.name));
        if let Some((event, count)) = event {
            add(IDEMPOTENCY_KEY, format!("{}.{count}", event.id()));
            if let Some(trace) = event.traceparent() {
                add(HeaderName::from_static(TRACEPARENT), trace.to_owned());
            }
        }
        Ok(())
    }
}

/// A URL in the one way in which it is written in requests: the host in lower case, no port that the scheme implies, a path.
///
/// # Errors
/// When no request can be made to it.
pub(crate) fn canonical_url(url: &str) -> Result<String, String> {
    let url: http::Uri = url.parse().map_err(|error: http::uri::InvalidUri| error.to_string())?;
    canonical(url).map(|url| url.to_string())
}

fn canonical(url: http::Uri) -> Result<http::Uri, String> {
    let origin = Origin::of(&url)?;
    let mut parts = url.into_parts();
    parts.authority = Some(origin.authority().parse().map_err(|error: http::uri::InvalidUri| error.to_string())?);
    http::Uri::from_parts(parts).map_err(|error| error.to_string())
}

/// What an error means for the guest. The operator is told in the log what to add to the manifest, once for each thing.
fn refused(identity: &Identity, error: &SendError) -> (RefusalKind, String) {
    let name = &identity.name;
    let kind = match error {
        SendError::NotAllowed(origin) => {
            let origin = keepable(&identity.grants.hide(&origin.to_string()), 200);
            let advice = match &identity.grants.http {
                Some(_) => format!("add `\"{origin}\"` to http.allow in {name}.toml"),
                None => at_the_end("http", &format!("allow = [\"{origin}\"]"), name),
            };
            identity.refused(&format!("a request to {origin}"), &advice);
            return (RefusalKind::NotGranted, format!("requests to {origin} are not granted to the plugin {name}; {advice}"));
        }
        SendError::Connect(ConnectError::Private { host, address }) => {
            // The guest is not told the address: it would map the operator's network.
            let advice =
                format!("it is at {address}, which is not public; add \"{address}\" to http.allow_private in {name}.toml");
            identity.refused(&format!("a request to {host}"), &advice);
            let told = format!(
                "{host} is at an address that is not public; add it to http.allow_private in {name}.toml (the host's log has the address)"
            );
            return (RefusalKind::NotGranted, told);
        }
        SendError::Invalid(_) => RefusalKind::Invalid,
        SendError::TooLarge(_) => RefusalKind::OverLimit,
        SendError::Connect(_) | SendError::TimedOut(_) | SendError::Busy(_) | SendError::Broken(_) => RefusalKind::Unavailable,
    };
    (kind, error.to_string())
}
