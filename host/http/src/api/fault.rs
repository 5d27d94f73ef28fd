//! Why an element of a request is no event, by the field that is wrong.

use outbox_event::EnvelopeError;

/// Why one element is no event.
pub(super) struct Fault {
    pub(super) field: String,
    pub(super) detail: String,
    pub(super) is_too_large: bool,
}

impl Fault {
    pub(super) fn new(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { field: field.into(), detail: detail.into(), is_too_large: false }
    }
}

/// The field that breaks a rule of envelopes.
pub(super) fn of_envelope(error: &EnvelopeError) -> Fault {
    Fault {
        is_too_large: matches!(error, EnvelopeError::PayloadTooLarge { .. }),
        ..Fault::new(error.field(), error.to_string())
    }
}
