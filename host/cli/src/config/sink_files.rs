//! Settings of sinks that are in files, read again while the program runs.

use std::collections::BTreeMap;
use std::fmt;

use outbox::sink::SinkConfig;
use toml::Value;

use super::layers::{self, Layers};
use super::{environment, sinks};

/// Settings that take effect at the next start of the host. All others take effect with the next connection of the sink.
const NEED_RESTART: [&str; 4] = ["timeout", "subjects", "max_age", "max_in_flight"];

/// The settings of a sink after its files have changed.
pub(crate) struct Reread {
    /// All settings.
    pub(crate) config: SinkConfig,
    /// Whether any of the changed settings takes effect with the next connection.
    pub(crate) connects_anew: bool,
    /// The changed settings that need a restart.
    pub(crate) need_restart: Vec<String>,
}

/// A sink some of whose settings are in files.
#[derive(Clone)]
pub(crate) struct SinkFiles {
    /// The name of the sink.
    pub(crate) sink: String,
    /// Its settings that are in use.
    settings: Value,
    /// Its settings, as they were read last, if these are others.
    pending: Option<Value>,
    /// The keys below the sink whose values refer to a file, and these values as they are written.
    written: Vec<(Vec<String>, Value)>,
}

impl SinkFiles {
    /// All sinks that refer to files, with the settings that were read from these.
    pub(super) fn of(sinks: &BTreeMap<String, Value>, layers: &Layers) -> Vec<Self> {
        let files_of = |sink: &String| -> Vec<(Vec<String>, Value)> {
            let is_its = |key: &[String]| matches!(key, [first, name, _, ..] if first == "sinks" && name == sink);
            let leaves = layers.leaves.iter().filter(|(key, leaf)| is_its(key) && layers::mentions(&leaf.written, "${file:"));
            leaves.map(|(key, leaf)| (key[2..].to_vec(), leaf.written.clone())).collect()
        };
        let all = sinks.iter().map(|(sink, settings)| Self {
            sink: sink.clone(),
            settings: settings.clone(),
            pending: None,
            written: files_of(sink),
        });
        all.filter(|files| !files.written.is_empty()).collect()
    }

    /// Reads the files again, which may block. Returns the settings of the sink if they are not those in use, and were the same when
    /// they were read before: a file may be half written.
    ///
    /// # Errors
    /// A file that cannot be read or is empty, or settings that are not valid.
    pub(crate) fn read_again(&mut self) -> Result<Option<Reread>, String> {
        let mut settings = self.settings.clone();
        let table = settings.as_table_mut().ok_or("it has no settings")?;
        for (key, written) in &self.written {
            let named = |why: String| format!("sinks.{}.{}: {why}", self.sink, key.join("."));
            let value = layers::expand_all(written, &reference).map_err(named)?;
            layers::insert(table, key, value);
        }
        let pending = self.pending.take();
        if settings == self.settings {
            return Ok(None);
        }
        if pending.as_ref() != Some(&settings) {
            self.pending = Some(settings);
            return Ok(None);
        }
        let is_changed = |name: &str| settings.get(name) != self.settings.get(name);
        let changed = self.written.iter().map(|(key, _)| key[0].clone()).filter(|name| is_changed(name));
        let (mut need_restart, others): (Vec<String>, Vec<String>) =
            changed.partition(|name| NEED_RESTART.contains(&name.as_str()));
        need_restart.dedup();
        let mut read =
            sinks::read(&BTreeMap::from([(self.sink.clone(), settings.clone())])).map_err(|faults| faults.join("; "))?;
        self.settings = settings;
        Ok(read.remove(&self.sink).map(|config| Reread { config, connects_anew: !others.is_empty(), need_restart }))
    }
}

/// Resolves a reference. An empty file is not used: it is probably being written.
fn reference(source: &str, name: &str) -> Result<String, String> {
    let text = environment::reference(source, name)?;
    if source == "file" && text.trim().is_empty() {
        return Err(format!("${{file:{name}}}: the file is empty"));
    }
    Ok(text)
}

impl fmt::Debug for SinkFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SinkFiles").field("sink", &self.sink).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Checks, FILE, compose};

    #[test]
    fn settings_in_files_are_read_again_and_named_when_they_cannot_be() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("source");
        std::fs::write(&file, "shop\n").expect("writes");
        let text = format!(
            "[sinks.console]\nkind = \"stdout\"\nsource = \"the ${{file:{}}}\"\n[sinks.other]\nkind = \"stdout\"\n",
            file.display()
        );
        let (config, _) =
            compose(Some((FILE, &text)), std::iter::empty(), &[], &environment::reference, Checks::ALL).expect("good");
        let mut all = config.sink_files;
        assert_eq!(all.iter().map(|files| files.sink.as_str()).collect::<Vec<_>>(), ["console"]);
        let files = &mut all[0];
        assert!(files.read_again().expect("reads").is_none(), "it is as it was");

        for text in ["st", "store"] {
            std::fs::write(&file, text).expect("writes");
            assert!(files.read_again().expect("reads").is_none(), "it may be half written");
        }

        let changed = files.read_again().expect("reads").expect("it has changed");
        assert!(changed.connects_anew && changed.need_restart.is_empty());
        assert!(matches!(changed.config, SinkConfig::Stdout(console) if console.source == "the store"));
        assert!(files.read_again().expect("reads").is_none(), "it is told once");
        std::fs::write(&file, "").expect("writes");
        let empty = format!("sinks.console.source: ${{file:{}}}: the file is empty", file.display());
        assert_eq!(files.read_again().err(), Some(empty));
        std::fs::remove_file(&file).expect("removes");
        assert!(files.read_again().is_err_and(|why| why.starts_with("sinks.console.source: ${file:")));
    }

    #[test]
    fn a_changed_setting_that_needs_a_restart_is_named_and_is_no_reason_to_connect_anew() {
        let directory = tempfile::tempdir().expect("a directory");
        let [password, timeout] = ["password", "timeout"].map(|name| directory.path().join(name));
        std::fs::write(&password, "first").expect("writes");
        std::fs::write(&timeout, "10s").expect("writes");
        let text = format!(
            "[sinks.orders]\nkind = \"redis\"\nurl = \"redis://127.0.0.1:6379\"\npassword = \"${{file:{}}}\"\ntimeout = \"${{file:{}}}\"\n",
            password.display(),
            timeout.display()
        );
        let (config, _) =
            compose(Some((FILE, &text)), std::iter::empty(), &[], &environment::reference, Checks::ALL).expect("good");
        let mut files = config.sink_files.into_iter().next().expect("it has files");
        let mut changed = || {
            assert!(files.read_again().expect("reads").is_none(), "it may be half written");
            let reread = files.read_again().expect("reads").expect("it has changed");
            (reread.connects_anew, reread.need_restart)
        };

        std::fs::write(&timeout, "5s").expect("writes");
        assert_eq!(changed(), (false, vec!["timeout".to_owned()]));

        std::fs::write(&password, "second").expect("writes");
        assert_eq!(changed(), (true, Vec::new()));

        std::fs::write(&timeout, "6s").expect("writes");
        std::fs::write(&password, "third").expect("writes");
        assert_eq!(changed(), (true, vec!["timeout".to_owned()]));
    }
}
