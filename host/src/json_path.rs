//! Where in a JSON text a reader stopped.

use std::fmt::Write as _;

/// What is open at a place of the text.
enum Open {
    /// An object, and the key whose value is read or was read last; `None` before the first.
    Object(Option<String>),
    /// An array, and the index of the element.
    Array(usize),
}

/// The field that an error means: the one that its message names, or the one that was being read; `None` for the text as a whole.
pub(crate) fn field(text: &[u8], error: &serde_json::Error) -> Option<String> {
    let message = error.to_string();
    let named =
        ["unknown field `", "missing field `", "duplicate field `"].iter().find_map(|about| message.strip_prefix(about));
    let name = named.and_then(|rest| rest.split('`').next()).map(str::to_owned);
    name.or_else(|| Some(path(text, error.line(), error.column())).filter(|path| !path.is_empty()))
}

/// The value at which a reader of `text` stopped, as `items[1].price`; empty for the text as a whole. `line` and `column` are those of
/// the error: counted from 1, and how many bytes of the line had been read.
pub(crate) fn path(text: &[u8], line: usize, column: usize) -> String {
    let start: usize = text.split_inclusive(|byte| *byte == b'\n').take(line.saturating_sub(1)).map(<[u8]>::len).sum();
    let read = &text[..text.len().min(start + column)];
    let mut open: Vec<Open> = Vec::new();
    // The last string outside of a value: a key, once its colon has come.
    let mut string = None;
    let mut at = 0;
    while let Some(byte) = read.get(at) {
        let begin = at;
        at += 1;
        match byte {
            b'"' => {
                at += string_len(&read[at..]);
                string = Some(begin..at);
            }
            b'{' => open.push(Open::Object(None)),
            b'[' => open.push(Open::Array(0)),
            b'}' | b']' => {
                open.pop();
            }
            b':' => {
                if let (Some(Open::Object(key)), Some(string)) = (open.last_mut(), string.take()) {
                    *key = serde_json::from_slice(&read[string]).ok();
                }
            }
            b',' => match open.last_mut() {
                Some(Open::Object(key)) => *key = None,
                Some(Open::Array(index)) => *index += 1,
                None => {}
            },
            _ => {}
        }
    }
    let mut path = String::new();
    for open in open {
        let written = match open {
            Open::Object(Some(key)) if is_plain(&key) && path.is_empty() => write!(path, "{key}"),
            Open::Object(Some(key)) if is_plain(&key) => write!(path, ".{key}"),
            Open::Object(Some(key)) => write!(path, "[{key:?}]"),
            Open::Object(None) => Ok(()),
            Open::Array(index) => write!(path, "[{index}]"),
        };
        written.expect("writing to a string cannot fail");
    }
    path
}

/// How many bytes a string has after its opening quote, the closing one included.
fn string_len(text: &[u8]) -> usize {
    let mut is_escaped = false;
    let end = text.iter().position(|byte| match byte {
        _ if is_escaped => {
            is_escaped = false;
            false
        }
        b'\\' => {
            is_escaped = true;
            false
        }
        byte => *byte == b'"',
    });
    end.map_or(text.len(), |end| end + 1)
}

fn is_plain(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|char| char.is_alphanumeric() || char == '_' || char == '-')
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde::de::DeserializeOwned;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read")]
    struct Order {
        id: u32,
        #[serde(default)]
        items: Vec<Item>,
        #[serde(default)]
        notes: BTreeMap<String, Vec<(bool, u8)>>,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only read")]
    struct Item {
        price: f64,
        #[serde(default)]
        kind: Kind,
    }

    #[derive(Debug, Default, Deserialize)]
    enum Kind {
        #[default]
        New,
    }

    fn stopped_at<T: DeserializeOwned + std::fmt::Debug>(text: &str) -> String {
        let error = serde_json::from_slice::<T>(text.as_bytes()).expect_err(text);
        path(text.as_bytes(), error.line(), error.column())
    }

    #[test]
    fn the_value_that_does_not_fit_is_named() {
        for (text, place) in [
            (r#"{"id": "x"}"#, "id"),
            (r#"{"id": -1, "items": []}"#, "id"),
            (r#"{"id": {"a": [1, 2]}}"#, "id"),
            (r#"{"id": 1, "items": {}}"#, "items"),
            (r#"{"id": 1, "items": [{"price": 1}, {"price": "2"}]}"#, "items[1].price"),
            (r#"{"id": 1, "items": [{"price": 1, "kind": "Old"}]}"#, "items[0].kind"),
            (r#"{"id": 1, "notes": {"a,b]\"{": [[true, 1], [true, 256]]}}"#, r#"notes["a,b]\"{"][1][1]"#),
            ("{\"id\": 1,\n \"items\": [\n{\"price\": true}]}", "items[0].price"),
        ] {
            assert_eq!(stopped_at::<Order>(text), place, "{text}");
        }
    }

    #[test]
    fn what_is_missing_or_too_much_is_looked_for_where_it_should_be() {
        for (text, place) in [
            ("{}", ""),
            ("[]", ""),
            ("7", ""),
            ("", ""),
            (r#"{"id": 1, "more": 2}"#, ""),
            (r#"{"items": [{"price": 1}, {}], "id": 1}"#, "items[1]"),
            (r#"{"id": 1, "notes": {"a": [[true]]}}"#, "notes.a[0]"),
            (r#"{"id": 1, "items": [{"price": 1}"#, "items[0]"),
        ] {
            assert_eq!(stopped_at::<Order>(text), place, "{text}");
        }
    }
}
