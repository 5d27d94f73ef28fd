//! What wit-bindgen makes of the listener contract, and the bridge from it to this crate's own types.

#![allow(
    unsafe_code,
    unreachable_pub,
    missing_docs,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "generated: values cross into and out of the component by raw pointers"
)]

wit_bindgen::generate!({
    path: "wit",
    world: "listener",
    generate_all,
    pub_export_macro: true,
    export_macro_name: "export",
});

/// The optional export, in a world of its own: only a plugin that has a check exports it.
pub mod settings_check {
    wit_bindgen::generate!({
        path: "wit",
        inline: "package outbox:sdk; world checked-listener { export outbox:listener/settings-check@0.1.0; }",
        world: "outbox:sdk/checked-listener",
        pub_export_macro: true,
        export_macro_name: "export_settings_check",
    });
}

/// The other optional export, with the types of the first world.
pub mod batch_handler {
    wit_bindgen::generate!({
        path: "wit",
        inline: "package outbox:sdk; world batch-listener { export outbox:listener/batch-handler@0.1.0; }",
        world: "outbox:sdk/batch-listener",
        with: { "outbox:listener/types@0.1.0": crate::bindings::outbox::listener::types },
        pub_export_macro: true,
        export_macro_name: "export_batch_handler",
    });
}

impl<P: crate::BatchPlugin> batch_handler::exports::outbox::listener::batch_handler::Guest for P {
    fn on_events(events: Vec<types::Event>) -> Vec<Result<types::DispatchResult, types::Failure>> {
        let events: Vec<Event> = events.into_iter().map(Event::from).collect();
        P::on_events(&events).into_iter().map(answer).collect()
    }
}

impl<P: crate::SettingsCheck> settings_check::exports::outbox::listener::settings_check::Guest for P {
    fn check_settings() -> Result<(), String> {
        P::check_settings().map_err(|failure| failure.message)
    }
}

use exports::outbox::listener::handler::Guest;
use outbox::listener::types;

use crate::{Answer, Description, DispatchResult, Event, Failure, FailureKind, Plugin, Route};

impl<P: Plugin> Guest for P {
    fn describe() -> types::Description {
        P::describe().into()
    }

    fn on_event(event: types::Event) -> Result<types::DispatchResult, types::Failure> {
        answer(P::on_event(&event.into()))
    }
}

fn answer(answer: Answer) -> Result<types::DispatchResult, types::Failure> {
    match answer {
        Ok(result) => Ok(result.into()),
        Err(failure) => Err(failure.into()),
    }
}

impl From<types::Route> for Route {
    fn from(route: types::Route) -> Self {
        let types::Route { aggregate_type, event_type } = route;
        Self { aggregate_type, event_type }
    }
}

impl From<types::Event> for Event {
    fn from(event: types::Event) -> Self {
        let types::Event {
            id,
            delivery_id,
            route,
            aggregate_id,
            tenant_id,
            sequence,
            occurred_at_ms,
            attempt,
            content_type,
            payload,
            headers,
            attributes,
        } = event;
        Self {
            id,
            delivery_id,
            route: route.into(),
            aggregate_id,
            tenant_id,
            sequence,
            occurred_at_ms,
            attempt,
            content_type,
            payload,
            headers,
            attributes,
        }
    }
}

impl From<Description> for types::Description {
    fn from(description: Description) -> Self {
        let routes = description
            .routes
            .into_iter()
            .map(|route| types::Route { aggregate_type: route.aggregate_type, event_type: route.event_type });
        let routes = routes.collect();
        Self { name: description.name, version: description.version, routes, attributes: Vec::new() }
    }
}

impl From<DispatchResult> for types::DispatchResult {
    fn from(result: DispatchResult) -> Self {
        match result {
            DispatchResult::Done => Self::Done,
            DispatchResult::RetryAfter(delay) => Self::RetryAfter(millis(delay)),
            DispatchResult::Dead(reason) => Self::Dead(reason),
        }
    }
}

impl From<Failure> for types::Failure {
    fn from(failure: Failure) -> Self {
        let kind = match failure.kind {
            FailureKind::Retryable => types::FailureKind::Retryable,
            FailureKind::RetryableAfter(delay) => types::FailureKind::RetryableAfter(millis(delay)),
            FailureKind::Unrecoverable => types::FailureKind::Unrecoverable,
        };
        let Failure { message, code, details, .. } = failure;
        Self { message, code, kind, attributes: details }
    }
}

/// The contract speaks of milliseconds; a delay beyond what they can hold is as good as the longest.
pub(crate) fn millis(delay: std::time::Duration) -> u32 {
    u32::try_from(delay.as_millis()).unwrap_or(u32::MAX)
}
