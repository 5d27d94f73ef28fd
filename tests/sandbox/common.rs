//! A host with plugins of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use outbox::poller::PollerConfig;
use outbox::wasm::PluginsConfig;
use outbox::{Envelope, EventId, Outbox, SqliteStore};
use support::{Sqlite, sample_plugins};
use tempfile::TempDir;

use crate::compiled::CompiledSamples;

/// A plugins directory that lives as long as a test.
pub(crate) struct Directory {
    plugins: TempDir,
    compiled: CompiledSamples,
}

impl Directory {
    pub(crate) fn new() -> Self {
        Self { plugins: TempDir::new().expect("a temporary directory"), compiled: CompiledSamples::new() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.plugins.path()
    }

    /// The configuration of a host over these plugins, unless a test wants another.
    pub(crate) fn config(&self) -> PluginsConfig {
        let cache_dir = Some(self.compiled.path().to_owned());
        PluginsConfig { dir: self.path().to_owned(), cache_dir, ..PluginsConfig::default() }
    }

    /// As [`config`](Self::config), for a host that looks at the directory only when a test asks it to.
    pub(crate) fn config_without_watch(&self) -> PluginsConfig {
        let never = Duration::from_secs(3_600);
        PluginsConfig { rescan_interval: never, debounce: never, ..self.config() }
    }

    /// Puts a whole file in place at once, as people are told to.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) {
        let part = self.path().join(".part");
        fs::write(&part, bytes).expect("the directory is ours");
        fs::rename(part, self.path().join(name)).expect("the directory is ours");
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.path().join(name)).expect("the file is there");
    }
}

/// The bytes of a sample plugin.
pub(crate) fn sample(name: &str) -> Vec<u8> {
    let file: PathBuf = sample_plugins().join(format!("{name}.wasm"));
    fs::read(&file).unwrap_or_else(|error| panic!("{} is not there: {error}", file.display()))
}

/// A host over these plugins. It looks at the directory only when a test asks it to.
pub(crate) async fn host(store: SqliteStore, directory: &Directory) -> Outbox<SqliteStore> {
    Outbox::single_node(store)
        .poller(PollerConfig { interval: Duration::from_millis(20), ..PollerConfig::default() })
        .plugins_config(directory.config_without_watch())
        .start()
        .await
        .expect("starts")
}

/// A database on the system's clock: plugins keep real time.
pub(crate) async fn database() -> (Sqlite, SqliteStore) {
    Sqlite::on_system_clock().await
}

pub(crate) fn event(aggregate_type: &str, event_type: &str, payload: &str) -> Envelope {
    Envelope::new(event_type).aggregate_type(aggregate_type).json_text(payload.to_owned()).expect("a good envelope")
}

/// Writes events in one transaction and commits it.
pub(crate) async fn commit(outbox: &Outbox<SqliteStore>, envelopes: Vec<Envelope>) -> Vec<EventId> {
    let mut transaction = outbox.begin().await.expect("begins");
    let ids = transaction.write_all(envelopes).await.expect("writes");
    transaction.commit().await.expect("commits");
    ids
}
