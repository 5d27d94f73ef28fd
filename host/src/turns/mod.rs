//! Limits how many guests compute at once: one for each processor, each on a thread that the runtime does without meanwhile.
//!
//! A guest that computes for longer than a tick yields again and again. On the runtime's own threads, every other task would queue
//! behind such guests, and nobody would poll the sockets. So a call that has computed for a tick goes on through `block_in_place`,
//! and the operating system shares the processors between guests and the runtime. Plugins get their turns one after the other,
//! however many calls each of them has.

#[cfg(feature = "wasm")]
mod call;
#[cfg(feature = "wasm")]
mod queue;

use std::cell::Cell;
#[cfg(feature = "wasm")]
use std::time::Duration;

#[cfg(feature = "wasm")]
pub(crate) use self::call::{give_way, in_turns};

/// How long a guest computes before it gives way. Half of it costs an idle host half a percent of a core.
#[cfg(feature = "wasm")]
pub(crate) const TICK: Duration = Duration::from_millis(10);

thread_local! {
    static WAITS_FOR_TURN: Cell<bool> = const { Cell::new(false) };
}

/// Polls what may be a call in turns. Also says whether that waits for its turn, rather than for something outside the host.
pub(crate) fn noticing_turns<T>(poll: impl FnOnce() -> T) -> (T, bool) {
    WAITS_FOR_TURN.set(false);
    let polled = poll();
    (polled, WAITS_FOR_TURN.take())
}
