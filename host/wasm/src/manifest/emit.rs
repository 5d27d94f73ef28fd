//! `emit`: which follow-up events a plugin may write.

use outbox_event::Route;
use outbox_event::units::ByteSize;
use serde::{Deserialize, Serialize};

/// The follow-up events that a plugin may write. Written `emit = true` for the defaults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Emit {
    /// The routes, such as `Payment/PaymentRequested`; `Payment/*` and `*/*` stand for any name. Default `*/*`.
    #[serde(with = "patterns")]
    pub routes: Vec<Route>,
    /// Whether it may write events for other tenants than that of the event it answers. Default false. An aggregate's order is kept by
    /// its type and id alone, without its tenant: with this right a plugin can hold up another tenant's aggregate of the same id, so
    /// ids must be unique across tenants.
    pub other_tenants: bool,
    /// Whether it may choose the ids of its events. An event whose id is in the table already is not written: with this right a
    /// plugin can keep an event of another writer out, if it knows the id beforehand. Default false.
    pub ids: bool,
    /// Events per second, of all calls in one host together; ten times as many at once after a rest. None is refused: while a
    /// plugin has emitted more, the events of its routes that emit wait, and lose no attempt. Default 1,000; at least 1.
    pub per_second: u32,
    /// Bytes of payloads and headers per second, counted and held up in the same way. Default 4 MiB; at least 1.
    pub bytes_per_second: ByteSize,
}

impl Default for Emit {
    fn default() -> Self {
        let all = Route::new(Route::ANY, Route::ANY).expect("`*` is a name");
        Self { routes: vec![all], other_tenants: false, ids: false, per_second: 1_000, bytes_per_second: ByteSize::mib(4) }
    }
}

impl Emit {
    pub(crate) fn allows(&self, route: &Route) -> bool {
        self.routes.iter().any(|pattern| pattern.covers(route))
    }

    /// Everything that is wrong with these values.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.routes.is_empty() {
            faults.push("emit.routes is empty; name a route, or set emit = false".to_owned());
        }
        if self.per_second == 0 {
            faults.push("emit.per_second is 0; it must be at least 1".to_owned());
        }
        if self.bytes_per_second == ByteSize(0) {
            faults.push("emit.bytes_per_second is 0; it must be at least 1".to_owned());
        }
        faults
    }
}

/// Routes as they are written, `Order/OrderPlaced`.
mod patterns {
    use outbox_event::Route;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(routes: &[Route], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(routes.iter().map(ToString::to_string))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Route>, D::Error> {
        let route = |text: String| {
            let wrong =
                |why: &dyn std::fmt::Display| D::Error::custom(format!("`{text}` is not a route such as Order/*: {why}"));
            let (aggregate_type, event_type) = text.split_once('/').ok_or_else(|| wrong(&"it has no `/`"))?;
            Route::new(aggregate_type, event_type).map_err(|error| wrong(&error))
        };
        Vec::<String>::deserialize(deserializer)?.into_iter().map(route).collect()
    }
}
