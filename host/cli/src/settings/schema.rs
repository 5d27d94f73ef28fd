//! `outbox.toml` as a JSON Schema, for editors. Nothing of it is written down a second time: what a key takes is found by
//! trying, and what it means is said by the file that `outbox init` writes.
//!
//! Not `schemars`: six packages would need its derive, and an attribute on each duration. References and the defaults of this program
//! would still be added here.

use std::collections::BTreeMap;

use clap::ValueEnum;
use serde_json::{Map, Value as Json, json};
use toml::Value;

use crate::config::layers::{Layers, refusal};
use crate::config::{Config, Kind};
use crate::init::template;

/// A text that no setting with a form of its own takes.
const PROBE: &str = "?";
/// A value may stand elsewhere: `${env:NAME}`, `${file:PATH}`.
const REFERENCE: &str = r"\$\{(env|file):[^}]+\}";

/// The schema, in draft 7, which editors know.
pub(super) fn schema() -> Json {
    let layers = Layers::new(&Config::default());
    let meanings = meanings();
    let mut root = section();
    for name in layers.known() {
        let key: Vec<String> = name.split('.').map(str::to_owned).collect();
        let (last, parents) = key.split_last().expect("a key has at least one part");
        let mut node = values(&key);
        if let Some(default) = layers.leaves.get(&key) {
            node.insert("default".to_owned(), serde_json::to_value(&default.written).unwrap_or_default());
        }
        if let Some(meaning) = meanings.get(name) {
            node.insert("description".to_owned(), json!(meaning));
        }
        let mut place = &mut root;
        for part in parents {
            place =
                child(place, part).or_insert_with(|| Json::Object(section())).as_object_mut().expect("a section is an object");
        }
        child(place, last).or_insert(Json::Object(node));
    }
    let manifest = fields(&["plugins", "name"]);
    let plugins = child(&mut root, "plugins").or_insert_with(|| json!({})).as_object_mut().expect("a section is an object");
    plugins.insert("additionalProperties".to_owned(), json!({ "type": "object", "properties": manifest }));
    let kinds = expected(&fault_of(&["sinks", "name", "kind"]));
    let sink = json!({ "type": "object", "required": ["kind"], "properties": { "kind": { "enum": kinds } } });
    child(&mut root, "sinks").or_insert(json!({ "type": "object", "additionalProperties": sink }));
    let relay = json!({ "type": "object", "required": ["sink"], "properties": fields(&["routes", "Order/*"]), "additionalProperties": false });
    child(&mut root, "routes").or_insert(json!({ "type": "object", "additionalProperties": relay }));
    root.insert("$schema".to_owned(), json!("http://json-schema.org/draft-07/schema#"));
    root.insert("title".to_owned(), json!("outbox.toml"));
    Json::Object(root)
}

fn section() -> Map<String, Json> {
    let Json::Object(section) = json!({ "type": "object", "properties": {}, "additionalProperties": false }) else {
        unreachable!()
    };
    section
}

fn child<'s>(section: &'s mut Map<String, Json>, name: &str) -> serde_json::map::Entry<'s> {
    let properties = section.entry("properties").or_insert_with(|| json!({}));
    properties.as_object_mut().expect("properties are an object").entry(name)
}

/// What a key takes, as its answer to a text that it cannot take tells.
fn values(key: &[String]) -> Map<String, Json> {
    let fault = refusal::<Config>(key, Value::String(PROBE.to_owned())).unwrap_or_default();
    let node = of_fault(&fault, || {
        let items = refusal::<Config>(key, Value::Array(vec![Value::String(PROBE.to_owned())])).unwrap_or_default();
        of_fault(&items, || json!({}))
    });
    let Json::Object(node) = node else { unreachable!("every arm makes an object") };
    node
}

fn of_fault(fault: &str, items: impl FnOnce() -> Json) -> Json {
    if fault.contains("unknown variant") {
        json!({ "anyOf": [{ "enum": expected(fault) }, { "type": "string", "pattern": REFERENCE }] })
    } else if fault.contains("is not a duration") {
        json!({ "type": "string", "pattern": format!(r"^\s*([0-9]+\s*[a-zA-Zµ]+\s*)+$|{REFERENCE}") })
    } else if fault.contains("is not a size") {
        let text =
            json!({ "type": "string", "pattern": format!(r"^\s*[0-9]+\s*([kKmMgG]([iI]?[bB])?|[bB])?\s*$|{REFERENCE}") });
        json!({ "anyOf": [{ "type": "integer", "minimum": 0 }, text] })
    } else if fault.contains("expected a boolean") {
        json!({ "type": "boolean" })
    } else if ["u16", "u32", "u64", "usize"].iter().any(|kind| fault.ends_with(&format!("expected {kind}"))) {
        json!({ "type": "integer", "minimum": 0 })
    } else if fault.contains("expected a sequence") {
        json!({ "type": "array", "items": items() })
    } else {
        json!({ "type": "string" })
    }
}

/// What is wrong with a section that holds a key which does not exist, or a value that is none.
fn fault_of(key: &[&str]) -> String {
    let key: Vec<String> = key.iter().map(|part| (*part).to_owned()).collect();
    let probe = Value::String(PROBE.to_owned());
    match key[0].as_str() {
        // A sink or a relay is read whole.
        "sinks" => {
            let sink = toml::Table::from_iter([("kind".to_owned(), probe)]);
            Value::Table(sink)
                .try_into::<outbox::sink::SinkConfig>()
                .map_or_else(|error| error.message().to_owned(), |_| String::new())
        }
        "routes" => {
            let relay = toml::Table::from_iter([(PROBE.to_owned(), probe)]);
            Value::Table(relay)
                .try_into::<outbox::RelayConfig>()
                .map_or_else(|error| error.message().to_owned(), |_| String::new())
        }
        _ => refusal::<Config>(&[key, vec![PROBE.to_owned()]].concat(), probe).unwrap_or_default(),
    }
}

/// The fields of a section that people name, each with any value: the host tells what is wrong with it.
fn fields(key: &[&str]) -> Json {
    let names = expected(&fault_of(key));
    Json::Object(names.into_iter().map(|name| (name, json!({}))).collect())
}

/// The names that a fault says would have been good: ``unknown variant `?`, expected one of `a`, `b` ``.
fn expected(fault: &str) -> Vec<String> {
    let (_, names) = fault.split_once("expected ").unwrap_or_default();
    names.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// What each key means: the comment above it in what `outbox init` writes. One comment may stand above several keys.
fn meanings() -> BTreeMap<String, String> {
    let mut meanings = BTreeMap::new();
    for kind in Kind::value_variants() {
        let (mut section, mut comment, mut is_told) = (String::new(), String::new(), false);
        for line in template(*kind).lines() {
            let setting = line.strip_prefix("##").or_else(|| line.strip_prefix('#')).unwrap_or(line);
            if let Some(name) = line.strip_prefix('[') {
                section = format!("{}.", name.trim_end_matches(']'));
                comment.clear();
            } else if let Some(text) = line.strip_prefix("# ") {
                if std::mem::take(&mut is_told) {
                    comment.clear();
                }
                comment.push_str(if comment.is_empty() { "" } else { " " });
                comment.push_str(text);
            } else if line.is_empty() {
                comment.clear();
            } else if let Some((name, _)) = setting.split_once(" = ").filter(|_| !setting.starts_with(' ')) {
                let meaning: &mut String = meanings.entry(format!("{section}{name}")).or_default();
                // What depends on the kind of database is said for each of them.
                if !meaning.contains(&comment) {
                    meaning.push_str(if meaning.is_empty() { "" } else { "\n" });
                    meaning.push_str(&comment);
                }
                is_told = true;
            }
        }
    }
    meanings.retain(|_, meaning| !meaning.is_empty());
    meanings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The node of a key.
    fn node<'s>(schema: &'s Json, key: &str) -> &'s Json {
        key.split('.').fold(schema, |place, part| &place["properties"][part])
    }

    /// Whether a value is what a node asks for, as far as this schema goes.
    fn fits(node: &Json, value: &Json) -> bool {
        if let Some(choices) = node["anyOf"].as_array() {
            return choices.iter().any(|choice| fits(choice, value));
        }
        if let Some(values) = node["enum"].as_array() {
            return values.contains(value);
        }
        match node["type"].as_str() {
            Some("string") => value.as_str().is_some_and(|text| node["pattern"] != REFERENCE || text.contains("${")),
            Some("integer") => value.as_u64().is_some(),
            Some("boolean") => value.is_boolean(),
            Some("array") => value.as_array().is_some_and(|items| items.iter().all(|item| fits(&node["items"], item))),
            _ => false,
        }
    }

    /// The keys of all values in it.
    fn keys(place: &Json, name: &str, found: &mut Vec<String>) {
        match place["properties"].as_object() {
            Some(properties) => properties.iter().for_each(|(part, below)| keys(below, &format!("{name}{part}."), found)),
            None => found.push(name.trim_end_matches('.').to_owned()),
        }
    }

    #[test]
    fn it_has_the_keys_that_the_configuration_knows_and_no_other() {
        let schema = schema();
        let mut found = Vec::new();
        keys(&schema, "", &mut found);
        found.retain(|key| !["sinks", "routes"].contains(&key.as_str()));
        let mut known = Layers::new(&Config::default()).known().to_vec();
        known.sort();
        found.sort();
        assert_eq!(found, known);
        let mute: Vec<_> = known.iter().filter(|key| node(&schema, key)["description"].is_null()).collect();
        assert!(mute.is_empty(), "`outbox init` writes nothing of what these mean: {mute:?}");
    }

    #[test]
    fn every_default_is_good_by_it() {
        let schema = schema();
        let layers = Layers::new(&Config::default());
        for (key, leaf) in &layers.leaves {
            let node = node(&schema, &key.join("."));
            let value = serde_json::to_value(&leaf.written).unwrap();
            assert!(fits(node, &value), "{key:?} is {value}, but: {node}");
        }
    }

    #[test]
    fn what_a_key_takes_is_what_the_configuration_takes() {
        let schema = schema();
        let modes = &node(&schema, "mode")["anyOf"][0]["enum"];
        assert_eq!(modes, &json!(["single_node", "multi_node", "ordered", "ordered_by_aggregate", "writer_only"]));
        assert_eq!(node(&schema, "dispatcher.workers")["type"], "integer");
        assert_eq!(node(&schema, "database.port")["type"], "integer");
        assert_eq!(node(&schema, "purge.enabled")["type"], "boolean");
        assert_eq!(node(&schema, "plugins.trusted_owners")["items"]["type"], "integer");
        assert!(node(&schema, "poller.interval")["pattern"].as_str().unwrap().contains("[0-9]+"));
        assert_eq!(node(&schema, "dispatcher.queue_bytes")["anyOf"][0]["type"], "integer");
        let manifest = &schema["properties"]["plugins"]["additionalProperties"]["properties"];
        assert!(manifest["limits"].is_object() && manifest["isolation"].is_object(), "{manifest}");
        let sinks = &schema["properties"]["sinks"]["additionalProperties"]["properties"]["kind"]["enum"];
        assert!(sinks.as_array().unwrap().contains(&json!("nats")), "{sinks}");
        let relay = &schema["properties"]["routes"]["additionalProperties"]["properties"];
        assert_eq!(relay, &json!({ "sink": {}, "subject": {}, "key": {} }));
        for wrong in [("mode", json!("ordred")), ("dispatcher.workers", json!("8")), ("purge.enabled", json!("yes"))] {
            assert!(!fits(node(&schema, wrong.0), &wrong.1), "{wrong:?}");
        }
    }
}
