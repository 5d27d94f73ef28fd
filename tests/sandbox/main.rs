//! Real components in a real host: what a broken one comes to, and that nobody else is hurt.

mod batches;
mod common;
mod compiled;
mod computing;
mod conformance;
mod contract;
mod costs;
mod documented;
mod effects;
mod findings;
mod hostile;
mod http;
mod languages;
mod memory;
mod metrics;
mod names;
mod plugin_host;
mod publish;
mod relays;
mod sleeping;
mod swap;
mod trouble;
