//! From a written value to the value that a key takes: references replaced, text of the environment and of flags given a type.

use outbox::wording::in_words;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::{Key, Leaf, Origin, insert};

/// What a written value may mean, the likeliest first. Text of the environment and of flags has no type of its own.
pub(super) fn resolved(
    key: &Key,
    leaf: &Leaf,
    reference: &dyn Fn(&str, &str) -> Result<String, String>,
) -> Result<Vec<Value>, String> {
    if is_of_sinks(key) {
        return Ok(vec![of_sink(leaf, reference)?]);
    }
    let Value::String(text) = &leaf.written else { return Ok(vec![leaf.written.clone()]) };
    // A plugin's references are resolved by the room that loads it, at every load; here they are only tried.
    let of_plugin = key[0] == "plugins" && key.len() > 2;
    let found = expand(text, reference)?;
    let text = if of_plugin { text.clone() } else { found };
    let mut values = vec![Value::String(text.clone())];
    if !matches!(leaf.origin, Origin::File(..))
        && let Some(value) =
            toml::from_str::<Table>(&format!("value = {text}")).ok().and_then(|mut table| table.remove("value"))
    {
        values.push(value);
    }
    Ok(values)
}

/// Whether a value, or one in it, refers to something else.
pub(super) fn has_reference(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains("${"),
        Value::Array(values) => values.iter().any(has_reference),
        Value::Table(table) => table.values().any(has_reference),
        _ => false,
    }
}

/// Whether a key belongs to a sink or a relay, which people name themselves.
pub(super) fn is_of_sinks(key: &[String]) -> bool {
    matches!(key.first().map(String::as_str), Some("sinks" | "routes"))
}

/// The value of a sink's setting, references replaced, in lists too. All settings of a sink are read together later, so that text of
/// the environment and of flags gets its type here: that of a number, a truth value or a list, if it reads like one.
fn of_sink(leaf: &Leaf, reference: &dyn Fn(&str, &str) -> Result<String, String>) -> Result<Value, String> {
    let Value::String(text) = &leaf.written else { return expand_all(&leaf.written, reference) };
    let found = expand(text, reference)?;
    if matches!(leaf.origin, Origin::File(..)) || text.contains("${") {
        return Ok(Value::String(found));
    }
    let typed = toml::from_str::<Table>(&format!("value = {found}")).ok().and_then(|mut table| table.remove("value"));
    Ok(typed.filter(|value| value.is_integer() || value.is_bool() || value.is_array()).unwrap_or(Value::String(found)))
}

/// A value with the references in all its texts replaced.
fn expand_all(value: &Value, reference: &dyn Fn(&str, &str) -> Result<String, String>) -> Result<Value, String> {
    Ok(match value {
        Value::String(text) => Value::String(expand(text, reference)?),
        Value::Array(values) => {
            Value::Array(values.iter().map(|value| expand_all(value, reference)).collect::<Result<_, _>>()?)
        }
        Value::Table(table) => {
            let entry = |(key, value): (&String, &Value)| Ok((key.clone(), expand_all(value, reference)?));
            Value::Table(table.iter().map(entry).collect::<Result<_, String>>()?)
        }
        other => other.clone(),
    })
}

/// The first of these values that a key takes; in words, why it takes none.
pub(super) fn first_that_fits<T: DeserializeOwned>(key: &Key, values: Vec<Value>) -> Result<Value, String> {
    let mut fault = String::new();
    for value in values {
        match alone::<T>(key, value.clone()) {
            Ok(_) => return Ok(value),
            Err(error) => fault = of_value::<T>(key, &value, &error),
        }
    }
    Err(fault)
}

/// Why a key does not take a value, as serde says it; `None` when it does.
pub(in crate::config) fn refusal<T: DeserializeOwned>(key: &[String], value: Value) -> Option<String> {
    alone::<T>(key, value).err().map(|error| error.message().to_owned())
}

fn alone<T: DeserializeOwned>(key: &[String], value: Value) -> Result<T, toml::de::Error> {
    let mut alone = Table::new();
    insert(&mut alone, key, value);
    alone.try_into()
}

/// What is wrong with a value, in words; of a list, also with which of its entries, and with what of it.
fn of_value<T: DeserializeOwned>(key: &[String], value: &Value, error: &toml::de::Error) -> String {
    let bad = |entry: &Value| alone::<T>(key, Value::Array(vec![entry.clone()])).is_err();
    let entry = value.as_array().and_then(|entries| entries.iter().position(bad));
    let Some(entry) = entry else { return words(error) };
    // The error tells its place only where it shows itself: "…\nin `http.tokens.role`".
    let shown = error.to_string();
    let place = shown.rsplit_once("in `").and_then(|(_, place)| place.trim_end().strip_suffix('`'));
    let below = place.and_then(|place| place.strip_prefix(&format!("{}.", key.join("."))));
    let below = below.map_or_else(String::new, |below| format!(", {below}"));
    format!("entry {}{below}: {}", entry + 1, words(error))
}

/// The text with every `${…}` replaced.
pub(in crate::config) fn expand(
    text: &str,
    reference: &dyn Fn(&str, &str) -> Result<String, String>,
) -> Result<String, String> {
    let mut found = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        found.push_str(&rest[..start]);
        let inner = &rest[start + 2..];
        let end = inner.find('}').ok_or("a reference has no closing brace; write ${env:NAME} or ${file:PATH}")?;
        let (source, name) = inner[..end].split_once(':').unwrap_or((&inner[..end], ""));
        found.push_str(&reference(source, name)?);
        rest = &inner[end + 1..];
    }
    found.push_str(rest);
    Ok(found)
}

/// What is wrong, on one line.
pub(crate) fn words(error: &toml::de::Error) -> String {
    in_words(&error.message().replace('\n', "; "))
}
