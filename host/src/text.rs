//! Untrusted text made fit for people: nothing in it moves a cursor, hides, or fills a disk.

use std::borrow::Cow;
use std::fmt::Write;

use crate::deceptive::is_deceptive;

/// Where control, ANSI and bidirectional characters become `\u{…}`. Borrowed when there is none, which is nearly always.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
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

/// The first `max` bytes at most, cut between two characters.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// Text of a guest or of another side that is kept or logged: cut to `max` bytes, escaped, and saying how much is missing.
pub(crate) fn keepable(text: &str, max: usize) -> String {
    let kept = cut(text, max);
    match text.len() - kept.len() {
        0 => escape(kept).into_owned(),
        missing => format!("{}… ({missing} bytes more)", escape(kept)),
    }
}

/// What is wrong with a text in TOML, and where, on one line: it stands in log records and in lists.
pub(super) fn toml_fault(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().trim_end().replace('\n', ", ");
    // What is wrong with the values together is told of the whole text.
    let place = error.span().filter(|span| span.start > 0 || span.end < text.trim_end().len());
    let Some(before) = place.and_then(|span| text.get(..span.start)) else { return message };
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|char| *char != '\n').count() + 1;
    format!("line {line}, column {column}: {message}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_in_toml_is_one_line_with_its_place() {
        let fault = |text: &str| toml_fault(text, &toml::from_str::<crate::wasm::Manifest>(text).unwrap_err());
        assert!(
            fault("[limits]\nfuel = 1\nfule = 3\n")
                .starts_with("line 3, column 1: unknown field `fule`, expected one of `fuel`")
        );
        assert!(fault("[limits\n").starts_with("line 1, column "), "{}", fault("[limits\n"));
        assert!(fault("a = \"ü\"\nisolation = \"x\"").starts_with("line "));
        assert_eq!(fault("limits.fuel = 0\n"), "limits.fuel is 0; it must be at least 1");
        for text in ["[limits", "x", "= 3", "a = [1,\n2", "isolation = 'thread'", "[config]\nhttp.allow = []", "emit = 'all'"] {
            assert_eq!(fault(text).lines().count(), 1, "{text}");
        }
    }

    #[test]
    fn what_could_deceive_a_reader_is_escaped_and_the_rest_is_left_alone() {
        assert!(matches!(escape("Grüße,\tWelt"), Cow::Borrowed(_)));
        assert_eq!(escape("a\r\nb\0\x1b[31m\u{202e}x\u{9b}"), "a\\r\\nb\\u{0}\\u{1b}[31m\\u{202e}x\\u{9b}");
    }

    #[test]
    fn a_cut_falls_between_two_characters_and_is_told() {
        assert_eq!(keepable("ääää", 5), "ää… (4 bytes more)");
        assert_eq!(keepable("short", 5), "short");
    }
}
