//! Makes a seed's run the same every time: what the process would ask the operating system for, randomness and the time of day,
//! follows from the seed on the thread that runs it. On others it is the operating system's.
//!
//! The seeds of `select!`, of hash maps and of the host's own random numbers all come from `getrandom`. Each run among many has
//! a process of its own, since tokio counts its runtimes.

#![allow(unsafe_code, reason = "these are functions of the C library")]

use std::cell::{Cell, RefCell};
use std::time::Duration;

use libc::{c_int, c_uint, c_void, size_t, ssize_t, timespec};
use tokio::time::Instant;

use crate::chance::Chance;
use crate::drift::Drift;

/// When every run begins, in seconds since 1970.
pub(crate) const BEGINNING: u64 = 1_900_000_000;

thread_local! {
    static CHANCE: RefCell<Option<Chance>> = const { RefCell::new(None) };
    static BEGAN: Cell<Option<(Instant, Drift)>> = const { Cell::new(None) };
}

/// Randomness on this thread follows from this from now on.
pub(crate) fn seeded(seed: u64) {
    CHANCE.with_borrow_mut(|chance| *chance = Some(Chance::of(seed, 0)));
}

/// The time of day on this thread follows from tokio's clock from now on.
pub(crate) fn began(time_of_day: Drift) {
    BEGAN.set(Some((Instant::now(), time_of_day)));
}

/// How long ago that was.
pub(crate) fn elapsed() -> Duration {
    BEGAN.get().map_or(Duration::ZERO, |(began, _)| began.elapsed())
}

/// SAFETY: the signature is that of the C library's, and the buffer is the caller's.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut c_void, length: size_t, flags: c_uint) -> ssize_t {
    let seeded = CHANCE.try_with(|chance| {
        let mut chance = chance.try_borrow_mut().ok()?;
        let chance = chance.as_mut()?;
        // SAFETY: the caller says that the buffer is so long, and for writing.
        let buffer = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length) };
        buffer.fill_with(|| chance.next().to_le_bytes()[0]);
        Some(())
    });
    match seeded {
        Ok(Some(())) => ssize_t::try_from(length).expect("a buffer is no longer than that"),
        // SAFETY: as the C library would call it.
        _ => unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) as ssize_t },
    }
}

/// SAFETY: the signature is that of the C library's, and the place is the caller's.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, place: *mut timespec) -> c_int {
    if clock == libc::CLOCK_REALTIME
        && let Ok(Some((began, drift))) = BEGAN.try_with(Cell::get)
    {
        let shown = drift.reading(began.elapsed());
        let time = Duration::from_micros((BEGINNING * 1_000_000).saturating_add_signed(shown));
        // SAFETY: the caller says that the place is for writing.
        unsafe {
            (*place).tv_sec = time.as_secs() as libc::time_t;
            (*place).tv_nsec = libc::c_long::from(time.subsec_nanos());
        }
        return 0;
    }
    // SAFETY: as the C library would call it.
    unsafe { libc::syscall(libc::SYS_clock_gettime, clock, place) as c_int }
}
