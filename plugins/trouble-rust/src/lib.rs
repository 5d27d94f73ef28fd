//! Fails in every way a listener can: what the sandbox is tested with. The event type says how, the aggregate type is `Trouble`.
//!
//! | Event type | Payload | What it does |
//! |---|---|---|
//! | `Done` | | answers done |
//! | `RetryAfter`, `RetryableAfter` | `{"ms": 250}` | asks for later; fails and asks for later |
//! | `Dead`, `Retryable`, `Unrecoverable` | | answers so, with the reason `as asked` |
//! | `FlakyUntil` | `{"attempt": 3}` | fails until that attempt, then is done |
//! | `Counter` | | is dead with the reason `count N`: how many this instance has counted, 1 in a fresh one |
//! | `Panic` | | panics with `as asked` |
//! | `Loop` | | burns fuel for ever |
//! | `Sleep` | | sleeps for an hour |
//! | `Nap` | | computes for 8 ms, sleeps for 1 ms, and so on for ever |
//! | `Memory` | | takes memory for ever |
//! | `Hoard` | | takes all memory that it is given, and sleeps for an hour |
//! | `Recurse` | | calls itself for ever |
//! | `LogFlood`, `StdoutFlood` | | writes lines for ever |
//! | `ClockFlood` | | looks at the clock a thousand times, and is done |
//! | `StdoutLine` | | writes one line of 64 MiB, without an end |
//! | `BigAnswer` | | fails with a message of 4 MiB |
//! | `Files`, `Sockets`, `Names`, `Environment` | | reaches for them, and is dead with what it reached |

mod answers;
mod excess;
mod reach;

use outbox_sdk::prelude::*;

listener! {
    "Trouble" / "Done" => answers::finish,
    "Trouble" / "RetryAfter" => answers::ask_for_later,
    "Trouble" / "Dead" => answers::give_up,
    "Trouble" / "Retryable" => answers::fail,
    "Trouble" / "RetryableAfter" => answers::fail_until_later,
    "Trouble" / "Unrecoverable" => answers::fail_for_good,
    "Trouble" / "FlakyUntil" => answers::fail_until_attempt,
    "Trouble" / "Counter" => answers::count,
    "Trouble" / "Panic" => excess::panic,
    "Trouble" / "Loop" => excess::burn_fuel,
    "Trouble" / "Sleep" => excess::sleep,
    "Trouble" / "Nap" => excess::nap,
    "Trouble" / "Memory" => excess::take_memory,
    "Trouble" / "Hoard" => excess::hoard,
    "Trouble" / "Recurse" => excess::recurse,
    "Trouble" / "LogFlood" => excess::flood_the_log,
    "Trouble" / "StdoutFlood" => excess::flood_stdout,
    "Trouble" / "StdoutLine" => excess::write_one_line,
    "Trouble" / "Files" => reach::files,
    "Trouble" / "Sockets" => reach::sockets,
    "Trouble" / "Names" => reach::names,
    "Trouble" / "Environment" => reach::environment,
    "Trouble" / "ClockFlood" => excess::flood_clock,
    "Trouble" / "BigAnswer" => excess::answer_too_much,
}
