//! Totals of listeners: the cost of their calls by owner, and the results of their events by route.
//!
//! Counting is a relaxed addition in memory. The listeners know nothing of the metrics that show these totals.

mod calls;
mod counter;
mod histogram;
#[cfg(feature = "http")]
mod lags;
mod routes;

#[cfg(feature = "wasm")]
pub(crate) use calls::Swap;
pub use calls::{CallCounts, CallTotals, Calls};
pub use counter::Counter;
pub use histogram::Histogram;
#[cfg(feature = "http")]
pub(crate) use lags::Lags;
pub use routes::{RouteTotals, Routes};
