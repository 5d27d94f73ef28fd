//! What an error of wasmtime means: which limit, how to raise it, and where in the guest it happened.

use std::fmt::Write;

use outbox_event::text::keepable;
use outbox_event::{Cause, Failure};
use wasmtime::{PoolConcurrencyLimitError, Store, Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use crate::capability::HostState;
use crate::limits::{Exceeded, HOSTCALL_BYTES};
use crate::manifest::Limits;

const MAX_FRAMES: usize = 5;
const MAX_ERROR_BYTES: usize = 1_024;

/// Why a call did not answer.
pub(crate) enum CallError {
    /// Calls use all instance slots of the pool.
    NoSlot,
    /// Too little is free of the memory that all guests may have together.
    NoMemory,
    /// It broke off.
    Broken(Failure),
}

/// Explains the error of an instantiation or a call, and ends the call's log lines.
pub(crate) fn explain(error: &wasmtime::Error, store: &mut Store<HostState>, limits: &Limits, name: &str) -> CallError {
    let stderr = store.data_mut().end();
    if error.downcast_ref::<PoolConcurrencyLimitError>().is_some() {
        return CallError::NoSlot;
    }
    let (cause, mut message) = classify(error, store.data().limiter.denied, limits, name);
    // A guest that is refused memory aborts. One that uses up its time or its fuel instead has done that by itself.
    if store.data().limiter.starved && matches!(cause, Cause::Trap | Cause::Memory) {
        return CallError::NoMemory;
    }
    if matches!(cause, Cause::Trap | Cause::Memory | Cause::Stack | Cause::Fuel)
        && let Some(backtrace) = error.downcast_ref::<WasmBacktrace>()
    {
        append_frames(&mut message, backtrace);
    }
    if let Some(stderr) = stderr {
        message = match Panic::in_stderr(&stderr).filter(|_| cause == Cause::Trap) {
            Some(panic) => panic.before(&message),
            None => format!("{message}; stderr: {stderr}"),
        };
    }
    CallError::Broken(Failure::broken(cause, message))
}

/// What a guest in Rust or Go says on standard error before it traps: its message is what people look for.
struct Panic<'s> {
    message: &'s str,
    place: Option<&'s str>,
    /// What it wrote before.
    earlier: &'s str,
    /// What it wrote afterwards.
    later: &'s str,
}

impl<'s> Panic<'s> {
    /// Between two lines of standard error.
    const LINE: &'static str = " | ";
    /// The most bytes of its message, and of its place.
    const MOST: usize = 1_024;
    const MOST_OF_PLACE: usize = 256;
    /// The line after the message of a panic in Rust; it advises what nobody can do here.
    const NOTE: &'static str = "note: run with `RUST_BACKTRACE=1`";

    /// `None` when it tells of no panic, or its beginning is no longer among the last lines.
    fn in_stderr(stderr: &'s str) -> Option<Self> {
        Self::of_rust(stderr).or_else(|| Self::of_go(stderr))
    }

    /// `thread '<unnamed>' (1) panicked at src/lib.rs:13:5:`, the message, and the note.
    fn of_rust(stderr: &'s str) -> Option<Self> {
        let begin = Self::line(stderr, "thread '")?;
        let (_, panic) = stderr[begin..].split_once(" panicked at ")?;
        let (place, rest) = panic.split_once(": | ")?;
        let message = rest.find(Self::NOTE).map_or(rest, |note| rest[..note].trim_end_matches(Self::LINE));
        Some(Self { message, place: Some(place), earlier: stderr[..begin].trim_end_matches(Self::LINE), later: "" })
    }

    /// `panic: `, the message, and what each goroutine was doing.
    fn of_go(stderr: &'s str) -> Option<Self> {
        let begin = Self::line(stderr, "panic: ")?;
        let panic = &stderr[begin + "panic: ".len()..];
        let (message, later) = panic.split_once(Self::LINE).unwrap_or((panic, ""));
        Some(Self { message, place: None, earlier: stderr[..begin].trim_end_matches(Self::LINE), later })
    }

    /// The offset of the first line that starts with `beginning`.
    fn line(stderr: &str, beginning: &str) -> Option<usize> {
        if stderr.starts_with(beginning) {
            return Some(0);
        }
        stderr.find(&format!("{}{beginning}", Self::LINE)).map(|at| at + Self::LINE.len())
    }

    /// The message of the panic, its place, and only then what the engine says of it.
    fn before(&self, trap: &str) -> String {
        // What the engine says comes after it, and must not be pushed out.
        let mut text = format!("panicked: {}", keepable(self.message, Self::MOST));
        let mut add = |part: &str| {
            text.push_str("; ");
            text.push_str(part);
        };
        self.place.map(|place| format!("at {}", keepable(place, Self::MOST_OF_PLACE))).iter().for_each(|place| add(place));
        add(trap);
        for stderr in [self.earlier, self.later].into_iter().filter(|stderr| !stderr.is_empty()) {
            add(&format!("stderr: {stderr}"));
        }
        text
    }
}

fn classify(error: &wasmtime::Error, denied: bool, limits: &Limits, name: &str) -> (Cause, String) {
    let raise = |what: &str| format!("to allow more, raise limits.{what} of the plugin {name}");
    let memory = || (Cause::Memory, format!("asked for more than {} of memory; {}", limits.memory, raise("memory")));
    if let Some(exceeded) = error.downcast_ref::<Exceeded>() {
        let fixed = || format!("{exceeded} in one call, which is fixed; do less for each event");
        return match exceeded {
            Exceeded::HostCalls { .. } => (Cause::HostCalls, format!("{exceeded} in one call; {}", raise("host_calls"))),
            Exceeded::HostBytes => (Cause::HostCalls, fixed()),
            Exceeded::Late => (Cause::Deadline, late(limits, name)),
        };
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => {
            return (Cause::Fuel, format!("used up {} fuel; {}", limits.fuel, raise("fuel")));
        }
        Some(Trap::StackOverflow) => {
            return (Cause::Stack, "recursed deeper than 512 KiB of stack, which is fixed".to_owned());
        }
        // A guest that is refused memory aborts, and that looks like any other trap.
        Some(_) if denied => return memory(),
        Some(trap) => return (Cause::Trap, trap.to_string()),
        None => {}
    }
    if denied {
        return memory();
    }
    if let Some(exit) = error.downcast_ref::<I32Exit>() {
        return (Cause::Trap, format!("ended itself with exit code {}", exit.0));
    }
    // wasmtime keeps the type of this one to itself.
    let root = error.root_cause().to_string();
    if root.contains("too much data is being copied") {
        return (Cause::Output, format!("handed the host more than {} KiB at once, which is fixed", HOSTCALL_BYTES >> 10));
    }
    (Cause::Trap, keepable(&root, MAX_ERROR_BYTES))
}

/// What is said of a call that was cut off at its deadline.
pub(crate) fn late(limits: &Limits, name: &str) -> String {
    let deadline = humantime::format_duration(limits.deadline);
    format!("took longer than {deadline}; to allow more, raise limits.deadline of the plugin {name}")
}

/// Where it happened, innermost first.
fn append_frames(message: &mut String, backtrace: &WasmBacktrace) {
    for (index, frame) in backtrace.frames().iter().take(MAX_FRAMES).enumerate() {
        let place = if index == 0 { "; in" } else { " <" };
        match frame.func_name() {
            Some(name) => write!(message, "{place} {}", keepable(name, 120)),
            None => write!(message, "{place} function {}", frame.func_index()),
        }
        .expect("a String takes everything");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(stderr: &str) -> Option<String> {
        Panic::in_stderr(stderr).map(|panic| panic.before("wasm trap: unreachable; in function 370"))
    }

    #[test]
    fn the_message_of_a_panic_comes_first_and_its_place_next() {
        let note = "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace";
        assert_eq!(
            told(&format!("thread '<unnamed>' (1) panicked at src/lib.rs:13:5: | as asked | {note}")).as_deref(),
            Some("panicked: as asked; at src/lib.rs:13:5; wasm trap: unreachable; in function 370")
        );
        assert_eq!(
            told(&format!("reading | thread 'main' panicked at src/lib.rs:2:1: | not equal |   left: 1 |  right: 2 | {note}")),
            Some(
                "panicked: not equal |   left: 1 |  right: 2; at src/lib.rs:2:1; wasm trap: unreachable; in function 370; stderr: reading"
                    .to_owned()
            )
        );
    }

    #[test]
    fn a_panic_in_go_is_told_like_one_in_rust() {
        assert_eq!(
            told("panic: no stock | goroutine 1 [running]: | main.main()").as_deref(),
            Some("panicked: no stock; wasm trap: unreachable; in function 370; stderr: goroutine 1 [running]: | main.main()")
        );
    }

    #[test]
    fn a_long_panic_leaves_room_for_what_the_engine_says() {
        let long = told(&format!("thread 'x' panicked at {}: | {}", "p".repeat(1_000), "m".repeat(6_000))).expect("it is one");
        assert!(long.ends_with("(744 bytes more); wasm trap: unreachable; in function 370"), "{long}");
        assert!(long.contains("mmm… (4976 bytes more); at ppp"), "{long}");
    }

    #[test]
    fn what_is_no_panic_stays_as_it_was_written() {
        for stderr in ["", "don't panic: it is fine", "  right: 2 | note: run with `RUST_BACKTRACE=1`", "panicked at x"] {
            assert_eq!(told(stderr), None, "{stderr}");
        }
    }
}
