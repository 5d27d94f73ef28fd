//! Distinguishes a call that waits for its turn to compute from a call that waits for something outside the host.
//!
//! The sandbox limits how many guests compute at once. A worker that polls a call must know why the call is pending.

use std::cell::Cell;

thread_local! {
    static WAITS_FOR_TURN: Cell<bool> = const { Cell::new(false) };
}

/// Notes that the call polled on this thread waits for its turn.
#[doc(hidden)] // for the sandbox
pub fn wait_for_turn() {
    WAITS_FOR_TURN.set(true);
}

/// Polls what may be a call of a guest. Also returns whether it waits for its turn to compute, rather than for something outside the host.
#[doc(hidden)] // for the host
pub fn noticing_turns<T>(poll: impl FnOnce() -> T) -> (T, bool) {
    WAITS_FOR_TURN.set(false);
    let polled = poll();
    (polled, WAITS_FOR_TURN.take())
}
