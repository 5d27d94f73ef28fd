//! What serde says is wrong with a value, in the words of people: whoever writes a file, a flag or a request need not know Rust's types.

use crate::units::number;

/// ``invalid type: integer `5`, expected a string`` becomes `it is a number, but must be text; put it in quotes`. A message of another
/// form stays as it is; so does the place at its end, ` at line 1 column 5`.
///
/// Text is repeated only where a number, true or false is wanted: elsewhere it may be a secret.
#[must_use]
pub fn in_words(message: &str) -> String {
    let (said, place) = without_place(message);
    let words = unknown_field(said).or_else(|| unknown_name(said)).or_else(|| absent_or_twice(said)).or_else(|| misfit(said));
    words.map_or_else(|| message.to_owned(), |words| words + place)
}

/// A message of serde_json without ` at line 1 column 5`, and that.
pub(crate) fn without_place(message: &str) -> (&str, &str) {
    let is_place = |rest: &str| {
        let rest = rest.strip_prefix(" at line ").and_then(|rest| rest.split_once(" column "));
        rest.is_some_and(|(line, column)| line.parse::<usize>().is_ok() && column.parse::<usize>().is_ok())
    };
    message.rfind(" at line ").filter(|at| is_place(&message[*at..])).map_or((message, ""), |at| message.split_at(at))
}

/// The known name that was probably meant.
#[must_use]
pub fn nearest<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let close = known.into_iter().map(|known| (strsim::levenshtein(name, known), known)).min();
    close.filter(|(distance, _)| *distance <= 2.max(name.len() / 5)).map(|(_, known)| known)
}

fn unknown_field(said: &str) -> Option<String> {
    let (name, known) = named(said, "unknown field `")?;
    if let Some(near) = nearest(name, known.iter().copied()) {
        return Some(format!("`{name}` is not known here; did you mean `{near}`?"));
    }
    let known = match known.as_slice() {
        [] => String::new(),
        [only] => format!(", only `{only}` is; leave it out"),
        known => format!("; write {}", one_of(known)),
    };
    Some(format!("`{name}` is not known here{known}"))
}

fn unknown_name(said: &str) -> Option<String> {
    let (name, known) = named(said, "unknown variant `")?;
    let near = nearest(name, known.iter().copied()).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    Some(format!("it is `{name}`, but must be {}{near}", one_of(&known)))
}

fn absent_or_twice(said: &str) -> Option<String> {
    let missing = named(said, "missing field `").map(|(name, _)| format!("`{name}` is missing"));
    missing
        .or_else(|| named(said, "duplicate field `").map(|(name, _)| format!("`{name}` is written twice")))
        .or_else(|| (said == "duplicate key").then(|| "this key or section is written twice; keep one of them".to_owned()))
}

/// The name that a message is about, and the names that would have been good.
fn named<'m>(said: &'m str, about: &str) -> Option<(&'m str, Vec<&'m str>)> {
    let (name, rest) = said.strip_prefix(about)?.split_once('`')?;
    Some((name, rest.split('`').skip(1).step_by(2).collect()))
}

/// `` `a`, `b` or `c` ``.
fn one_of(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match names.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} or {last}", before.join(", ")),
        _ => names.concat(),
    }
}

/// What kind of value is wanted.
#[derive(PartialEq)]
enum Wanted {
    Text,
    /// A number, true or false.
    Plain,
    List,
    Other,
}

fn misfit(said: &str) -> Option<String> {
    let found = said.strip_prefix("invalid type: ").or_else(|| said.strip_prefix("invalid value: "))?;
    let (found, expected) = found.rsplit_once(", expected ")?;
    let (kind, wanted) = wanted(expected);
    let (found, hint) = match found.split_once(' ') {
        Some(("string", text)) if kind == Wanted::Plain => of_text(text),
        Some(("string", _)) => ("text".to_owned(), ""),
        Some(("integer", number)) | Some(("boolean", number)) if kind == Wanted::Plain => (number.replace('`', ""), ""),
        Some(("floating", point)) if kind == Wanted::Plain => (point.replace("point ", "").replace('`', ""), ""),
        Some(("integer" | "floating", _)) => ("a number".to_owned(), ""),
        Some(("boolean", value)) => (value.replace('`', ""), ""),
        None if found == "sequence" => ("a list".to_owned(), ""),
        None if found == "map" => ("a group of named values".to_owned(), ""),
        None if found == "null" => ("null".to_owned(), ""),
        // TOML's word for a value that is no name where a name is wanted.
        _ if expected == "string only" => return Some(format!("it must be {wanted}; put it in quotes")),
        _ => return None,
    };
    let is_single = found == "a number" || found == "true" || found == "false";
    let hint = match kind {
        Wanted::Text if is_single => "; put it in quotes",
        Wanted::List if is_single || found == "text" => "; put it in brackets: [ ]",
        _ => hint,
    };
    Some(format!("it is {found}, but must be {wanted}{hint}"))
}

/// Text where a number, true or false is wanted.
fn of_text(text: &str) -> (String, &'static str) {
    let inner = text.trim_matches('"');
    let is_number = inner.parse::<f64>().is_ok_and(f64::is_finite) && inner.chars().any(|c| c.is_ascii_digit());
    let is_whole = inner.parse::<i64>().is_ok();
    match inner {
        "true" | "false" => (format!("the text {text}"), "; leave out the quotes"),
        _ if is_number && !is_whole && inner.bytes().all(|byte| byte.is_ascii_digit()) => {
            (inner.to_owned(), "; it is too large")
        }
        _ if is_number => (format!("the text {text}"), "; leave out the quotes"),
        _ => (format!("the text {text}"), ""),
    }
}

fn wanted(expected: &str) -> (Wanted, String) {
    let (least, kind) = expected.strip_prefix("a nonzero ").map_or((0, expected), |kind| (1, kind));
    let most = match kind {
        "u8" => u64::from(u8::MAX),
        "u16" => u64::from(u16::MAX),
        "u32" => u64::from(u32::MAX),
        "u64" | "usize" => u64::MAX,
        _ => 0,
    };
    let words = match kind {
        "u64" | "usize" => return (Wanted::Plain, format!("a whole number of {least} or more")),
        "i8" | "i16" | "i32" | "i64" | "isize" => return (Wanted::Plain, "a whole number".to_owned()),
        _ if most > 0 => return (Wanted::Plain, format!("a whole number from {least} to {}", number(most))),
        "f32" | "f64" => return (Wanted::Plain, "a number".to_owned()),
        "a boolean" => return (Wanted::Plain, "true or false".to_owned()),
        "a string" | "a borrowed string" | "string only" => return (Wanted::Text, "text".to_owned()),
        "a sequence" => return (Wanted::List, "a list".to_owned()),
        "a map" => "a group of named values",
        kind if kind.starts_with("struct ") || kind.starts_with("internally tagged enum ") => "a group of named values",
        other => other,
    };
    (Wanted::Other, words.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Settings {
        workers: u32,
        fuel: u64,
        rate: f64,
        enabled: bool,
        subject: String,
        tags: Vec<String>,
        headers: BTreeMap<String, String>,
        policy: Policy,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Policy {
        #[default]
        Fixed,
        Jittered,
    }

    /// What serde itself says of this value, in words: should its texts change, this shows it.
    fn said(value: &serde_json::Value) -> String {
        in_words(&serde_json::from_value::<Settings>(value.clone()).expect_err("refused").to_string())
    }

    #[test]
    fn what_serde_says_is_said_without_the_types_of_rust() {
        for (value, words) in [
            (json!({ "workers": -1 }), "it is -1, but must be a whole number from 0 to 4,294,967,295"),
            (json!({ "workers": 5_000_000_000_u64 }), "it is 5000000000, but must be a whole number from 0 to 4,294,967,295"),
            (json!({ "workers": 1.5 }), "it is 1.5, but must be a whole number from 0 to 4,294,967,295"),
            (json!({ "fuel": "8" }), "it is the text \"8\", but must be a whole number of 0 or more; leave out the quotes"),
            (json!({ "fuel": "eight" }), "it is the text \"eight\", but must be a whole number of 0 or more"),
            (json!({ "rate": true }), "it is true, but must be a number"),
            (json!({ "enabled": "true" }), "it is the text \"true\", but must be true or false; leave out the quotes"),
            (json!({ "enabled": 1 }), "it is 1, but must be true or false"),
            (json!({ "subject": 5 }), "it is a number, but must be text; put it in quotes"),
            (json!({ "subject": ["a"] }), "it is a list, but must be text"),
            (json!({ "subject": null }), "it is null, but must be text"),
            (json!({ "tags": "a" }), "it is text, but must be a list; put it in brackets: [ ]"),
            (json!({ "headers": ["a"] }), "it is a list, but must be a group of named values"),
            (json!({ "policy": "fixd" }), "it is `fixd`, but must be `fixed` or `jittered`; did you mean `fixed`?"),
            (json!({ "polcy": 1 }), "`polcy` is not known here; did you mean `policy`?"),
            (
                json!({ "colour": 1 }),
                "`colour` is not known here; write `workers`, `fuel`, `rate`, `enabled`, `subject`, `tags`, `headers` or `policy`",
            ),
        ] {
            assert_eq!(said(&value), words, "{value}");
        }
    }

    #[test]
    fn text_that_may_be_a_secret_is_not_repeated() {
        assert!(!said(&json!({ "tags": "hunter2" })).contains("hunter2"));
        assert!(!said(&json!({ "headers": "hunter2" })).contains("hunter2"));
    }

    #[test]
    fn the_place_in_a_text_is_kept_and_other_messages_stay_as_they_are() {
        let error = serde_json::from_str::<Settings>("{\"workers\": -1}").expect_err("refused").to_string();
        assert!(in_words(&error).ends_with("4,294,967,295 at line 1 column 14"), "{}", in_words(&error));
        assert_eq!(in_words("missing field `sha256`"), "`sha256` is missing");
        for other in ["`1` has no unit", "unclosed table, expected `]`", "a note at line four"] {
            assert_eq!(in_words(other), other);
        }
    }
}
