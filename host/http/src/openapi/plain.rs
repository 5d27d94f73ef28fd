//! Descriptions for readers who have no Rust: many are the comments of the types that are sent.

use serde_json::Value;

/// Rewrites every description of a document.
pub(super) fn plain(document: &mut Value) {
    match document {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == "description" => *text = in_plain_words(text),
                    _ => plain(value),
                }
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(plain),
        _ => {}
    }
}

/// `None` becomes `null`, a link to an item of the crate its name; where a rule comes from is left out.
fn in_plain_words(text: &str) -> String {
    let text = text.split_once("Source: ").map_or(text, |(before, _)| before).trim_end();
    let (mut rest, mut plain) = (text, String::with_capacity(text.len()));
    while let Some((before, link)) = rest.split_once("[`") {
        plain.push_str(before);
        let (name, after) = link.split_once("`]").unwrap_or((link, ""));
        plain.push('`');
        plain.push_str(name);
        plain.push('`');
        // The item's path, where it is not its name.
        rest = after.strip_prefix('(').and_then(|path| path.split_once(')')).map_or(after, |(_, after)| after);
    }
    plain.push_str(rest);
    plain.replace("`None`", "`null`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HttpConfig;

    #[test]
    fn a_comment_becomes_a_description() {
        assert_eq!(in_plain_words("Who; `None` for nobody."), "Who; `null` for nobody.");
        assert_eq!(in_plain_words("As [`Owner`] and [`x`](crate::x), or [a page](y)."), "As `Owner` and `x`, or [a page](y).");
        assert_eq!(in_plain_words("The state. Source: RFC 9457."), "The state.");
    }

    #[test]
    fn no_description_of_the_document_is_written_for_rust() {
        let document = super::super::document(crate::api::endpoints(), &HttpConfig::default());
        let document = String::from_utf8(document.to_vec()).expect("JSON is UTF-8");
        for word in ["`None`", "[`", "::", "Source: "] {
            let at = document.find(word).map(|at| document[at.saturating_sub(80)..].chars().take(160).collect::<String>());
            assert_eq!(at, None, "{word}");
        }
        assert!(document.contains("`null`"));
    }
}
