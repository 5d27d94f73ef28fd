//! Trouble without an answer: the sandbox has to end it.
//!
//! `black_box` hides from the compiler that none of this has a use; it would leave the work out.

use std::hint::black_box;
use std::io::Write;

use outbox_sdk::prelude::*;

const MIB: usize = 1 << 20;

pub(crate) fn panic(_: &Event) -> Answer {
    panic!("as asked");
}

pub(crate) fn burn_fuel(_: &Event) -> Answer {
    let mut turns = 0_u64;
    loop {
        turns = black_box(turns).wrapping_add(1);
    }
}

/// Waits inside the host, where no fuel burns.
pub(crate) fn sleep(_: &Event) -> Answer {
    std::thread::sleep(Duration::from_secs(3_600));
    Ok(Done)
}

/// Computes for a little less than the host's tick, waits for a moment, and so on for ever.
pub(crate) fn nap(_: &Event) -> Answer {
    loop {
        let began = std::time::Instant::now();
        while began.elapsed() < Duration::from_millis(8) {
            (0..10_000_u64).for_each(|number| _ = black_box(number));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Calls the host a thousand times in less time than the host takes to look by.
pub(crate) fn flood_clock(_: &Event) -> Answer {
    for _ in 0..1_000 {
        black_box(std::time::Instant::now());
    }
    Ok(Done)
}

/// Writes to what it takes, so that the memory is not only promised.
pub(crate) fn take_memory(_: &Event) -> Answer {
    let mut taken: Vec<Vec<u8>> = Vec::new();
    loop {
        taken.push(black_box(vec![1; MIB]));
    }
}

/// Takes memory until it is refused more, writes to none of it, and sleeps with it inside the host.
pub(crate) fn hoard(event: &Event) -> Answer {
    let mut taken: Vec<Vec<u8>> = Vec::new();
    loop {
        let mut more = Vec::new();
        if more.try_reserve_exact(MIB).is_err() {
            break;
        }
        taken.push(black_box(more));
    }
    sleep(event)
}

pub(crate) fn recurse(_: &Event) -> Answer {
    /// Goes on after its own call, so that the compiler cannot make a loop of it.
    fn descend(depth: u64) -> u64 {
        if depth == u64::MAX { 0 } else { descend(black_box(depth + 1)) ^ black_box(depth) }
    }

    black_box(descend(0));
    Ok(Done)
}

pub(crate) fn flood_the_log(_: &Event) -> Answer {
    loop {
        info!("a flood of lines that nobody wants to read");
    }
}

/// One line that does not end: whoever keeps it until it does keeps 64 MiB.
pub(crate) fn write_one_line(_: &Event) -> Answer {
    let part = [b'x'; 4_096];
    for _ in 0..(64 * MIB / part.len()) {
        std::io::stdout().write_all(&part)?;
    }
    Ok(Done)
}

pub(crate) fn flood_stdout(_: &Event) -> Answer {
    let mut stdout = std::io::stdout();
    loop {
        writeln!(stdout, "a flood of lines that nobody wants to read")?;
    }
}

pub(crate) fn answer_too_much(_: &Event) -> Answer {
    Err(Failure::retryable("x".repeat(4 * MIB)))
}
