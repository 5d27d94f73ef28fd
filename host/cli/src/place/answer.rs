//! What a host answers, where the library has no type for it: pages, and one row whole.

use outbox::store::{Record, RouteRecord};
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
pub(super) struct Now {
    pub(super) now: outbox::time::Timestamp,
}

#[derive(Deserialize)]
pub(super) struct Page {
    pub(super) events: Vec<Record>,
    pub(super) next: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct RoutePage {
    pub(super) routes: Vec<RouteRecord>,
    pub(super) next: Option<String>,
}

/// A row with its payload in base64, if it may be seen. Read in two steps: a flattened struct could not keep its numbers exact.
pub(super) struct Whole {
    pub(super) record: Record,
    pub(super) payload_base64: Option<String>,
    pub(super) payload_hidden: bool,
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Payload {
            #[serde(default)]
            payload_base64: Option<String>,
            #[serde(default)]
            payload_hidden: bool,
        }
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let record = serde_json::from_str(text.get()).map_err(serde::de::Error::custom)?;
        let Payload { payload_base64, payload_hidden } = serde_json::from_str(text.get()).map_err(serde::de::Error::custom)?;
        Ok(Self { record, payload_base64, payload_hidden })
    }
}

#[derive(Deserialize)]
pub(super) struct Changed {
    pub(super) changed: bool,
}
