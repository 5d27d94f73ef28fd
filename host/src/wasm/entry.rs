//! What is known of one plugin of the directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use super::call::PluginListener;
use super::plugin::Plugin;
use super::status::{PluginState, PluginStatus};
use super::text::escape;
use crate::event::Route;

/// What is known of one file name.
pub(super) struct Entry {
    pub(super) file: PathBuf,
    pub(super) serving: Option<Serving>,
    /// Loaded, and wants to serve: in this scan, or since its routes belong to somebody else.
    pub(super) candidate: Option<Candidate>,
    pub(super) fault: Option<Fault>,
    /// Whether the file as it is has yet to be loaded.
    pub(super) loading: bool,
}

/// A version that answers.
pub(super) struct Serving {
    pub(super) key: Key,
    pub(super) plugin: Arc<Plugin>,
    pub(super) listeners: Vec<Arc<PluginListener>>,
}

/// A version that could answer.
pub(super) struct Candidate {
    pub(super) key: Key,
    pub(super) plugin: Arc<Plugin>,
    pub(super) since: Instant,
}

/// Why the file as it is does not serve.
pub(super) struct Fault {
    /// Not tried again while this stays the same; `None` for a fault that may pass by itself.
    key: Option<Key>,
    error: String,
}

/// What a plugin was made from.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Key {
    pub(super) digest: String,
    pub(super) manifest: String,
}

impl Key {
    /// As much of the digest as people read.
    pub(super) fn short(&self) -> &str {
        &self.digest[..12]
    }
}

impl Entry {
    pub(super) fn new(file: &Path) -> Self {
        Self { file: file.to_owned(), serving: None, candidate: None, fault: None, loading: false }
    }

    /// What it answers now.
    pub(super) fn routes(&self) -> &[Route] {
        self.serving.as_ref().map(|serving| &*serving.plugin.routes).unwrap_or_default()
    }

    /// Whether the file as it is has been dealt with: it serves, waits for a route, or has failed for good.
    pub(super) fn has_dealt_with(&self, key: &Key) -> bool {
        self.candidate.as_ref().is_some_and(|candidate| candidate.key == *key)
            || self.fault.as_ref().is_some_and(|fault| fault.key.as_ref() == Some(key))
    }

    /// The file is again what serves.
    pub(super) fn settle(&mut self) {
        (self.fault, self.candidate, self.loading) = (None, None, false);
    }

    /// Remembers why the file does not serve; logged once for each reason.
    pub(super) fn fail(&mut self, name: &str, key: Option<Key>, error: String) {
        if self.fault.as_ref().is_none_or(|fault| fault.error != error) {
            let fate = match &self.serving {
                Some(serving) => format!("version {} ({}) goes on serving", serving.plugin.version, serving.key.short()),
                None => "its routes have no listener".to_owned(),
            };
            tracing::error!(plugin = name, "plugin {} was not loaded, {fate}: {error}", escape(name));
        }
        self.fault = Some(Fault { key, error });
        self.loading = false;
    }

    /// Why the file as it is does not serve; `None` when it does.
    pub(super) fn trouble(&self) -> Option<&str> {
        match &self.fault {
            Some(fault) => Some(&fault.error),
            None => self.loading.then_some("it is being compiled"),
        }
    }

    pub(super) fn status(&self, name: &str) -> PluginStatus {
        let plugin = self.serving.as_ref().map(|serving| &serving.plugin);
        let key = match (&self.serving, &self.candidate, &self.fault) {
            (Some(serving), ..) => Some(&serving.key),
            (None, Some(candidate), _) => Some(&candidate.key),
            (None, None, fault) => fault.as_ref().and_then(|fault| fault.key.as_ref()),
        };
        let state = match (plugin, self.loading) {
            (Some(_), _) => PluginState::Serving,
            (None, true) => PluginState::Loading,
            (None, false) => PluginState::Failed,
        };
        PluginStatus {
            name: name.to_owned(),
            version: plugin.map(|plugin| plugin.version.clone()),
            digest: key.map(|key| key.digest.clone()),
            state,
            routes: self.routes().to_vec(),
            error: self.fault.as_ref().map(|fault| fault.error.clone()),
            file: self.file.clone(),
        }
    }
}
