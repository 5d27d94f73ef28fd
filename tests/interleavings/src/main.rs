//! `interleavings [--iterations N] [--seed N] [NAME…]`: plays the queue, the marks, the key queues and the partitions of the
//! host under schedules that are drawn from a seed, and says what does not hold under one of them.
//!
//! `interleavings --replay SCHEDULE NAME` plays one schedule again, as a failure has printed it.
//!
//! The modules are the host's own files, and plain data comes from `outbox-event`. Everything else that they use is replaced here:
//! locks and atomics (`sync.rs`), tokio (`tokio/`), and the table of the partitions (`store.rs`). A worker that is not woken is
//! found because nothing else wakes it: the check then has no thread left that can run.

mod arguments;
mod cast;
mod checks;
mod play;
mod store;
mod sync;

#[path = "../../../host/outbox/src"]
mod host {
    pub(crate) mod partition;
    pub(crate) mod queue;
}

extern crate tokio as foldhash;

use std::process::ExitCode;

use event::Route;
use host::{partition, queue};
use outbox_event::{self as event, time, units};

fn main() -> ExitCode {
    if std::env::args().skip(1).any(|argument| argument == "--help") {
        print!("{}", arguments::HELP);
        return ExitCode::SUCCESS;
    }
    let arguments = match arguments::read(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(fault) => {
            eprintln!("{fault}\n\n{}", arguments::HELP);
            return ExitCode::from(2);
        }
    };
    play::all(&arguments)
}
