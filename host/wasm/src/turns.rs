//! Limits how many guests compute at once: one for each processor, each on a thread that the runtime does without meanwhile.
//!
//! A guest that computes for longer than a tick yields again and again. On the runtime's own threads, every other task would queue
//! behind such guests, and nobody would poll the sockets. So a call that has computed for a tick goes on through `block_in_place`,
//! and the operating system shares the processors between guests and the runtime. Plugins get their turns one after the other,
//! however many calls each of them has.

mod call;
mod queue;

use std::time::Duration;

pub(crate) use self::call::{give_way, in_turns};

/// How long a guest computes before it gives way. Half of it costs an idle host half a percent of a core.
pub(crate) const TICK: Duration = Duration::from_millis(10);
