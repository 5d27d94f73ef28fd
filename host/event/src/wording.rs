//! What serde says is wrong with a value, in the words of people; and which name was probably meant.

use std::fmt;

use serde::{Deserialize, Deserializer};

/// One text for hosts and plugins: what a plugin says of a payload reads like what a host says of a request.
mod misfit;
#[cfg(feature = "toml")]
mod toml_fault;

use misfit::without_place;
#[cfg(feature = "toml")]
pub use toml_fault::toml_fault;

/// Names above this many bytes are not looked for: two are compared letter by letter, and a request may hold any.
const LONGEST: usize = 256;
/// Below this many letters a name is soon two slips away from one that means something else.
const SHORT: usize = 6;

/// What is wrong with a value, and where in it. Shown on one line, `items[1].price: it is text, but must be a number`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Misfit {
    /// The field, such as `items[1].price`; empty for the value as a whole.
    pub path: String,
    /// What is wrong with it.
    pub words: String,
}

impl Misfit {
    /// Why a value was not read as this type. `said` is what serde said when the value was read plainly. The place is looked for by
    /// reading the value again, so that a good value costs nothing more.
    pub fn of<'de, T: Deserialize<'de>>(deserializer: impl Deserializer<'de>, said: &str) -> Self {
        Self::below::<T>(0, deserializer, said)
    }

    /// The same of a value that stands this many keys below the top, which the path leaves out.
    pub fn below<'de, T: Deserialize<'de>>(above: usize, deserializer: impl Deserializer<'de>, said: &str) -> Self {
        let mut track = serde_path_to_error::Track::new();
        drop(T::deserialize(serde_path_to_error::Deserializer::new(deserializer, &mut track)));
        let (path, words) = misfit::misfit(&track.path(), above, said, suggestion);
        Self { path, words: words.trim_end().replace('\n', "; ") }
    }

    /// Why a text, which is JSON, was not read as this type.
    #[must_use]
    pub fn of_json<'de, T: Deserialize<'de>>(text: &'de [u8], error: &serde_json::Error) -> Self {
        let said = error.to_string();
        Self::of::<T>(&mut serde_json::Deserializer::from_slice(text), without_place(&said).0)
    }
}

/// What is wrong with a text that should be JSON and this type: the field, or the place where it is no JSON.
#[must_use]
pub fn json_fault<'de, T: Deserialize<'de>>(text: &'de [u8], error: &serde_json::Error) -> String {
    if error.is_data() { Misfit::of_json::<T>(text, error).to_string() } else { error.to_string() }
}

/// The same of an event's payload, as a sentence about the field.
#[must_use]
pub fn payload_fault<'de, T: Deserialize<'de>>(payload: &'de [u8], error: &serde_json::Error) -> String {
    if !error.is_data() {
        return error.to_string();
    }
    let Misfit { path, words } = Misfit::of_json::<T>(payload, error);
    misfit::of_field(&path, &words)
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&placed(&self.path, &self.words))
    }
}

/// What is wrong with a field, the field in front, unless the words begin with it themselves, as those of our own rules do.
#[must_use]
pub fn placed(path: &str, words: &str) -> String {
    // A field may be called `it`.
    let is_ours = ["it is ", "there is "].iter().any(|start| words.starts_with(start));
    let is_named = !is_ours && words.strip_prefix(path).is_some_and(|rest| rest.starts_with([' ', '.']));
    if path.is_empty() || is_named { words.to_owned() } else { format!("{path}: {words}") }
}

/// What serde or a parser says, where no path can be told: ``missing field `sha256` `` becomes `sha256: it is missing`. A
/// message of another form stays as it is; so does the place at its end, ` at line 1 column 5`.
#[must_use]
pub fn in_words(message: &str) -> String {
    let (said, place) = without_place(message);
    match misfit::in_words(said, suggestion) {
        (Some(name), words) => format!("{name}: {words}{place}"),
        (None, words) if words == "duplicate key" => "this key or section is written twice; keep one of them".to_owned(),
        (None, words) => words + place,
    }
}

fn suggestion(name: &str, known: &[&str]) -> Option<String> {
    nearest(name, known.iter().copied()).map(str::to_owned)
}

/// The known names that may have been meant, the nearest first: one slip in a short name, two or a fifth of the letters in a
/// longer one. Two letters in each other's places are one slip; upper and lower case are the same here.
#[must_use]
pub fn near<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Vec<&'n str> {
    if name.len() > LONGEST {
        return Vec::new();
    }
    let wanted = name.to_lowercase();
    let most = if name.len() < SHORT { 1 } else { 2.max(name.len() / 5) };
    // A letter has up to four bytes.
    let of_length = known.into_iter().filter(|known| known.len().abs_diff(name.len()) <= most * 4);
    let slips = of_length.map(|known| (strsim::osa_distance(&wanted, &known.to_lowercase()), known));
    let mut near: Vec<(usize, &str)> = slips.filter(|(slips, _)| *slips <= most).collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter().map(|(_, known)| known).collect()
}

/// A question for the names that may have been meant: `did you mean a, b or c?`
#[must_use]
pub fn did_you_mean(names: &[String]) -> String {
    let names = match names.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} or {last}", before.join(", ")),
        _ => names.concat(),
    };
    format!("{DID_YOU_MEAN}{names}?")
}

/// How such a question begins.
pub const DID_YOU_MEAN: &str = "did you mean ";

/// The known name that was probably meant.
#[must_use]
pub fn nearest<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    near(name, known).first().copied()
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
            (json!({ "polcy": 1 }), "polcy: there is no such field; did you mean `policy`?"),
            (
                json!({ "colour": 1 }),
                "colour: there is no such field; write `workers`, `fuel`, `rate`, `enabled`, `subject`, `tags`, `headers` or `policy`",
            ),
        ] {
            assert_eq!(said(&value), words, "{value}");
        }
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read")]
    struct Order {
        id: u32,
        #[serde(default)]
        items: Vec<Item>,
        #[serde(default)]
        notes: BTreeMap<String, Vec<(bool, u8)>>,
        #[serde(default)]
        raw: Option<Box<serde_json::value::RawValue>>,
        #[serde(default)]
        sink: Option<Sink>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read")]
    struct Item {
        price: f64,
        #[serde(default)]
        policy: Policy,
    }

    #[derive(Debug, Deserialize)]
    #[serde(tag = "kind", rename_all = "snake_case")]
    #[expect(dead_code, reason = "only read")]
    enum Sink {
        File(Item),
    }

    #[test]
    fn the_field_that_does_not_fit_is_named_once_with_its_whole_path() {
        let number = "it is the text \"2\", but must be a number; leave out the quotes";
        for (text, told) in [
            (r#"{"id": -1}"#, "id: it is -1, but must be a whole number from 0 to 4,294,967,295"),
            (
                r#"{"id": {"a": [1, 2]}}"#,
                "id: it is a group of named values, but must be a whole number from 0 to 4,294,967,295",
            ),
            (r#"{"raw": {"a": [1]}, "items": [{"price": 1}, {"price": "2"}]}"#, &format!("items[1].price: {number}")),
            (
                r#"{"items": [{"price": 1, "policy": "fix"}]}"#,
                "items[0].policy: it is `fix`, but must be `fixed` or `jittered`",
            ),
            (
                r#"{"notes": {"a,b]\"{": [[true, 1], [true, 256]]}}"#,
                r#"notes["a,b]\"{"][1][1]: it is 256, but must be a whole number from 0 to 255"#,
            ),
            (r#"{"id": 1, "item": 2}"#, "item: there is no such field; did you mean `items`?"),
            (r#"{"items": [{"prize": 2}]}"#, "items[0].prize: there is no such field; did you mean `price`?"),
            (r#"{"id": 1, "a`b": 2}"#, "[\"a`b\"]: there is no such field; write `id`, `items`, `notes`, `raw` or `sink`"),
            (r#"{"items": [{"price": 1}, {}]}"#, "items[1].price: it is missing"),
            ("{}", "id: it is missing"),
            (r#"{"id": 1, "id": 1}"#, "id: it is written twice"),
            ("7", "it is a number, but must be a group of named values"),
            // What a kind means is known only when all of it was read, and so is no place in it.
            (
                r#"{"sink": {"kind": "file", "price": 1, "prices": 2}}"#,
                "sink.prices: there is no such field; did you mean `price`?",
            ),
            (r#"{"sink": {"kind": "pipe"}}"#, "sink.kind: it is `pipe`, but must be `file`"),
        ] {
            let error = serde_json::from_str::<Order>(text).expect_err(text);
            assert_eq!(Misfit::of_json::<Order>(text.as_bytes(), &error).to_string(), told, "{text}");
        }
    }

    #[test]
    fn words_that_name_the_field_themselves_are_not_preceded_by_it() {
        assert_eq!(placed("limits", "limits.fuel is 0; it must be at least 1"), "limits.fuel is 0; it must be at least 1");
        assert_eq!(placed("headers", "`a b` is no name"), "headers: `a b` is no name");
        assert_eq!(placed("", "it is a list"), "it is a list");
        assert_eq!(placed("it", "it is missing"), "it: it is missing");
    }

    #[test]
    fn a_short_name_is_near_another_only_by_one_slip() {
        for (name, known, near) in [
            ("fule", ["fuel", "rate"], Some("fuel")),
            ("foo", ["log", "mode"], None),
            ("Order/orderplacd", ["Order/OrderPaid", "Order/OrderPlaced"], Some("Order/OrderPlaced")),
            ("subjct", ["subject", "subjects"], Some("subject")),
            ("colour", ["policy", "fuel"], None),
            (&"a".repeat(LONGEST + 1), [&"a".repeat(LONGEST), "fuel"], None),
        ] {
            assert_eq!(nearest(name, known), near, "{name}");
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
        assert_eq!(in_words("missing field `sha256`"), "sha256: it is missing");
        for other in ["`1` has no unit", "unclosed table, expected `]`", "a note at line four"] {
            assert_eq!(in_words(other), other);
        }
    }
}
