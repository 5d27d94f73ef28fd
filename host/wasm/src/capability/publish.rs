//! The `publish` interface: messages to the sinks that the operator granted. They are out when their sink has confirmed them,
//! whatever the listener answers.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use outbox_event::text::keepable;
use outbox_listener::Reminder;
use outbox_sink::{Message as Outgoing, Sink, SinkError, Sinks};

use super::log::TARGET;
use super::outgoing::Counter;
use super::{HostState, Identity, event_of, not_granted, refusal};
use crate::bindings::outbox::listener::publish::{Host, Message};
use crate::bindings::outbox::listener::types::{Refusal, RefusalKind};
use crate::limits::pairs_bytes;
use crate::manifest::advice::at_the_end;

/// The most messages of one call of `send-all`.
const MAX_MESSAGES: usize = 1_000;
/// The most headers of a message, and the most bytes of them.
const MAX_HEADERS: (usize, usize) = (100, 16 << 10);
/// The longest subject, key and content type.
const MAX_TEXT_BYTES: usize = 1_024;

/// The sinks that a plugin may publish to.
#[derive(Debug)]
pub(crate) struct PublishGrant {
    pub(crate) names: BTreeSet<String>,
    pub(crate) sinks: Sinks,
    /// Whether the log has just said why a sink failed.
    pub(crate) told: Mutex<Reminder>,
}

impl Host for HostState {
    async fn send(&mut self, sink: String, message: Message) -> wasmtime::Result<Result<(), Refusal>> {
        self.meter.charge(sink.len() + size(&message))?;
        let found = match self.granted_sink(&sink) {
            Ok(found) => found,
            Err(refused) => return Ok(Err(refused)),
        };
        let message = match self.outgoing(message) {
            Ok(message) => message,
            Err(refused) => return Ok(Err(refused)),
        };
        let sent = found.send(&[message]).await.pop().unwrap_or_else(SinkError::unanswered);
        Ok(sent.map_err(|error| self.told(&sink, &error)))
    }

    async fn send_all(&mut self, sink: String, messages: Vec<Message>) -> wasmtime::Result<Vec<Result<(), Refusal>>> {
        self.meter.charge(sink.len())?;
        for message in &messages {
            self.meter.charge(size(message))?;
        }
        let count = messages.len();
        let all = |refused: Refusal| vec![Err(refused); count];
        let found = match self.granted_sink(&sink) {
            Ok(found) => found,
            Err(refused) => return Ok(all(refused)),
        };
        if count > MAX_MESSAGES {
            let message = format!("one call may send at most {MAX_MESSAGES} messages; this one has {count}");
            return Ok(all(refusal(RefusalKind::OverLimit, message)));
        }
        let checked: Vec<Result<Outgoing, Refusal>> = messages.into_iter().map(|message| self.outgoing(message)).collect();
        let fine: Vec<Outgoing> = checked.iter().filter_map(|message| message.as_ref().ok().cloned()).collect();
        let mut sent = found.send(&fine).await.into_iter();
        let answers = checked.into_iter().map(|message| match message {
            Ok(_) => sent.next().unwrap_or_else(SinkError::unanswered).map_err(|error| self.told(&sink, &error)),
            Err(refused) => Err(refused),
        });
        Ok(answers.collect())
    }
}

impl HostState {
    /// What the guest is told of a failure, of which the log says more.
    fn told(&self, sink: &str, error: &SinkError) -> Refusal {
        let Identity { name, digest, grants, .. } = &*self.identity;
        let is_due =
            |grant: &Arc<PublishGrant>| grant.told.lock().unwrap_or_else(PoisonError::into_inner).is_due(Instant::now().into());
        if grants.publish.as_ref().is_some_and(is_due) {
            let error = grants.hide(&error.to_string()).into_owned();
            tracing::warn!(target: TARGET, plugin = name, digest, sink, error, "a message of the plugin was not confirmed");
        }
        // The reason is for the operator: it names the sink's address and repeats what the other side said.
        let (kind, what) = match error {
            SinkError::Rejected { .. } | SinkError::Denied { .. } => (RefusalKind::Invalid, "refused the message"),
            SinkError::Down { .. } => (RefusalKind::Unavailable, "is down"),
            _ => (RefusalKind::Unavailable, "did not confirm the message"),
        };
        refusal(kind, format!("the sink {sink} {what}"))
    }

    fn granted_sink(&self, sink: &str) -> Result<Arc<dyn Sink>, Refusal> {
        let name = &self.identity.name;
        let grant = self.identity.grants.publish.as_ref().filter(|grant| grant.names.contains(sink));
        if let Some(found) = grant.and_then(|grant| grant.sinks.get(sink)) {
            return Ok(found);
        }
        // Before it is cut: half a secret is not found.
        let sink = keepable(&self.identity.grants.hide(sink), 100);
        let advice = match &self.identity.grants.publish {
            Some(_) => format!("add `\"{sink}\"` to publish.sinks in {name}.toml"),
            None => at_the_end("publish", &format!("sinks = [\"{sink}\"]"), name),
        };
        self.identity.refused(&format!("a message to the sink `{sink}`"), &advice);
        Err(not_granted(format!("publishing to the sink `{sink}` is not granted to the plugin {name}; {advice}")))
    }

    /// The message as it goes out: named after its event and its number, so that a repeat can be told.
    fn outgoing(&mut self, message: Message) -> Result<Outgoing, Refusal> {
        let invalid = |what: String| refusal(RefusalKind::Invalid, format!("the message is not valid: {what}"));
        let Message { subject, key, content_type, body, headers, attributes } = message;
        let named = event_of(attributes).map_err(|attribute| {
            invalid(format!("it has the attribute `{}`, which this host does not know", keepable(&attribute, 100)))
        })?;
        for (what, text) in [("subject", Some(&subject)), ("key", key.as_ref()), ("content type", Some(&content_type))] {
            let wrong = |text: &String| text.len() > MAX_TEXT_BYTES || text.chars().any(char::is_control);
            if text.is_some_and(wrong) {
                return Err(invalid(format!("its {what} must have at most {MAX_TEXT_BYTES} bytes and no control characters")));
            }
        }
        check_headers(&headers).map_err(invalid)?;
        let next = self.requests.outgoing.next_of(Counter::Messages, named.as_deref()).map_err(invalid)?;
        let (event, number) = next.ok_or_else(|| {
            invalid(
                "in on-events it says in its attribute `event-id` for which event it is, and elsewhere none is sent".to_owned(),
            )
        })?;
        Ok(Outgoing {
            id: format!("{}.{number}", event.id()),
            event_id: event.id(),
            subject,
            trusts_subject: false,
            key,
            content_type,
            body: Bytes::from(body),
            headers,
            event: Some(event),
        })
    }
}

/// Refuses headers that some sink could not send: too many, too long, or with control characters.
fn check_headers(headers: &[(String, String)]) -> Result<(), String> {
    let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    let (most, most_bytes) = MAX_HEADERS;
    if headers.len() > most || bytes > most_bytes {
        let count = headers.len();
        return Err(format!(
            "it has {count} headers of {bytes} bytes; a message may have at most {most} headers of {most_bytes} bytes together"
        ));
    }
    let has_control = |text: &String| text.chars().any(char::is_control);
    match headers.iter().find(|(name, value)| has_control(name) || has_control(value)) {
        Some((name, _)) => Err(format!("the header `{}` has control characters", keepable(name, 100))),
        None => Ok(()),
    }
}

fn size(message: &Message) -> usize {
    let texts = message.subject.len() + message.content_type.len() + message.key.as_ref().map_or(0, String::len);
    texts + message.body.len() + pairs_bytes(&message.headers) + pairs_bytes(&message.attributes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_with_control_characters_or_beyond_the_limits_are_refused() {
        let headers = |name: &str, value: &str, count| vec![(name.to_owned(), value.to_owned()); count];

        assert_eq!(check_headers(&headers("x-shop", "größe 7\u{a0}", MAX_HEADERS.0)), Ok(()));
        for (name, value) in [("x\r\nset-cookie", "a"), ("x", "a\r\nset-cookie: b"), ("x\0", "a"), ("x", "a\u{85}")] {
            let refused = check_headers(&headers(name, value, 1)).expect_err("control characters");
            assert!(refused.contains("control characters") && !refused.chars().any(char::is_control), "{refused}");
        }
        assert!(check_headers(&headers("x", "a", MAX_HEADERS.0 + 1)).is_err_and(|why| why.contains("at most")), "too many");
        assert!(
            check_headers(&headers("x", &"a".repeat(MAX_HEADERS.1), 1)).is_err_and(|why| why.contains("bytes")),
            "too long"
        );
    }
}
