//! What a component says of itself and of its settings, asked with no capability and a small budget.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use outbox_event::Route;
use outbox_event::text::keepable;
use wasmtime::component::Component;

use super::on_events;
use super::plugin::Linked;
use crate::bindings::exports::outbox::listener::handler::Description;
use crate::capability::HostState;
use crate::directory::ManifestFile;
use crate::error::LoadError;
use crate::explain::{CallError, explain};
use crate::limits::INIT_FUEL;
use crate::manifest::Limits;
use crate::turns::in_turns;

/// The interface of a component that looks at its settings.
const SETTINGS_CHECK: &str = "outbox:listener/settings-check@0.1.0";
const DESCRIBE_DEADLINE: Duration = Duration::from_secs(5);
const MAX_NAME_BYTES: usize = 128;
const MAX_ROUTES: usize = 1_000;

/// The dry run: some differences of types are found by nothing else.
pub(super) async fn describe(file: &Path, linked: &Linked) -> Result<Description, LoadError> {
    let failed = |reason: String| LoadError::Describe { file: file.to_owned(), reason };
    let run = async {
        let budget = Limits { fuel: INIT_FUEL, ..linked.limits };
        let name = &linked.identity.name;
        let explained = |error: &wasmtime::Error, store: &mut _| match explain(error, store, &budget, name) {
            CallError::Broken(failure) => failed(failure.to_string()),
            CallError::NoSlot => LoadError::NoSlot { file: file.to_owned() },
            CallError::NoMemory => no_memory(file, linked),
        };
        let mut instance = match linked.instantiate(linked.store(INIT_FUEL)).await {
            Ok(instance) => instance,
            Err((error, mut store)) => {
                return Err(match error.downcast_ref::<wasmtime::Trap>() {
                    None if format!("{error:#}").contains("type mismatch") => {
                        LoadError::Link { file: file.to_owned(), reason: keepable(&format!("{error:#}"), 1_024) }
                    }
                    _ => explained(&error, &mut store),
                });
            }
        };
        instance.store.data_mut().begin(None, Instant::now() + DESCRIBE_DEADLINE);
        instance.store.set_fuel(INIT_FUEL).map_err(|error| failed(error.to_string()))?;
        let answer = instance.guest.outbox_listener_handler().call_describe(&mut instance.store).await;
        answer.map_err(|error| explained(&error, &mut instance.store))
    };
    tokio::time::timeout(DESCRIBE_DEADLINE, in_turns(&linked.identity.name, false, run))
        .await
        .unwrap_or_else(|_| Err(failed(format!("it took longer than {}", humantime::format_duration(DESCRIBE_DEADLINE)))))
}

/// Asks a component that looks at its settings whether they will do.
pub(super) async fn check_settings(
    file: &Path,
    component: &Component,
    linked: &Linked,
    written: &ManifestFile,
) -> Result<(), LoadError> {
    let Some(interface) = component.get_export_index(None, SETTINGS_CHECK) else { return Ok(()) };
    let refused = |reason: &str| {
        let reason = keepable(&linked.identity.grants.hide(reason), 1_024);
        let location = written.location(file);
        let manifest = if written.exists() {
            format!("its manifest is {location}")
        } else {
            format!("it has no manifest yet: write {location}")
        };
        LoadError::Settings { file: file.to_owned(), manifest, reason }
    };
    let broken = |error: &wasmtime::Error, store: &mut wasmtime::Store<HostState>| match explain(
        error,
        store,
        &Limits { fuel: INIT_FUEL, ..linked.limits },
        &linked.identity.name,
    ) {
        CallError::Broken(failure) => refused(&failure.to_string()),
        CallError::NoSlot => LoadError::NoSlot { file: file.to_owned() },
        CallError::NoMemory => no_memory(file, linked),
    };
    let run = async {
        let mut store = linked.store(INIT_FUEL);
        store.data_mut().begin(None, Instant::now() + DESCRIBE_DEADLINE);
        let answer = async {
            let instance = linked.pre.instance_pre().instantiate_async(&mut store).await?;
            let function = component.get_export_index(Some(&interface), "check-settings");
            let function = function.ok_or_else(|| wasmtime::format_err!("{SETTINGS_CHECK} has no function check-settings"))?;
            let check = instance.get_typed_func::<(), (Result<(), String>,)>(&mut store, &function)?;
            store.set_fuel(INIT_FUEL)?;
            check.call_async(&mut store, ()).await
        };
        let answer: wasmtime::Result<_> = answer.await;
        match answer {
            Ok((Ok(()),)) => Ok(()),
            Ok((Err(reason),)) => Err(refused(&reason)),
            Err(error) => Err(broken(&error, &mut store)),
        }
    };
    let late = || refused(&format!("it took longer than {} to look", humantime::format_duration(DESCRIBE_DEADLINE)));
    let run = in_turns(&linked.identity.name, false, run);
    tokio::time::timeout(DESCRIBE_DEADLINE, run).await.unwrap_or_else(|_| Err(late()))
}

/// Whether the function `on-events` of a component that has one is of our shape: at a call it would be too late to say.
pub(super) async fn check_on_events(file: &Path, component: &Component, linked: &Linked) -> Result<(), LoadError> {
    let Some(function) = on_events::export(component) else { return Ok(()) };
    let mut store = linked.store(INIT_FUEL);
    store.data_mut().begin(None, Instant::now() + DESCRIBE_DEADLINE);
    let make = linked.pre.instance_pre().instantiate_async(&mut store);
    let made = tokio::time::timeout(DESCRIBE_DEADLINE, in_turns(&linked.identity.name, false, make)).await;
    // It was instantiated a moment ago, so only a slot or memory can be missing now.
    let Ok(Ok(instance)) = made else {
        let is_refused_memory = store.data().limiter.starved;
        return Err(if is_refused_memory { no_memory(file, linked) } else { LoadError::NoSlot { file: file.to_owned() } });
    };
    on_events::check(&instance, &mut store, &function)
        .map_err(|error| LoadError::Link { file: file.to_owned(), reason: keepable(&format!("on-events: {error:#}"), 1_024) })
}

fn no_memory(file: &Path, linked: &Linked) -> LoadError {
    LoadError::NoMemory { file: file.to_owned(), max: linked.share.max_memory() }
}

/// The routes of a description: at least one, valid, none twice.
pub(super) fn routes(file: &Path, description: &Description) -> Result<Vec<Route>, LoadError> {
    let wrong = |reason: String| Err(LoadError::Description { file: file.to_owned(), reason });
    for (what, text) in [("name", &description.name), ("version", &description.version)] {
        if text.is_empty() || text.len() > MAX_NAME_BYTES || text.chars().any(char::is_control) {
            return wrong(format!("its {what} must have 1 to {MAX_NAME_BYTES} bytes and no control characters"));
        }
    }
    if description.routes.is_empty() || description.routes.len() > MAX_ROUTES {
        return wrong(format!("it declares {} routes; 1 to {MAX_ROUTES} are allowed", description.routes.len()));
    }
    let mut seen = BTreeSet::new();
    for declared in &description.routes {
        let route = Route::new(&declared.aggregate_type, &declared.event_type).map_err(|source| LoadError::Route {
            file: file.to_owned(),
            aggregate_type: keepable(&declared.aggregate_type, 100),
            event_type: keepable(&declared.event_type, 200),
            source,
        })?;
        if [route.aggregate_type.as_str(), route.event_type.as_str()].iter().any(|name| name.ends_with(' ')) {
            return wrong(format!(
                "it declares the route `{route}`, a name of which ends in a space; MySQL takes it for the one without"
            ));
        }
        if let Some(twice) = seen.replace(route) {
            return wrong(format!("it declares the route {twice} twice"));
        }
    }
    Ok(seen.into_iter().collect())
}
