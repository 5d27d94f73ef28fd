//! `[plugins]`: which of its keys are settings, and what is wrong with their values.

use outbox::wasm::PluginsConfig;

/// The key below which manifests lie in the library's configuration. People write `[plugins.NAME]`.
pub(super) const MANIFESTS: &str = "manifests";

/// The settings of `[plugins]`; any other key there is a plugin's name.
const SETTINGS: [&str; 15] = [
    "dir",
    "lock",
    "strict",
    "trusted_owners",
    "cache_dir",
    "cache_max",
    "compile_limits",
    "rescan_interval",
    "debounce",
    "pagemap_scan",
    "ready_when",
    "files_dir",
    "ca_file",
    "memory",
    "required",
];

/// Whether this key of `[plugins]` is a setting, and not a plugin's name.
pub(super) fn is_setting(key: &str) -> bool {
    SETTINGS.contains(&key)
}

/// Everything that is wrong with these values.
pub(super) fn faults(config: &PluginsConfig) -> Vec<String> {
    let mut faults = config.compile_limits.faults("plugins.compile_limits");
    if config.rescan_interval.is_zero() {
        faults.push("plugins.rescan_interval is 0; it must be above zero".to_owned());
    }
    if config.memory.0 == 0 {
        faults.push("plugins.memory is 0; it must be above zero".to_owned());
    }
    faults
}
