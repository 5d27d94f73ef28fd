//! Components whose compiling had to be stopped: not tried again at every start, since each try costs a minute of a processor.
//!
//! Noted by digest, version of the host and engine: another file, another host or another engine is tried at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use outbox_event::time::{Clock, Timestamp};
use serde::{Deserialize, Serialize};

use super::Private;

const ENDING: &str = ".quarantine";

/// Why a component is not tried again, and since when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// What the compiler did to be stopped.
    pub(crate) reason: String,
    pub(crate) since: Timestamp,
}

/// The components that are not tried again.
pub(crate) struct Quarantine {
    /// `None` without a private directory: then the next start tries again.
    private: Option<Arc<Private>>,
    /// Records that could not be written to a file, by name.
    memory: Mutex<HashMap<String, Record>>,
    clock: Arc<dyn Clock>,
}

impl Quarantine {
    pub(crate) fn new(private: Option<Arc<Private>>, clock: Arc<dyn Clock>) -> Self {
        Self { private, memory: Mutex::default(), clock }
    }

    /// The record of these bytes for an engine of this compatibility; `None` when they may be tried.
    pub(crate) fn find(&self, compatibility: &str, digest: &str) -> Option<Record> {
        let name = name(compatibility, digest);
        let noted = self.private.as_ref().and_then(|private| private.read(&name));
        let noted = noted.and_then(|content| serde_json::from_slice(&content).ok());
        noted.or_else(|| self.memory.lock().unwrap_or_else(PoisonError::into_inner).get(&name).cloned())
    }

    /// Notes that these bytes are not to be tried again.
    pub(crate) fn put(&self, compatibility: &str, digest: &str, reason: &str) {
        let record = Record { reason: reason.to_owned(), since: self.clock.now() };
        let name = name(compatibility, digest);
        let written = self.private.as_ref().map(|private| {
            let content = serde_json::to_vec(&record).expect("a record is plain data");
            private.write(&name, &content)
        });
        if let Some(Err(error)) = &written {
            tracing::warn!(
                target: "outbox::wasm::private::quarantine",
                "the next start compiles {digest} again, which had to be stopped: it cannot be noted: {error}"
            );
        }
        if !matches!(written, Some(Ok(()))) {
            self.memory.lock().unwrap_or_else(PoisonError::into_inner).insert(name, record);
        }
    }

    /// Lets these bytes be tried again, whatever the engine; true when they were not to be.
    pub(crate) fn lift(&self, digest: &str) -> bool {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let before = memory.len();
        memory.retain(|name, _| !is_of(name, digest));
        let mut lifted = memory.len() < before;
        drop(memory);
        if let Some(private) = &self.private {
            for file in private.list(ENDING).iter().filter(|file| is_of(&file.name, digest)) {
                lifted |= private.remove(&file.name);
            }
        }
        lifted
    }
}

fn is_of(name: &str, digest: &str) -> bool {
    name.strip_prefix(digest).is_some_and(|rest| rest.starts_with('-'))
}

fn name(compatibility: &str, digest: &str) -> String {
    format!("{digest}-{compatibility}-{}{ENDING}", env!("CARGO_PKG_VERSION"))
}
