//! Compiled components, kept so that a restart does not compile again.
//!
//! Loading a compiled component runs it unchecked, so only what this host wrote itself is loaded: see [`super`].

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use outbox_event::time::Timestamp;
use outbox_event::units::ByteSize;
use wasmtime::component::Component;

use super::{Listed, Private};
use crate::engine::compatibility::compatibility;

const ENDING: &str = ".cwasm";
/// A compiled component that nobody used for this long is deleted.
const MAX_AGE: Duration = Duration::from_secs(30 * 24 * 3_600);
/// A file this old that is half written was left by a host that was killed: no write takes as long.
const DRAFT_AGE: Duration = Duration::from_secs(3_600);

/// The compiled components of a private directory.
pub(crate) struct Cache {
    private: Arc<Private>,
    max: ByteSize,
}

impl Cache {
    /// At most this many bytes; components that serve stay in any case.
    pub(crate) fn new(private: Arc<Private>, max: ByteSize) -> Self {
        Self { private, max }
    }

    /// Whether there is a compiled component for these bytes. That it can be used is known only when it is loaded.
    pub(crate) fn has(&self, engine: &wasmtime::Engine, digest: &str) -> bool {
        self.private.has(&name(engine, digest))
    }

    /// The compiled component for these bytes, if it is there and nobody touched it.
    pub(crate) fn load(&self, engine: &wasmtime::Engine, digest: &str) -> Option<Component> {
        let name = name(engine, digest);
        let compiled = self.private.read(&name)?;
        #[expect(
            unsafe_code,
            reason = "these bytes, and not what the path leads to now, were just verified to be our compiler's"
        )]
        // SAFETY: the HMAC proves that this host wrote these very bytes, from its own compiler.
        let component = unsafe { Component::deserialize(engine, &compiled) };
        match component {
            Ok(component) => {
                self.private.touch(&name);
                Some(component)
            }
            Err(error) => {
                self.private.spoilt(&name, &format!("{error:#}"));
                None
            }
        }
    }

    /// Keeps what the compiler made. A failure is logged and costs the next start some time.
    pub(crate) fn store(&self, engine: &wasmtime::Engine, digest: &str, compiled: &[u8]) {
        let name = name(engine, digest);
        if let Err(error) = self.private.write(&name, compiled) {
            tracing::warn!(
                target: "outbox::wasm::private::cache",
                "the next start compiles again: {} could not be written: {error}",
                self.private.path(&name).display()
            );
        }
    }

    /// Throws away what nobody used for a month, and then the least used, until what is left fits. Never what serves, by digest.
    pub(crate) fn shrink(&self, serving: &BTreeSet<String>, now: Timestamp) {
        let age = |file: &Listed| now.since(file.used);
        for draft in self.private.drafts().iter().filter(|draft| age(draft) > DRAFT_AGE) {
            self.private.remove(&draft.name);
        }
        let mut files = self.private.list(ENDING);
        files.sort_by_key(|file| std::cmp::Reverse(file.used));
        let mut total = 0;
        for file in &files {
            let serves = file.name.split('-').next().is_some_and(|digest| serving.contains(digest));
            total += file.bytes;
            if !serves && (total > self.max.0 || age(file) > MAX_AGE) && self.private.remove(&file.name) {
                total -= file.bytes;
            }
        }
    }
}

/// The name covers everything that decides what the compiler makes.
fn name(engine: &wasmtime::Engine, digest: &str) -> String {
    format!("{digest}-{}{ENDING}", compatibility(engine))
}

/// The same compiled component for another engine of this process.
///
/// # Errors
/// When the two engines compile differently.
pub(crate) fn copied(component: &Component, engine: &wasmtime::Engine) -> wasmtime::Result<Component> {
    let compiled = component.serialize()?;
    #[expect(unsafe_code, reason = "these bytes never left this function")]
    // SAFETY: the bytes are our compiler's, from `Component::serialize` one line above.
    unsafe {
        Component::deserialize(engine, compiled)
    }
}

/// The component that our own child process has just compiled.
///
/// # Errors
/// When the child compiled for another engine.
pub(crate) fn from_child(engine: &wasmtime::Engine, compiled: &[u8]) -> io::Result<Component> {
    #[expect(unsafe_code, reason = "read from the pipe of a process that runs this very program, and from nowhere else")]
    // SAFETY: the bytes are our compiler's: the child is this program, and only its own output reaches this pipe.
    let component = unsafe { Component::deserialize(engine, compiled) };
    component.map_err(|error| io::Error::other(format!("{error:#}")))
}
