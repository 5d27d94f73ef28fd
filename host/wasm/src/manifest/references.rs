//! What `${env:NAME}` and `${file:PATH}` in a manifest stand for, and which manifest may say them.
//!
//! Whoever can put a component into the plugins directory can put a manifest beside it, and a component may print what its
//! manifest hands it. So only the host's own configuration refers to whatever the host can read; a manifest beside a component
//! refers to what was set aside for plugins.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::LoadError;

/// The variables that a manifest beside a component may refer to.
const VARIABLES: &str = "OUTBOX_PLUGIN_";

/// Where a value of a manifest's `[config]` comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `${env:NAME}`: the environment of the host.
    Env,
    /// `${file:PATH}`: the text of a file.
    File,
}

/// Finds the values behind `${env:NAME}` and `${file:PATH}`.
///
/// The library reads neither: whoever embeds it says how. The default refuses. It is asked only for what the manifest may refer
/// to: see [`PluginsConfig::manifests`](crate::PluginsConfig::manifests).
#[derive(Clone)]
pub struct Resolve(Arc<Find>);

type Find = dyn Fn(Source, &str) -> Result<String, String> + Send + Sync;

impl Resolve {
    /// With a function from where and which to the value, or to the reason why there is none.
    pub fn new(find: impl Fn(Source, &str) -> Result<String, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(find))
    }
}

impl Default for Resolve {
    fn default() -> Self {
        Self::new(|source, name| {
            let what = match source {
                Source::Env => "the environment",
                Source::File => "a file",
            };
            Err(format!("`{name}` would come from {what}, which this host does not read for plugins; write the value itself"))
        })
    }
}

impl fmt::Debug for Resolve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolve")
    }
}

/// Where a manifest stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WrittenIn {
    /// In the host's own configuration.
    HostConfig,
    /// Beside the component, in the plugins directory.
    PluginsDir,
}

/// The references of all manifests.
#[derive(Clone, Debug, Default)]
pub(crate) struct References {
    pub(crate) resolve: Resolve,
    /// The directory of files that manifests beside components may refer to.
    pub(crate) files_dir: Option<PathBuf>,
}

impl References {
    /// The values of a table of a plugin's manifest with every reference replaced. `table` is `config` or `secrets`.
    pub(crate) fn table(
        &self,
        plugin: &str,
        written_in: WrittenIn,
        table: &'static str,
        values: &BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, String>, LoadError> {
        let resolve = |(key, value): (&String, &String)| match self.text(plugin, written_in, value) {
            Ok(value) => Ok((key.clone(), value)),
            Err(reason) => Err(LoadError::Config { plugin: plugin.to_owned(), table, key: key.clone(), reason }),
        };
        values.iter().map(resolve).collect()
    }

    /// The text of a plugin's manifest with every reference replaced.
    pub(crate) fn text(&self, plugin: &str, written_in: WrittenIn, text: &str) -> Result<String, String> {
        let mut resolved = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            resolved.push_str(&rest[..start]);
            let inner = &rest[start + 2..];
            let end = inner.find('}').ok_or_else(|| format!("`{}` has no closing brace", &rest[start..]))?;
            let (source, name) = match inner[..end].split_once(':') {
                Some(("env", name)) => (Source::Env, name),
                Some(("file", path)) => (Source::File, path),
                _ => return Err(format!("`${{{}}}` is not a reference; write ${{env:NAME}} or ${{file:PATH}}", &inner[..end])),
            };
            resolved.push_str(&self.find(plugin, written_in, source, name)?);
            rest = &inner[end + 1..];
        }
        resolved.push_str(rest);
        Ok(resolved)
    }

    fn find(&self, plugin: &str, written_in: WrittenIn, source: Source, name: &str) -> Result<String, String> {
        let find = |name: &str| (self.resolve.0)(source, name);
        let elsewhere = format!("or write the manifest into [plugins.{plugin}] of the host's own configuration");
        match (written_in, source) {
            (WrittenIn::HostConfig, _) => find(name),
            (WrittenIn::PluginsDir, Source::Env) if name.starts_with(VARIABLES) => find(name),
            (WrittenIn::PluginsDir, Source::Env) => Err(format!(
                "a manifest beside a component may not read the variable {name}; call it {VARIABLES}…, {elsewhere}"
            )),
            (WrittenIn::PluginsDir, Source::File) => match &self.files_dir {
                Some(dir) => find(&within(dir, name)?.to_string_lossy()),
                None => Err(format!(
                    "a manifest beside a component may read files of plugins.files_dir only, which is not set; set it, {elsewhere}"
                )),
            },
        }
    }
}

/// The file of this name in the directory, every link followed; links may lead around in it, as those of a mounted secret do.
fn within(dir: &Path, name: &str) -> Result<PathBuf, String> {
    let dir = dir.canonicalize().map_err(|error| format!("plugins.files_dir {}: {error}", dir.display()))?;
    let file = dir.join(name).canonicalize().map_err(|error| format!("${{file:{name}}}: {error}"))?;
    if file.starts_with(&dir) {
        return Ok(file);
    }
    Err(format!("${{file:{name}}} is outside {}, which plugins.files_dir names", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn references(files_dir: Option<&Path>) -> References {
        let resolve = Resolve::new(|source, name| match source {
            Source::Env => Ok(name.to_lowercase()),
            Source::File => Ok(format!("text of {}", name.rsplit('/').next().unwrap())),
        });
        References { resolve, files_dir: files_dir.map(Path::to_owned) }
    }

    #[test]
    fn references_are_resolved_by_the_embedder_only() {
        let host = |text: &str| references(None).text("mailer", WrittenIn::HostConfig, text);
        assert_eq!(host("https://${env:HOST}/${file:/etc/path}!"), Ok("https://host/text of path!".to_owned()));
        assert!(host("${HOME}").unwrap_err().contains("write ${env:NAME}"));
        assert!(host("${env:HOME").unwrap_err().contains("no closing brace"));
        let default = |text: &str| References::default().text("mailer", WrittenIn::HostConfig, text);
        assert!(default("${env:X}").unwrap_err().contains("does not read"));
        assert_eq!(default("plain"), Ok("plain".to_owned()));
    }

    #[test]
    fn a_manifest_beside_a_component_refers_to_nothing_but_what_is_meant_for_plugins() {
        let beside = |text: &str| references(None).text("mailer", WrittenIn::PluginsDir, text);
        assert_eq!(beside("${env:OUTBOX_PLUGIN_TOKEN}"), Ok("outbox_plugin_token".to_owned()));
        for name in ["HOME", "OUTBOX_DATABASE_URL", "OUTBOX_PLUGI", "outbox_plugin_x", " OUTBOX_PLUGIN_X"] {
            let error = beside(&format!("${{env:{name}}}")).unwrap_err();
            assert!(error.contains("may not read") && error.contains("[plugins.mailer]"), "{error}");
        }
        assert!(beside("${file:/etc/passwd}").unwrap_err().contains("plugins.files_dir"));
    }

    #[test]
    fn files_are_read_in_their_directory_and_nowhere_else() {
        let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let secret = elsewhere.path().join("secret");
        std::fs::write(&secret, "x").unwrap();
        std::fs::create_dir(dir.path().join("..data")).unwrap();
        std::fs::write(dir.path().join("..data/token"), "x").unwrap();
        let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, dir.path().join(name)).unwrap();
        link(Path::new("..data/token"), "token");
        link(&secret, "out");
        link(elsewhere.path(), "folder");
        let beside =
            |name: &str| references(Some(dir.path())).text("mailer", WrittenIn::PluginsDir, &format!("${{file:{name}}}"));
        assert_eq!(beside("token"), Ok("text of token".to_owned()));
        assert_eq!(beside(dir.path().join("token").to_str().unwrap()), Ok("text of token".to_owned()));
        let up = format!("../{}/secret", elsewhere.path().file_name().unwrap().to_str().unwrap());
        for outside in ["out", "folder/secret", secret.to_str().unwrap(), up.as_str(), "/proc/self/environ"] {
            assert!(beside(outside).unwrap_err().contains("outside"), "{outside}");
        }
        assert!(beside("absent").unwrap_err().contains("absent"));
    }
}
