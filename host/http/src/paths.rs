//! The paths that need no token and lie outside `/v1`.

/// Says that the process answers, and no more.
pub(crate) const LIVEZ: &str = "/livez";
/// Says whether the host can do its work.
pub(crate) const READYZ: &str = "/readyz";
/// The counters of the host.
pub(crate) const METRICS: &str = "/metrics";
/// The document that describes the API.
pub(crate) const OPENAPI: &str = "/openapi.json";
