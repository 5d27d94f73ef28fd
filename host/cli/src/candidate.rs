//! A component file that does not serve yet, in a sandbox of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use outbox::wasm::{Manifest, PluginHost, PluginsConfig, Resolve, Source, StateSource};
use outbox::wording::{did_you_mean, near, toml_fault};

use crate::config::{Config, reference};
use crate::failure::{Exit, Failure};
use crate::output::{busy, shown};
use crate::plugins;

/// What a manifest that is not the host's own may refer to.
const VARIABLES: &str = "OUTBOX_PLUGIN_";
/// The most names that are listed of those that were probably meant.
const NEAR: usize = 3;

/// What the file is taken for.
#[derive(Args, Clone, Debug)]
pub(crate) struct Guise {
    /// The manifest to use; default the one for this name in the configuration, or the one beside the file
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// The name of the plugin whose settings, grants and state to use, if the file has another name
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
}

impl Guise {
    /// Whether the file says what it is taken for: by a flag, or because there is a plugin or a manifest of its name.
    pub(crate) fn is_clear(&self, file: &Path, config: &Config) -> bool {
        let (stem, dir) = (stem(file), &config.plugins.dir);
        self.name.is_some()
            || self.manifest.is_some()
            || config.plugins.manifests.contains_key(&stem)
            || file.with_extension("toml").exists()
            || ["wasm", "toml"].iter().any(|kind| dir.join(format!("{stem}.{kind}")).exists())
    }

    /// Refuses a name that nobody here has: a misspelt one would be tried without the settings, grants and state that were meant.
    /// `served` are the names of what running hosts serve.
    ///
    /// # Errors
    /// When there is no such plugin, and no manifest is given that makes it one.
    pub(crate) fn check_name(&self, file: &Path, config: &Config, served: &[String]) -> Result<(), Failure> {
        let Some(name) = self.name.as_deref().filter(|name| self.manifest.is_none() && *name != stem(file)) else {
            return Ok(());
        };
        let files = std::fs::read_dir(&config.plugins.dir).into_iter().flatten().flatten().map(|entry| entry.path());
        let components = files.filter(|file| file.extension().is_some_and(|kind| kind == "wasm")).map(|file| stem(&file));
        let known: Vec<String> =
            config.plugins.manifests.keys().cloned().chain(components).chain(served.iter().cloned()).collect();
        if known.iter().any(|known| known == name) {
            return Ok(());
        }
        let near = near(name, known.iter().map(String::as_str));
        let near: Vec<String> = near.into_iter().take(NEAR).map(|name| shown(name).into_owned()).collect();
        let near = if near.is_empty() { String::new() } else { format!("; {}", did_you_mean(&near)) };
        let hint = "plugins are those of the configuration, of the plugins directory (--plugins DIR) and of running hosts";
        Err(Failure::new(Exit::NotFound, format!("no plugin is called {}{near}", shown(name))).details(vec![hint.to_owned()]))
    }

    /// The same, for the file of this plugin.
    pub(crate) fn of(&self, plugin: &str) -> Self {
        Self { name: Some(plugin.to_owned()), ..self.clone() }
    }

    /// Loads a component that reads its state from there, and does nothing that anybody else would notice.
    ///
    /// # Errors
    /// When there is no such file, or it could not serve.
    pub(crate) async fn load(&self, file: &Path, config: &Config, state: Arc<dyn StateSource>) -> Result<PluginHost, Failure> {
        if !file.exists() {
            return Err(absent(file));
        }
        let name = self.name.clone().unwrap_or_else(|| stem(file));
        let mut settings = plugins::settings(config);
        if let Some(manifest) = &self.manifest {
            settings.manifests.insert(name.clone(), read(manifest)?);
            settings = PluginsConfig { resolve: for_plugins(), ..settings };
        }
        let loaded = busy("compiling the component", PluginHost::from_file_as(&name, file, &settings, state)).await;
        loaded.map_err(|error| {
            let hint = "it has no manifest; --as NAME uses the settings, grants and state of a plugin, --manifest FILE uses \
                        the manifest in a file";
            let hints = if self.is_clear(file, config) { Vec::new() } else { vec![hint.to_owned()] };
            Failure::new(Exit::Findings, "this file cannot serve").because(error).details(hints)
        })
    }
}

/// The name that a file has without its kind: a plugin's, where it is one.
pub(crate) fn stem(file: &Path) -> String {
    file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

/// What is said of a component file that is not there.
pub(crate) fn absent(file: &Path) -> Failure {
    let hint = "run `outbox plugin build` in the folder of the plugin's source; it prints the path of the file";
    Failure::new(Exit::NotFound, format!("{} does not exist", file.display())).details(vec![hint.to_owned()])
}

fn read(file: &Path) -> Result<Manifest, Failure> {
    let named = |what: &str| format!("the manifest {} {what}", file.display());
    let text =
        std::fs::read_to_string(file).map_err(|error| Failure::unreadable(named("cannot be read"), error, Exit::Failed))?;
    toml::from_str(&text)
        .map_err(|error| Failure::new(Exit::Config, named("is not valid")).details(vec![toml_fault::<Manifest>(&text, &error)]))
}

/// A manifest that came with a component refers to what is meant for plugins, and to no secret of the host.
fn for_plugins() -> Resolve {
    Resolve::new(|source, name| match source {
        Source::Env if name.starts_with(VARIABLES) => reference("env", name),
        Source::Env => Err(format!("a manifest given by --manifest may refer only to variables {VARIABLES}…")),
        Source::File => Err("a manifest given by --manifest must not refer to files; write the value itself".to_owned()),
    })
}
