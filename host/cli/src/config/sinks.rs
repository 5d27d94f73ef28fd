//! `[sinks.*]` and `[routes.*]`: read whole, since one of their keys decides what the others mean.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use outbox::sink::{SinkConfig, Sinks};
use outbox::wording::Misfit;
use outbox::{RelayConfig, Route};
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use crate::names::route_or_pattern;

/// The sinks as they are written, or everything that is wrong with them.
pub(super) fn read(written: &BTreeMap<String, Value>) -> Result<BTreeMap<String, SinkConfig>, Vec<String>> {
    let mut faults = Vec::new();
    let mut configs = BTreeMap::new();
    for (name, value) in written {
        match section::<SinkConfig>(&format!("sinks.{name}"), value, "kind") {
            Ok(config) => {
                configs.insert(name.clone(), config);
            }
            Err(wrong) => faults.extend(wrong),
        }
    }
    faults.extend(Sinks::faults(&configs));
    if faults.is_empty() { Ok(configs) } else { Err(faults) }
}

/// The relays as they are written, or everything that is wrong with them.
pub(super) fn relays(written: &BTreeMap<String, Value>) -> Result<Vec<(Route, RelayConfig)>, Vec<String>> {
    let mut faults = Vec::new();
    let mut relays = Vec::new();
    for (pattern, value) in written {
        let route = match pattern.split_once('/') {
            None => Err("write it like \"Order/OrderPlaced\", \"Order/*\" or \"*/*\"".to_owned()),
            Some((aggregate_type, event_type)) => route_or_pattern(aggregate_type, event_type),
        };
        match (route, section::<RelayConfig>(&format!("routes.{pattern:?}"), value, "sink")) {
            (Ok(route), Ok(config)) => relays.push((route, config)),
            (Err(why), _) => faults.push(format!("routes.{pattern:?} is not a route: {why}")),
            (_, Err(wrong)) => faults.extend(wrong),
        }
    }
    if faults.is_empty() { Ok(relays) } else { Err(faults) }
}

/// A section that can only be read whole, or everything that is wrong with it: each setting is tried beside the one that every such
/// section has, so that every fault is found and belongs to one line.
fn section<T: DeserializeOwned>(name: &str, written: &Value, required: &str) -> Result<T, Vec<String>> {
    let whole = match written.clone().try_into::<T>() {
        Ok(read) => return Ok(read),
        Err(error) => Misfit::of::<T>(written.clone(), error.message()),
    };
    // Of a section whose kind decides what its settings mean, the place is not told.
    let told = |key: &str, Misfit { path, words }: Misfit| {
        let path = if path.is_empty() { key } else { path.as_str() };
        if path.is_empty() { format!("{name}: {words}") } else { format!("{name}.{path}: {words}") }
    };
    let mut faults = Vec::new();
    if let Some((table, first)) = written.as_table().and_then(|table| Some((table, table.get(required)?))) {
        let first = Table::from_iter([(required.to_owned(), first.clone())]);
        if let Some(misfit) = refused::<T>(&first) {
            return Err(vec![told(required, misfit)]);
        }
        for (key, value) in table {
            let mut pair = first.clone();
            pair.insert(key.clone(), value.clone());
            faults.extend(refused::<T>(&pair).map(|misfit| told(key, misfit)));
        }
    }
    Err(if faults.is_empty() { vec![told("", whole)] } else { faults })
}

fn refused<T: DeserializeOwned>(table: &Table) -> Option<Misfit> {
    let error = table.clone().try_into::<T>().err()?;
    Some(Misfit::of::<T>(table.clone(), error.message()))
}

/// Everything that is wrong with the sinks and the relays of a configuration. A relay may lead to one of the `incomplete` sinks,
/// which are not checked. `lease` is how long a call's claim holds.
pub(super) fn faults(
    sinks: &BTreeMap<String, Value>,
    incomplete: &BTreeSet<String>,
    routes: &BTreeMap<String, Value>,
    lease: Duration,
) -> Vec<String> {
    let (written, sinks, relays) = (sinks, read(sinks), relays(routes));
    let mut faults = Vec::new();
    if let Ok(relays) = &relays {
        let known: BTreeSet<&str> = written.keys().chain(incomplete).map(String::as_str).collect();
        for (route, relay) in relays.iter().filter(|(_, relay)| !known.contains(relay.sink.as_str())) {
            let known: Vec<&str> = known.iter().copied().collect();
            let known =
                if known.is_empty() { "there are no sinks".to_owned() } else { format!("the sinks are: {}", known.join(", ")) };
            faults.push(format!("routes.{:?}.sink is `{}`; {known}", route.to_string(), relay.sink));
        }
    }
    if let (Ok(sinks), Ok(relays)) = (&sinks, &relays) {
        for (name, sink) in sinks {
            let timeout = sink.common().timeout;
            if relays.iter().any(|(_, relay)| relay.sink == *name)
                && timeout.saturating_mul(2).saturating_add(Duration::from_secs(1)) >= lease
            {
                faults.push(format!(
                    "sinks.{name}.timeout is {timeout:?}; twice this time plus a second must be less than dispatcher.lease \
                     ({lease:?}), or a call could last longer than its claim"
                ));
            }
        }
    }
    let found = sinks.err().into_iter().chain(relays.err()).flatten();
    found.chain(faults).collect()
}

/// Whether this key of a sink holds what nobody may see.
pub(super) fn is_secret(key: &[String]) -> bool {
    const SECRETS: [&str; 5] = ["password", "token", "credentials", "nkey", "secrets"];
    match key {
        [sinks, _, setting, ..] if sinks == "sinks" => setting == "headers" || SECRETS.contains(&setting.as_str()),
        _ => false,
    }
}
