//! What an operator does to plugins by hand, beside the host that serves them.

use std::sync::Arc;

use super::error::LoadError;
use super::file::Bytes;
use super::private::Private;
use super::quarantine::Quarantine;
use super::reload::PluginsConfig;
use crate::time::system_clock;

/// Lets a component be compiled again whose compiler had to be stopped: true when it was not to be. A running host sees it with its
/// next scan, after [`rescan_interval`](PluginsConfig::rescan_interval) at the latest.
///
/// # Errors
/// When the plugin's file cannot be read, or the private directory cannot be used.
pub fn retry(config: &PluginsConfig, name: &str) -> Result<bool, LoadError> {
    let file = config.dir.join(format!("{name}.wasm"));
    let bytes = Bytes::read(&config.dir, &file)?;
    let private = private(config)?;
    Ok(Quarantine::new(Some(private), system_clock()).lift(&bytes.digest))
}

fn private(config: &PluginsConfig) -> Result<Arc<Private>, LoadError> {
    let none = |dir, reason: &str| LoadError::Directory { dir, reason: reason.to_owned() };
    let Some(dir) = &config.cache_dir else {
        return Err(none(config.dir.clone(), "the host has no private directory to note anything in; set plugins.cache_dir"));
    };
    let private = Private::open(dir).ok_or_else(|| none(dir.clone(), "it cannot be used as a private directory"))?;
    Ok(Arc::new(private))
}
