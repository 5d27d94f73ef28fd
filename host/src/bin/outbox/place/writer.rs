//! What `event emit` writes with.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use outbox::{Envelope, EventId, Outbox, Store};

use super::answer::Written;
use super::client::Client;
use crate::config::Config;
use crate::database;
use crate::failure::Failure;

/// The largest body of a request, unless one event alone is larger: below the 2 MiB that a host takes by default.
const BODY: usize = 1 << 20;
/// The most events of one request: what a host takes by default.
const EVENTS: usize = 1_000;

/// Writes events into the database, or has a host write them.
pub(crate) enum Writer {
    Database(Outbox<Arc<dyn Store>>),
    Host(Box<HostWriter>),
}

/// Sends events to a host.
pub(crate) struct HostWriter(Client);

/// The writer of the place that the configuration means.
pub(crate) async fn writer(config: &Config) -> Result<Writer, Failure> {
    if let Some(remote) = &config.remote {
        return Ok(Writer::Host(Box::new(HostWriter(Client::new(remote)?))));
    }
    let store = database::open(config, database::Missing::Refuse).await?;
    Ok(Writer::Database(Outbox::writer_only(store).label("outbox event emit").start().await?))
}

impl Writer {
    /// Writes events; the ids of those that were not there before, in order. The database takes all or none; a host takes all or
    /// none of each request, and `written` is told of every one that it took.
    pub(crate) async fn emit(
        &self,
        envelopes: Vec<Envelope>,
        mut written: impl FnMut(&[EventId]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        match self {
            Self::Database(outbox) => written(&outbox.writer().emit(envelopes).await?),
            Self::Host(host) => {
                for body in bodies(&envelopes) {
                    written(&host.send(body).await?)?;
                }
                Ok(())
            }
        }
    }

    pub(crate) async fn close(self) {
        if let Self::Database(outbox) = self {
            outbox.shutdown().await;
        }
    }
}

impl HostWriter {
    async fn send(&self, body: String) -> Result<Vec<EventId>, Failure> {
        let answer = self.0.send::<Written>(Method::POST, "/v1/events", Bytes::from(body)).await;
        answer.map(new_ones).map_err(|refused| refused.failure(self.0.base()))
    }
}

/// The ids of the events that were written. Of an id that stands twice in a request the first is written.
fn new_ones(Written { ids, duplicates, suppressed_ids }: Written) -> Vec<EventId> {
    let mut skipped: HashMap<EventId, u32> = HashMap::new();
    for id in duplicates.into_iter().chain(suppressed_ids) {
        *skipped.entry(id).or_default() += 1;
    }
    let mut new: Vec<EventId> = Vec::with_capacity(ids.len());
    for id in ids.into_iter().rev() {
        match skipped.get_mut(&id).filter(|left| **left > 0) {
            Some(left) => *left -= 1,
            None => new.push(id),
        }
    }
    new.reverse();
    new
}

/// The bodies of the requests, each an array.
fn bodies(envelopes: &[Envelope]) -> Vec<String> {
    let (mut bodies, mut body, mut events) = (Vec::new(), String::new(), 0);
    for envelope in envelopes {
        let text = envelope.to_json();
        if events == EVENTS || events > 0 && body.len() + text.len() > BODY {
            bodies.push(format!("[{body}]"));
            body.clear();
            events = 0;
        }
        if events > 0 {
            body.push(',');
        }
        body.push_str(&text);
        events += 1;
    }
    if events > 0 {
        bodies.push(format!("[{body}]"));
    }
    bodies
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_sent_in_parts_that_a_host_takes_and_one_that_is_too_large_goes_alone() {
        let event = |bytes: usize| Envelope::new("X").bytes("text/plain", vec![b'x'; bytes]).expect("valid");
        let small: Vec<Envelope> = (0..1_001).map(|_| event(1)).collect();
        assert_eq!(bodies(&small).iter().map(|body| body.matches("event_id").count()).collect::<Vec<_>>(), [1_000, 1]);
        let mixed = [event(1), event(900 << 10), event(1), event(1)];
        let sent = bodies(&mixed);
        assert_eq!(sent.iter().map(|body| body.matches("event_id").count()).collect::<Vec<_>>(), [1, 1, 2]);
        for body in sent {
            serde_json::from_str::<Vec<serde_json::Value>>(&body).expect("an array");
        }
        assert!(bodies(&[]).is_empty());
    }

    #[test]
    fn an_id_that_stands_twice_is_new_once_and_one_that_was_there_is_not() {
        let ids = |names: &[&str]| names.iter().map(|name| name.parse().expect("an id")).collect::<Vec<EventId>>();
        let written = |all: &[&str], skipped: &[&str]| {
            new_ones(Written { ids: ids(all), duplicates: ids(skipped), suppressed_ids: Vec::new() })
        };
        assert_eq!(written(&["a", "b", "a", "c"], &["a", "c"]), ids(&["a", "b"]));
        assert_eq!(written(&["a", "a"], &["a", "a"]), ids(&[]));
        let left_out = Written { ids: ids(&["a", "s"]), duplicates: Vec::new(), suppressed_ids: ids(&["s"]) };
        assert_eq!(new_ones(left_out), ids(&["a"]), "what a hook of the host left out was not written");
    }
}
