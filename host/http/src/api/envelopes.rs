//! From the body of a request to envelopes, whatever its form.

use axum::http::HeaderMap;
use outbox_event::wording::in_words;
use outbox_event::{Envelope, EnvelopeJsonError};
use serde_json::value::RawValue;

use super::super::body::{media_type, text};
use super::super::problem::{FieldError, Kind, Problem};
use super::cloud_events;
use super::fault::{Fault, of_envelope};

/// The most faults that one answer tells.
const TOLD: usize = 20;

/// How the events of a request are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Our own JSON envelope, or an array of them.
    Envelope,
    /// One CloudEvent as JSON.
    CloudEvent,
    /// An array of CloudEvents.
    CloudEvents,
    /// A CloudEvent whose attributes are headers.
    Binary,
}

impl Form {
    /// The form that the headers tell.
    ///
    /// # Errors
    /// 415.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        // In binary mode the payload may be anything, in any charset.
        let is_cloud_event = headers.contains_key("ce-specversion") || headers.contains_key("ce-id");
        let kind = match media_type(headers) {
            Err(_) if is_cloud_event => return Ok(Self::Binary),
            kind => kind?,
        };
        match kind.as_str() {
            "application/cloudevents+json" => Ok(Self::CloudEvent),
            "application/cloudevents-batch+json" => Ok(Self::CloudEvents),
            _ if is_cloud_event => Ok(Self::Binary),
            "application/json" => Ok(Self::Envelope),
            other => Err(Problem::new(
                Kind::UnsupportedMediaType,
                format!(
                    "the Content-Type is `{other}`; send application/json, application/cloudevents+json, \
                     application/cloudevents-batch+json, or a CloudEvent in binary mode with ce- headers"
                ),
            )),
        }
    }

    /// Whether the body is one event and no array.
    pub(super) fn is_single(self, body: &[u8]) -> bool {
        match self {
            Self::CloudEvent | Self::Binary => true,
            Self::CloudEvents => false,
            Self::Envelope => !body.trim_ascii_start().starts_with(b"["),
        }
    }

    /// The events, in order.
    ///
    /// # Errors
    /// 400 when the body is not JSON, 413 when there are more than `most` events or a payload is too large, 422 with every
    /// field that breaks a rule.
    pub(super) fn envelopes(self, headers: &HeaderMap, body: &[u8], most: usize) -> Result<Vec<Envelope>, Problem> {
        if self == Self::Binary {
            return checked(vec![cloud_events::binary(headers, body)], true);
        }
        let text = text(body)?;
        let single = self.is_single(body);
        let malformed = |error: serde_json::Error| Problem::new(Kind::MalformedJson, error.to_string());
        let elements: Vec<&RawValue> = if single {
            vec![serde_json::from_str(text).map_err(malformed)?]
        } else {
            // Every JSON value may be an element here, so that an error is one of JSON's own.
            serde_json::from_str(text).map_err(|error| match error.classify() {
                serde_json::error::Category::Data => Problem::field("body", "it is not an array of events"),
                _ => malformed(error),
            })?
        };
        if elements.len() > most {
            let detail = format!("the request has {} events; at most {most} are allowed: send them in parts", elements.len());
            return Err(Problem::new(Kind::TooLarge, detail));
        }
        let read = |element: &RawValue| {
            if !element.get().starts_with('{') {
                return Err(Fault::new("body", "it is not a JSON object"));
            }
            match self {
                Self::Envelope => Envelope::from_json(element.get().as_bytes()).map_err(|error| of_json(&error)),
                _ => cloud_events::structured(element.get()),
            }
        };
        checked(elements.into_iter().map(read), single)
    }
}

/// All of them, or all that is wrong with them.
fn checked(read: impl IntoIterator<Item = Result<Envelope, Fault>>, single: bool) -> Result<Vec<Envelope>, Problem> {
    let (mut envelopes, mut errors, mut kind) = (Vec::new(), Vec::new(), Kind::Invalid);
    for (index, envelope) in read.into_iter().enumerate() {
        match envelope {
            Ok(envelope) => envelopes.push(envelope),
            Err(fault) => {
                if fault.is_too_large {
                    kind = Kind::TooLarge;
                }
                let error = FieldError::new(fault.field, fault.detail);
                errors.push(if single { error } else { error.at(index) });
                if errors.len() == TOLD {
                    break;
                }
            }
        }
    }
    if errors.is_empty() { Ok(envelopes) } else { Err(Problem::with_errors(kind, errors)) }
}

fn of_json(error: &EnvelopeJsonError) -> Fault {
    match error {
        EnvelopeJsonError::Json(error) => Fault::new("body", in_words(&error.to_string())),
        EnvelopeJsonError::Field { field, why } => Fault::new(field, why),
        EnvelopeJsonError::Payload => Fault::new("payload", error.to_string()),
        EnvelopeJsonError::Base64(why) => Fault::new("payload_base64", format!("it is not standard base64: {why}")),
        EnvelopeJsonError::Envelope(error) => of_envelope(error),
        _ => Fault::new("body", error.to_string()),
    }
}
