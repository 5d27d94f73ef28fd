//! Payloads for people to read. Pure, and never parsed into values: key order and the digits of numbers stay as written.

/// How much of a payload is shown.
pub(crate) const MOST: usize = 32 * 1_024;
/// How deep JSON is indented; deeper levels share a column.
const DEEPEST: usize = 40;

/// A payload as text, and what it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) text: String,
    /// `JSON`, `text`, `hex`.
    pub(crate) kind: &'static str,
    /// Whether some of it is left out.
    pub(crate) is_cut: bool,
}

/// The payload: JSON indented, other text as it is, other bytes in hex.
pub(crate) fn shown(bytes: &[u8]) -> Shown {
    let (text, kind) = match std::str::from_utf8(bytes) {
        Ok(text) if serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() => (indented(text, MOST), "JSON"),
        Ok(text) => (cut(text, MOST).to_owned(), "text"),
        Err(_) => (hex(&bytes[..bytes.len().min(MOST / 4)]), "hex"),
    };
    let is_cut = bytes.len() > if kind == "hex" { MOST / 4 } else { MOST } || text.len() >= MOST;
    Shown { text: crate::pages::words::visible(cut(&text, MOST)), kind, is_cut }
}

fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
}

/// JSON with a line for each element; ends early when it has `most` bytes.
fn indented(json: &str, most: usize) -> String {
    let mut text = String::with_capacity(json.len().min(most) * 2);
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    let mut rest = json.chars().peekable();
    let line = |text: &mut String, depth: usize| {
        text.push('\n');
        text.extend(std::iter::repeat_n("  ", depth.min(DEEPEST)));
    };
    while let Some(c) = rest.next() {
        if text.len() >= most {
            break;
        }
        if in_string {
            text.push(c);
            in_string = escaped || c != '"';
            escaped = c == '\\' && !escaped;
            continue;
        }
        match c {
            c if c.is_ascii_whitespace() => {}
            '"' => {
                in_string = true;
                text.push(c);
            }
            '{' | '[' => {
                text.push(c);
                while rest.next_if(|c| c.is_ascii_whitespace()).is_some() {}
                if let Some(end) = rest.next_if(|c| matches!(c, '}' | ']')) {
                    text.push(end);
                } else {
                    depth += 1;
                    line(&mut text, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut text, depth);
                text.push(c);
            }
            ',' => {
                text.push(c);
                line(&mut text, depth);
            }
            ':' => text.push_str(": "),
            c => text.push(c),
        }
    }
    text
}

/// Sixteen bytes a line, with their place and what is readable of them.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 5);
    for (number, line) in bytes.chunks(16).enumerate() {
        let codes: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let readable: String = line.iter().map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '.' }).collect();
        text.push_str(&format!("{:08x}  {:<47}  {readable}\n", number * 16, codes.join(" ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_the_order_of_its_keys_and_every_digit() {
        let shown = shown(br#"{"z":12345678901234567890.10, "a":[1,{}, []],"s":"a\"{,:}\\"}"#);
        assert_eq!(
            shown.text,
            "{\n  \"z\": 12345678901234567890.10,\n  \"a\": [\n    1,\n    {},\n    []\n  ],\n  \"s\": \"a\\\"{,:}\\\\\"\n}"
        );
        assert_eq!((shown.kind, shown.is_cut), ("JSON", false));
    }

    #[test]
    fn other_text_and_other_bytes_are_shown_as_what_they_are() {
        assert_eq!(shown(b"{not json").kind, "text");
        let bytes = shown(&[0, 255, b'A']);
        assert_eq!(
            (bytes.kind, bytes.text.as_str()),
            ("hex", "00000000  00 ff 41                                         ..A\n")
        );
        assert_eq!(shown(b"").kind, "text");
    }

    #[test]
    fn a_large_payload_is_cut_and_says_so() {
        for bytes in [
            vec![b'a'; 1 << 20],
            "ü".repeat(1 << 19).into_bytes(),
            vec![255; 1 << 20],
            format!("[{}1]", "1,".repeat(1 << 18)).into_bytes(),
            format!("{}1{}", "[".repeat(100), "]".repeat(100)).into_bytes(),
        ] {
            let shown = shown(&bytes);
            assert!(shown.text.len() <= MOST, "{} {}", shown.kind, shown.text.len());
            assert_eq!(shown.is_cut, bytes.len() > 1_000);
        }
    }

    #[test]
    fn nothing_in_a_payload_turns_the_direction_of_the_page() {
        assert_eq!(shown("a\u{202e}b\u{1b}[2J".as_bytes()).text, "a\\u{202e}b\\u{1b}[2J");
    }
}
