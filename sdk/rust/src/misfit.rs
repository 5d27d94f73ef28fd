//! What serde says is wrong with a value, and where in it, in the words of people: whoever writes a file, a flag, a request or a
//! payload need not know Rust's types.
//!
//! The host compiles this file, too. It uses nothing but the standard library and `serde_path_to_error`.

use std::fmt::Write as _;

use serde_path_to_error::{Path, Segment};

/// The field that does not fit, such as `items[1].price`, empty for the value as a whole; and why it does not fit. `said` is
/// what serde says, without a place; of the path the first keys are left out, as many as `above`; `nearest` finds the known
/// name that was probably meant.
///
/// Text is repeated only where a number, true or false is wanted: elsewhere it may be a secret.
pub(crate) fn misfit(
    path: &Path,
    above: usize,
    said: &str,
    nearest: impl Fn(&str, &[&str]) -> Option<String>,
) -> (String, String) {
    let (name, words) = in_words(said, nearest);
    let mut keys: Vec<&Segment> = path.iter().filter(|segment| !matches!(segment, Segment::Unknown)).collect();
    // A field that is missing or written twice is named by the message alone, and one that is not known by both.
    let is_in_path = |name: &str| said.starts_with(UNKNOWN) && matches!(keys.last(), Some(Segment::Map { key }) if key == name);
    let named = name.filter(|name| !is_in_path(name)).map(|name| Segment::Map { key: name.to_owned() });
    keys.extend(&named);
    (shown(keys.get(above..).unwrap_or_default()), words)
}

/// The same as one sentence about the field: `` `items[1].price` is missing ``.
pub(crate) fn of_field(field: &str, words: &str) -> String {
    match words.strip_prefix("it ") {
        _ if field.is_empty() => words.to_owned(),
        Some(rest) => format!("`{field}` {rest}"),
        None => format!("`{field}`: {words}"),
    }
}

const UNKNOWN: &str = "unknown field `";

/// The name of the field that a message is about, if it names one, and the message in words. One of another form stays as it is.
pub(crate) fn in_words(said: &str, nearest: impl Fn(&str, &[&str]) -> Option<String>) -> (Option<&str>, String) {
    let meant = |name: &str, known: &[&str]| nearest(name, known).map(|near| format!("; did you mean `{near}`?"));
    if let Some((name, known)) = named(said, UNKNOWN) {
        let write = || match known.as_slice() {
            [] => String::new(),
            [only] => format!("; leave it out, or write `{only}`"),
            known => format!("; write {}", one_of(known)),
        };
        return (Some(name), format!("there is no such field{}", meant(name, &known).unwrap_or_else(write)));
    }
    if let Some((name, _)) = named(said, "missing field `") {
        return (Some(name), "it is missing".to_owned());
    }
    if let Some((name, _)) = named(said, "duplicate field `") {
        return (Some(name), "it is written twice".to_owned());
    }
    if let Some((name, known)) = named(said, "unknown variant `") {
        let near = meant(name, &known).unwrap_or_default();
        return (None, format!("it is `{name}`, but must be {}{near}", one_of(&known)));
    }
    (None, kind(said).unwrap_or_else(|| said.to_owned()))
}

/// A message of serde_json without ` at line 1 column 5`, and that.
pub(crate) fn without_place(message: &str) -> (&str, &str) {
    let is_place = |rest: &str| {
        let rest = rest.strip_prefix(" at line ").and_then(|rest| rest.split_once(" column "));
        rest.is_some_and(|(line, column)| line.parse::<usize>().is_ok() && column.parse::<usize>().is_ok())
    };
    message.rfind(" at line ").filter(|at| is_place(&message[*at..])).map_or((message, ""), |at| message.split_at(at))
}

/// A path as people write it: `items[1].price`, `headers["a b"]`.
fn shown(keys: &[&Segment]) -> String {
    let mut path = String::new();
    for key in keys {
        let written = match key {
            Segment::Seq { index } => write!(path, "[{index}]"),
            Segment::Map { key } | Segment::Enum { variant: key } if !is_plain(key) => write!(path, "[{key:?}]"),
            Segment::Map { key } | Segment::Enum { variant: key } if path.is_empty() => write!(path, "{key}"),
            Segment::Map { key } | Segment::Enum { variant: key } => write!(path, ".{key}"),
            Segment::Unknown => Ok(()),
        };
        written.expect("writing to a string cannot fail");
    }
    path
}

fn is_plain(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|char| char.is_alphanumeric() || char == '_' || char == '-')
}

/// The name that a message is about, and the names that would have been good.
fn named<'m>(said: &'m str, about: &str) -> Option<(&'m str, Vec<&'m str>)> {
    // A name may have such a quote in it.
    let rest = said.strip_prefix(about)?;
    let (name, known) = rest.rsplit_once("`, expected ").or_else(|| rest.rsplit_once('`'))?;
    Some((name, known.split('`').skip(1).step_by(2).collect()))
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

fn kind(said: &str) -> Option<String> {
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
    let words = match kind {
        "u8" => return (Wanted::Plain, format!("a whole number from {least} to 255")),
        "u16" => return (Wanted::Plain, format!("a whole number from {least} to 65,535")),
        "u32" => return (Wanted::Plain, format!("a whole number from {least} to 4,294,967,295")),
        "u64" | "usize" => return (Wanted::Plain, format!("a whole number of {least} or more")),
        "i8" | "i16" | "i32" | "i64" | "isize" => return (Wanted::Plain, "a whole number".to_owned()),
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
