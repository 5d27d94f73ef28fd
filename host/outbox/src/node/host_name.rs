//! The name of this machine.

/// The name of this machine as its kernel knows it; `outbox` if it is unknown.
#[must_use]
pub fn host_name() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").map(|name| name.trim().to_owned());
    kernel.ok().filter(|name| !name.is_empty()).unwrap_or_else(|| "outbox".to_owned())
}
