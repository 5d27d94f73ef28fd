//! Totals of listeners: the cost of their calls by owner, and the results of their events by route.
//!
//! Counting is a relaxed addition in memory. The listeners know nothing of the metrics that show these totals.

mod calls;
mod counter;
mod histogram;
mod lags;
mod routes;

pub use calls::{CallCounts, CallTotals, Calls, Swap};
pub use counter::Counter;
pub use histogram::Histogram;
pub use lags::Lags;
pub use routes::{RouteTotals, Routes};
