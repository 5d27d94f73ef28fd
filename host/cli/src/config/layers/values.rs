//! From a written value to the value that a key takes: references replaced, text of the environment and of flags given a type.

use outbox::wording::Misfit;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::{Key, Leaf, Origin, insert, place};

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
    mentions(value, "${")
}

/// Whether a text is in a value, or in one in it.
pub(in crate::config) fn mentions(value: &Value, part: &str) -> bool {
    match value {
        Value::String(text) => text.contains(part),
        Value::Array(values) => values.iter().any(|value| mentions(value, part)),
        Value::Table(table) => table.values().any(|value| mentions(value, part)),
        _ => false,
    }
}

/// Whether a key belongs to a sink or a relay, which people name themselves.
pub(super) fn is_of_sinks(key: &[String]) -> bool {
    matches!(key.first().map(String::as_str), Some("sinks" | "routes"))
}

/// The value of a sink's setting, references replaced, in lists too. All settings of a sink are read together later, so that
/// text of the environment and of flags gets its type here: that of a number, a truth value or a list, if it reads like one.
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
pub(in crate::config) fn expand_all(
    value: &Value,
    reference: &dyn Fn(&str, &str) -> Result<String, String>,
) -> Result<Value, String> {
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

/// The first of these values that a key takes; or why it takes none, and where below the key.
pub(super) fn first_that_fits<T: DeserializeOwned>(key: &Key, values: Vec<Value>) -> Result<Value, Misfit> {
    let mut fault = Misfit::default();
    for value in values {
        match alone::<T>(key, value.clone()) {
            Ok(_) => return Ok(value),
            Err(error) => fault = Misfit::below::<T>(place(key).len(), whole(key, value), error.message()),
        }
    }
    Err(fault)
}

/// Whether a key is the list of the tokens: each stands for itself, and so do its faults.
pub(super) fn is_of_tokens(key: &[String]) -> bool {
    key == ["http", "tokens"]
}

/// The first of these values that is a list of tokens, and everything that is wrong with them. A good value stands for each bad
/// one, so that the others keep their numbers.
pub(super) fn tokens<T: DeserializeOwned>(key: &Key, values: Vec<Value>) -> (Option<Value>, Vec<Misfit>) {
    let entries = match first_that_fits::<T>(key, values.clone()) {
        Ok(value) => return (Some(value), Vec::new()),
        Err(misfit) => match values.into_iter().find_map(|value| value.as_array().cloned()) {
            Some(entries) => entries,
            None => return (None, vec![misfit]),
        },
    };
    let mut misfits = Vec::new();
    let tokens = entries.into_iter().enumerate().map(|(number, entry)| token::<T>(key, number, entry, &mut misfits));
    (Some(Value::Array(tokens.collect())), misfits)
}

/// One token of the list, each of its fields tried by itself.
fn token<T: DeserializeOwned>(key: &Key, number: usize, entry: Value, misfits: &mut Vec<Misfit>) -> Value {
    let mut tried = |entry: Value| {
        let Err(misfit) = first_that_fits::<T>(key, vec![Value::Array(vec![entry])]) else { return true };
        // There was one in the list.
        misfits.push(Misfit { path: misfit.path.replacen("[0]", &format!("[{number}]"), 1), ..misfit });
        false
    };
    let good = [("name", format!("token {number}")), ("role", "viewer".to_owned()), ("sha256", "0".repeat(64))];
    let good = Table::from_iter(good.map(|(field, value)| (field.to_owned(), Value::String(value))));
    let Value::Table(fields) = entry else {
        tried(entry);
        return Value::Table(good);
    };
    for field in good.keys().filter(|field| !fields.contains_key(*field)) {
        let mut without = good.clone();
        without.remove(field);
        tried(Value::Table(without));
    }
    let mut token = good.clone();
    for (field, value) in fields {
        let mut with = good.clone();
        with.insert(field.clone(), value.clone());
        if tried(Value::Table(with)) {
            token.insert(field, value);
        }
    }
    Value::Table(token)
}

/// Why a key does not take a value, as serde says it; `None` when it does.
pub(crate) fn refusal<T: DeserializeOwned>(key: &[String], value: Value) -> Option<String> {
    alone::<T>(key, value).err().map(|error| error.message().to_owned())
}

fn alone<T: DeserializeOwned>(key: &[String], value: Value) -> Result<T, toml::de::Error> {
    whole(key, value).try_into()
}

/// A configuration with one value.
fn whole(key: &[String], value: Value) -> Table {
    let mut whole = Table::new();
    insert(&mut whole, key, value);
    whole
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
