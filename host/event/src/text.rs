//! Untrusted text made fit for people: nothing in it moves a cursor, hides, or fills a disk.

use std::borrow::Cow;
use std::fmt::Write;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::deceptive::is_deceptive;

/// Where control, ANSI and bidirectional characters become `\u{…}`. Borrowed when there is none, which is nearly always.
#[must_use]
pub fn escape(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) || !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            c if is_unsafe(c) => write!(escaped, "\\u{{{:x}}}", u32::from(c)).expect("a String takes everything"),
            c => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

fn is_unsafe(c: char) -> bool {
    c != '\t' && is_deceptive(c)
}

/// What has to be encoded in an address: all but what RFC 3986 calls unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A text as one part of the path or the query of an address, whatever it holds.
#[must_use]
pub fn encoded(text: &str) -> String {
    // As a part of a path these two would lead elsewhere.
    if matches!(text, "." | "..") {
        return text.replace('.', "%2E");
    }
    utf8_percent_encode(text, RESERVED).to_string()
}

/// The first `max` bytes at most, cut between two characters.
#[must_use]
pub fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// Keeps the first `max` bytes at most, and says by a `…` that there were more.
pub fn shorten(text: &mut String, max: usize) {
    let kept = cut(text, max).len();
    if kept < text.len() {
        text.truncate(kept);
        text.push('…');
    }
}

/// The beginning of a text, escaped, `max` bytes of it at most; and how many bytes of the text that is. An escape is not cut in two.
#[must_use]
pub fn escape_within(text: &str, max: usize) -> (Cow<'_, str>, usize) {
    let kept = cut(text, max);
    let escaped = escape(kept);
    if escaped.len() <= max {
        return (escaped, kept.len());
    }
    let (mut escaped, mut taken) = (String::with_capacity(max), 0);
    for c in kept.chars() {
        let mut bytes = [0; 4];
        let next = escape(c.encode_utf8(&mut bytes));
        if escaped.len() + next.len() > max {
            break;
        }
        escaped.push_str(&next);
        taken += c.len_utf8();
    }
    (Cow::Owned(escaped), taken)
}

/// Text of a guest or of another side that is kept or logged: escaped, of `max` bytes at most, and saying how much is missing.
#[must_use]
pub fn keepable(text: &str, max: usize) -> String {
    let (kept, taken) = escape_within(text, max);
    match text.len() - taken {
        0 => kept.into_owned(),
        missing => format!("{kept}… ({missing} bytes more)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_deceive_a_reader_is_escaped_and_the_rest_is_left_alone() {
        assert!(matches!(escape("Grüße,\tWelt"), Cow::Borrowed(_)));
        assert_eq!(escape("a\r\nb\0\x1b[31m\u{202e}x\u{9b}"), "a\\r\\nb\\u{0}\\u{1b}[31m\\u{202e}x\\u{9b}");
    }

    #[test]
    fn an_escaped_text_is_no_longer_than_it_may_be_and_no_escape_is_cut_in_two() {
        assert_eq!(escape_within("a\x1bb", 6), (Cow::Borrowed("a"), 1));
        assert_eq!(escape_within("a\x1bb", 7).0, "a\\u{1b}");
        assert_eq!(escape_within("a\x1bb", 8), ("a\\u{1b}b".into(), 3));
        assert_eq!(keepable(&"\x1b".repeat(1_000), 60), format!("{}… (990 bytes more)", "\\u{1b}".repeat(10)));
        assert_eq!(keepable("üü", 3), "ü… (2 bytes more)");
    }

    #[test]
    fn a_text_in_an_address_is_one_part_of_it() {
        assert_eq!(encoded("ü/ \"<>&=?#%+"), "%C3%BC%2F%20%22%3C%3E%26%3D%3F%23%25%2B");
        assert_eq!(["a-B.c_9~", ".", ".."].map(encoded), ["a-B.c_9~", "%2E", "%2E%2E"]);
    }

    #[test]
    fn a_cut_falls_between_two_characters_and_is_told() {
        assert_eq!(keepable("ääää", 5), "ää… (4 bytes more)");
        assert_eq!(keepable("short", 5), "short");
    }
}
