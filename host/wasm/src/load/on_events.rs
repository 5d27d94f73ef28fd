//! The function `on-events`, by which a component takes events many at a time.

use wasmtime::AsContextMut;
use wasmtime::component::{Component, ComponentExportIndex, Instance};

use crate::bindings::exports::outbox::listener::handler as wit;

/// The interface that a component exports when it takes events many at a time.
const INTERFACE: &str = "outbox:listener/batch-handler@0.1.0";

/// The answers of a call for many events, in order.
pub(crate) type Answers = Vec<Result<wit::DispatchResult, wit::Failure>>;

/// The function `on-events` of a component; `None` when it exports none.
pub(crate) fn export(component: &Component) -> Option<ComponentExportIndex> {
    let interface = component.get_export_index(None, INTERFACE)?;
    component.get_export_index(Some(&interface), "on-events")
}

/// Whether `on-events` of a component takes and gives what it must, found out from an instance.
pub(crate) fn check(
    instance: &Instance,
    mut store: impl AsContextMut,
    function: &ComponentExportIndex,
) -> wasmtime::Result<()> {
    instance.get_typed_func::<(&[wit::Event<'_>],), (Answers,)>(&mut store, function).map(|_| ())
}
