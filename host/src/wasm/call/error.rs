//! What an error of wasmtime means: which limit, how to raise it, and where in the guest it happened.

use std::fmt::Write;

use wasmtime::{PoolConcurrencyLimitError, Store, Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use crate::listener::{Cause, Failure};
use crate::wasm::capability::State;
use crate::wasm::limits::{Exceeded, HOSTCALL_BYTES};
use crate::wasm::manifest::Limits;
use crate::wasm::text::keepable;

const MAX_FRAMES: usize = 5;
const MAX_ERROR_BYTES: usize = 1_024;

/// Why a call did not answer.
pub(in crate::wasm) enum CallError {
    /// There was no room for it: all slots of the pool are taken, or all the memory that guests may have together.
    NoSlot,
    /// It broke off.
    Broken(Failure),
}

/// Explains the error of an instantiation or a call, and ends the call's log lines.
pub(in crate::wasm) fn explain(error: &wasmtime::Error, store: &mut Store<State>, limits: &Limits, name: &str) -> CallError {
    let stderr = store.data_mut().end();
    if error.downcast_ref::<PoolConcurrencyLimitError>().is_some() {
        return CallError::NoSlot;
    }
    let (cause, mut message) = classify(error, store.data().limiter.denied, limits, name);
    // A guest that is refused memory aborts. One that uses up its time or its fuel instead has done that by itself.
    if store.data().limiter.starved && matches!(cause, Cause::Trap | Cause::Memory) {
        return CallError::NoSlot;
    }
    if matches!(cause, Cause::Trap | Cause::Memory | Cause::Stack | Cause::Fuel)
        && let Some(backtrace) = error.downcast_ref::<WasmBacktrace>()
    {
        append_frames(&mut message, backtrace);
    }
    if let Some(stderr) = stderr {
        write!(message, "; stderr: {stderr}").expect("a String takes everything");
    }
    CallError::Broken(Failure::broken(cause, message))
}

fn classify(error: &wasmtime::Error, denied: bool, limits: &Limits, name: &str) -> (Cause, String) {
    let raise = |what: &str| format!("to allow more, set limits.{what} in {name}.toml");
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
pub(in crate::wasm) fn late(limits: &Limits, name: &str) -> String {
    let deadline = humantime::format_duration(limits.deadline);
    format!("took longer than {deadline}; to allow more, set limits.deadline in {name}.toml")
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
