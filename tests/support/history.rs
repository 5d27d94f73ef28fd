//! What writers wrote, what hosts delivered, what was done to hosts and how the table looks in the end: recorded by several
//! processes of which any may be killed, and proved afterwards.
//!
//! Every process appends to a file of its own: a [`Journal`] writes one line for each [`Step`], and [`History`] reads them all, and
//! the logs of hosts that run the plugin `recorder`. Then [`History::check`] says what must never be: its [`Report`].

mod calls;
mod check;
mod figures;
mod host_log;
mod journal;
mod report;
mod step;

pub use check::{Order, Rules};
pub use journal::{History, Journal};
pub use report::{Reordered, Report};
pub use step::{Aggregate, Delivery, Ended, Ending, Fault, FaultKind, Held, Line, Row, Step, UNSEEN, Written};
