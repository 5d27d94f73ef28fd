//! Characters that make a text look like something else than it is, and text of others made safe for a terminal and a shell.

use std::borrow::Cow;

/// Whether a character could forge a line, drive a terminal, show text in another order than it has, or make two names look
/// alike because nobody sees it. Variation selectors, which emoji have, are left as they are.
#[must_use]
pub fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Text of a guest or a payload, safe for a terminal: nothing in it can move the cursor, colour, or hide what follows.
#[must_use]
pub fn shown(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_deceptive) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().fold(String::with_capacity(text.len() + 8), |mut safe, c| {
        if is_deceptive(c) {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
        safe
    }))
}

/// A name in a sentence or a table: in quotes if a space at an end of it would look like none.
#[must_use]
pub fn visible(name: &str) -> Cow<'_, str> {
    if name.trim() == name { Cow::Borrowed(name) } else { Cow::Owned(format!("\"{name}\"")) }
}

/// A JSON document that cannot control a terminal, with the same meaning. JSON allows these characters in strings alone, where an escape
/// stands for each of the units of UTF-16 that a character has. Line breaks between values stay.
#[must_use]
pub fn json(document: &str) -> Cow<'_, str> {
    let is_escaped = |c: char| c != '\n' && is_deceptive(c);
    if !document.chars().any(is_escaped) {
        return Cow::Borrowed(document);
    }
    Cow::Owned(document.chars().fold(String::with_capacity(document.len() + 16), |mut safe, c| {
        if is_escaped(c) {
            safe.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            safe.push(c);
        }
        safe
    }))
}

/// A word of a command line as a shell takes it whole: in quotes where it has to be.
#[must_use]
pub fn argument(word: &str) -> String {
    let word = shown(word);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_shown_can_steer_the_terminal() {
        assert_eq!(shown("plain ünïcode"), "plain ünïcode");
        assert_eq!(shown("a\u{1b}[31mred\r\n"), "a\\u{1b}[31mred\\r\\n");
        assert_eq!(shown("\u{202e}txt.exe\u{9b}2J"), "\\u{202e}txt.exe\\u{9b}2J");
        assert_eq!(shown("Ord\u{200b}er"), "Ord\\u{200b}er", "nobody would see it");
    }

    #[test]
    fn a_name_with_a_space_at_an_end_is_quoted() {
        assert_eq!(
            [visible("Order/A"), visible(" Order/A"), visible("Order/A\u{a0}")],
            ["Order/A", "\" Order/A\"", "\"Order/A\u{a0}\""]
        );
    }

    #[test]
    fn a_word_that_a_shell_would_read_otherwise_is_quoted() {
        assert_eq!(argument("Order/OrderPlaced"), "Order/OrderPlaced");
        assert_eq!([argument("Order/*"), argument("it's"), argument("")], ["'Order/*'", r"'it'\''s'", "''"]);
    }
}
