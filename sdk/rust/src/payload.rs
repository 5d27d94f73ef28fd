//! What a listener function can take as its payload, besides what serde reads from JSON.

use serde::de::DeserializeOwned;

use crate::{Event, Failure};

/// A payload that is text, whatever its content type says of the text.
///
/// ```
/// use outbox_sdk::prelude::*;
///
/// listener! { "Note" / "NoteWritten" => |_: &Event, Text(note): Text| Ok(dead(note)) }
///
/// let event = Event::for_test("Note", "NoteWritten").with_bytes("text/plain", "hello");
/// assert_eq!(ThisPlugin::on_event(&event), Ok(dead("hello")));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text(pub String);

/// A payload as the very bytes that the writer wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

/// What a payload can be read as: [`Text`], [`Bytes`], and from JSON whatever derives `Deserialize`.
#[diagnostic::on_unimplemented(
    message = "a payload cannot be read as `{Self}`",
    note = "derive `Deserialize` for it to be read from JSON, or take `Text` or `Bytes`"
)]
pub trait Payload: Sized {
    /// Reads the payload.
    ///
    /// # Errors
    /// An unrecoverable failure that says what is wrong: the same bytes will never be something else.
    fn read(event: &Event) -> Result<Self, Failure>;
}

impl<T: DeserializeOwned> Payload for T {
    fn read(event: &Event) -> Result<Self, Failure> {
        event.json()
    }
}

impl Payload for Text {
    fn read(event: &Event) -> Result<Self, Failure> {
        event.text().map(|text| Self(text.to_owned()))
    }
}

impl Payload for Bytes {
    fn read(event: &Event) -> Result<Self, Failure> {
        Ok(Self(event.payload.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FailureKind;

    fn event(content_type: &str, payload: &[u8]) -> Event {
        Event::for_test("Note", "NoteWritten").with_bytes(content_type, payload)
    }

    #[test]
    fn json_is_known_by_its_content_type() {
        for content_type in ["application/json", "Application/JSON; charset=utf-8", "application/cloudevents+json", ""] {
            assert_eq!(u8::read(&event(content_type, b"7")), Ok(7), "{content_type}");
        }
        for content_type in ["text/plain", "application/octet-stream", "application/jsonish"] {
            let failure = u8::read(&event(content_type, b"7")).unwrap_err();
            assert_eq!(failure.kind, FailureKind::Unrecoverable);
            assert!(failure.message.contains(&format!("`{content_type}`")), "{}", failure.message);
        }
    }

    #[test]
    fn text_is_utf8_and_bytes_are_anything() {
        assert_eq!(Text::read(&event("text/plain; charset=\"UTF-8\"", "å".as_bytes())), Ok(Text("å".to_owned())));
        assert!(Text::read(&event("text/plain", &[0xe5])).unwrap_err().message.contains("UTF-8"));
        assert_eq!(Bytes::read(&event("text/plain", &[0xe5])), Ok(Bytes(vec![0xe5])));
    }

    #[test]
    fn text_in_another_character_set_is_not_misread() {
        let failure = Text::read(&event("text/plain; format=flowed; charset=iso-8859-1", b"abc")).unwrap_err();

        assert!(failure.message.contains("iso-8859-1"), "{}", failure.message);
    }
}
