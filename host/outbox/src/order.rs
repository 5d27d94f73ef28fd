//! Events of one aggregate, one after the other, over any number of hosts; or all events one after the other, by one host.
//!
//! The table decides: a read tells for each event which earlier one of its aggregate is not resolved. What waits for an event
//! that this process holds waits here, in memory; what waits for anything else is set aside in the table, behind it. Where all
//! events stand in one queue, nothing but its front is read, and what may not start is let go. Partitions only keep
//! hosts out of each other's way: each aggregate belongs to one of them, and each partition to one host at a time.

mod blockers;
mod config;
mod keys;
mod learn;
mod sweep;
mod unblock;

pub(crate) use blockers::LOOK_AGAIN;
pub use config::{OnDead, OrderConfig};
pub(crate) use keys::Order;
pub(crate) use learn::Learner;
pub(crate) use sweep::Sweep;
