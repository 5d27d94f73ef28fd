//! The headers of an outgoing message: the host's own, and those of the message that do no harm.

use super::Message;

/// Carries the event's id in every message. Source: requirement R-46.
pub(super) const EVENT_ID: &str = "event-id";

/// The headers that the host sets. A message's header of the same name is left out.
pub(super) const OWN: [&str; 7] =
    [EVENT_ID, "event-type", "aggregate-type", "aggregate-id", "tenant-id", "occurred-at", "content-type"];

/// The host's own headers for a message: the event's id, and the event's other fields where the event is known.
pub(super) fn own(message: &Message) -> Vec<(&'static str, String)> {
    let mut own = vec![(EVENT_ID, message.event_id.to_string())];
    if let Some(event) = &message.event {
        own.push(("event-type", event.event_type().to_string()));
        own.push(("aggregate-type", event.aggregate_type().to_string()));
        own.extend(event.aggregate_id().map(|id| ("aggregate-id", id.to_owned())));
        own.extend(event.tenant_id().map(|id| ("tenant-id", id.to_owned())));
        own.push(("occurred-at", event.occurred_at().to_string()));
    }
    own
}

/// The message's headers without those that the host sets, and without those that control the receiver (`steers`): a writer of
/// events must not be able to give orders to a broker.
pub(super) fn carried(message: &Message, steers: impl Fn(&str) -> bool) -> impl Iterator<Item = (&str, &str)> {
    let pairs = message.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    pairs.filter(move |(name, _)| {
        !name.is_empty() && !OWN.iter().any(|own| own.eq_ignore_ascii_case(name)) && !steers(&name.to_ascii_lowercase())
    })
}

/// A name as receivers behind CGI or WSGI compare it: without case, and with one character for all that are not alphanumeric.
#[cfg(feature = "http")]
pub(super) fn folded(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect()
}

/// A header name for HTTP and NATS: every character that a token may not have is written `%XX`.
#[cfg_attr(not(any(feature = "http", feature = "nats")), allow(dead_code, reason = "only some kinds of sinks need it"))]
pub(super) fn token(name: &str) -> String {
    encoded(name, |byte| byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte))
}

/// A value in printable ASCII: every other byte is written `%XX`.
#[cfg_attr(not(any(feature = "http", feature = "nats")), allow(dead_code, reason = "only some kinds of sinks need it"))]
pub(super) fn printable(value: &str) -> String {
    encoded(value, |byte| (b' '..=b'~').contains(&byte))
}

/// The text with every byte that is not `plain` as `%XX`.
pub(super) fn encoded(text: &str, plain: impl Fn(u8) -> bool) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::with_capacity(text.len()), |mut encoded, byte| {
        if plain(byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use outbox_event::EventId;

    use super::*;

    #[test]
    fn a_writers_header_replaces_none_of_the_hosts_and_steers_nobody() {
        let pair = |name: &str| (name.to_owned(), "x".to_owned());
        let message = Message {
            id: "1".to_owned(),
            event_id: EventId::generate(outbox_event::time::Timestamp::from_micros(0)),
            subject: String::new(),
            trusts_subject: false,
            key: None,
            content_type: String::new(),
            body: bytes::Bytes::new(),
            headers: ["Event-ID", "tenant_id", "aggregate.type", "Nats-Rollup", "", "traceparent"].map(pair).to_vec(),
            event: None,
        };
        let carried: Vec<&str> = carried(&message, |name| name.starts_with("nats-")).map(|(name, _)| name).collect();
        assert_eq!(carried, ["tenant_id", "aggregate.type", "traceparent"]);
        assert_eq!(own(&message), [("event-id", message.event_id.to_string())]);
    }

    #[test]
    fn nothing_in_a_header_can_begin_another() {
        assert_eq!(token("a b:ü\r\n"), "a%20b%3A%C3%BC%0D%0A");
        assert_eq!(printable("100% ü\r\nx: y"), "100% %C3%BC%0D%0Ax: y");
    }
}
