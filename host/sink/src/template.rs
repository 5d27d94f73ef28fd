//! Subjects made from the fields of an event: `orders.{event_type}`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Message;

/// Why a text is not a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// There is no such placeholder.
    #[error("{{{0}}} is not known; there are {KNOWN}")]
    Unknown(String),
    /// A brace without its other half.
    #[error("a brace in `{0}` has no other half; placeholders are {KNOWN}")]
    Brace(String),
}

const KNOWN: &str = "{aggregate_type}, {event_type}, {aggregate_id}, {tenant_id}, {event_id}, {subject} and {key}";

/// A text with placeholders: `{aggregate_type}`, `{event_type}`, `{aggregate_id}`, `{tenant_id}`, `{event_id}`, `{key}`, and
/// `{subject}`, the message's own subject. A field that the message does not have becomes `_`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Field(Field),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    AggregateType,
    EventType,
    AggregateId,
    TenantId,
    EventId,
    Subject,
    Key,
}

impl Field {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "aggregate_type" => Self::AggregateType,
            "event_type" => Self::EventType,
            "aggregate_id" => Self::AggregateId,
            "tenant_id" => Self::TenantId,
            "event_id" => Self::EventId,
            "subject" => Self::Subject,
            "key" => Self::Key,
            _ => return None,
        })
    }

    /// The value of the field; empty for none.
    fn value(self, message: &Message) -> Cow<'_, str> {
        let event = message.event.as_deref();
        Cow::Borrowed(match self {
            Self::EventId => return Cow::Owned(message.event_id.to_string()),
            Self::AggregateType => event.map_or("", |event| event.aggregate_type().as_str()),
            Self::EventType => event.map_or("", |event| event.event_type().as_str()),
            Self::AggregateId => event.and_then(|event| event.aggregate_id()).unwrap_or_default(),
            Self::TenantId => event.and_then(|event| event.tenant_id()).unwrap_or_default(),
            Self::Subject => &message.subject,
            Self::Key => message.key.as_deref().unwrap_or_default(),
        })
    }
}

impl Template {
    /// The text for a message. Values of the event go through `clean`: a writer of events must not choose more of a subject
    /// than the template gives them.
    #[must_use]
    pub fn render(&self, message: &Message, clean: impl Fn(&str) -> String) -> String {
        self.parts.iter().fold(String::with_capacity(64), |mut text, part| {
            match part {
                Part::Text(own) => text.push_str(own),
                Part::Field(field) => match field.value(message) {
                    value if value.is_empty() => text.push('_'),
                    value => text.push_str(&clean(&value)),
                },
            }
            text
        })
    }

    /// The name of the subject, stream, topic, routing key or path for a message: its own, or else the text for it.
    #[cfg_attr(
        not(any(feature = "amqp", feature = "kafka", feature = "nats", feature = "redis")),
        expect(dead_code, reason = "the other kinds of sinks have no subjects")
    )]
    pub(super) fn subject_of<'m>(&self, message: &'m Message, clean: impl Fn(&str) -> String) -> Cow<'m, str> {
        if message.subject.is_empty() { Cow::Owned(self.render(message, clean)) } else { Cow::Borrowed(&message.subject) }
    }

    /// The text as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The parts of the text that are no placeholders.
    #[cfg_attr(
        not(any(feature = "kafka", feature = "nats")),
        expect(dead_code, reason = "the other kinds of sinks take any text")
    )]
    pub(super) fn literals(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            Part::Field(_) => None,
        })
    }
}

impl FromStr for Template {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Self, TemplateError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let broken = || TemplateError::Brace(text.to_owned());
            if at > 0 {
                parts.push(Part::Text(rest[..at].to_owned()));
            }
            let inner = rest[at..].strip_prefix('{').ok_or_else(broken)?;
            let (name, after) = inner.split_once('}').ok_or_else(broken)?;
            parts.push(Part::Field(Field::of(name).ok_or_else(|| TemplateError::Unknown(name.to_owned()))?));
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self { text: text.to_owned(), parts })
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Template {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use outbox_event::{Envelope, Event};

    use super::*;

    fn message() -> Message {
        let envelope = Envelope::new("OrderPlaced").aggregate("Order", "a.b").json(&1).expect("valid");
        Message::of_event(&Arc::new(Event::of(envelope).build()))
    }

    #[test]
    fn placeholders_are_cleaned_and_the_templates_own_text_is_not() {
        let template: Template = "shop.{aggregate_type}.{aggregate_id}.{tenant_id}".parse().expect("valid");
        let text = template.render(&message(), |value| value.replace('.', "_"));
        assert_eq!(text, "shop.Order.a_b._");
    }

    #[test]
    fn what_is_no_template_is_told_with_the_placeholders_that_there_are() {
        let error = |text: &str| text.parse::<Template>().expect_err("no template").to_string();
        assert!(error("{typ}").starts_with("{typ} is not known; there are {aggregate_type},"), "{}", error("{typ}"));
        assert!(error("a{event_type").contains("no other half"));
        assert!(error("a}").contains("no other half"));
    }
}
