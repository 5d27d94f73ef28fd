//! What writers wrote and what hosts delivered, recorded by several processes of which any may be killed, and proved afterwards.
//!
//! Every process appends to a file of its own: a [`Journal`] writes one line for each [`Step`], and [`History`] reads them all, and
//! the logs of hosts that run the plugin `recorder`. Then [`History::check`] says what must never be: its [`Report`].

mod check;
mod host_log;
mod journal;
mod step;

pub use check::{Order, Reordered, Report};
pub use journal::{History, Journal};
pub use step::{Aggregate, Delivery, Ending, Line, Step, Written};
