//! Numbers as the databases keep them: signed. Only `seq` on MySQL is unsigned.

#[cfg(any(feature = "sqlite", feature = "mysql"))]
use std::borrow::Borrow;

#[cfg(any(feature = "sqlite", feature = "mysql"))]
use outbox_event::Fence;

/// A number that is never negative, as it is bound.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Numbers as a JSON list.
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(super) fn numbers<N: std::fmt::Display>(numbers: &[N]) -> String {
    let numbers: Vec<String> = numbers.iter().map(N::to_string).collect();
    format!("[{}]", numbers.join(","))
}

/// Fences as JSON: `[[seq,fence],…]`, in the order in which everybody locks rows.
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(super) fn fence_rows<F: Borrow<Fence>>(fences: impl IntoIterator<Item = F>) -> String {
    let pair = |fence: F| (fence.borrow().sequence, fence.borrow().claim);
    let mut rows: Vec<(u64, u64)> = fences.into_iter().map(pair).collect();
    rows.sort_unstable();
    let rows: Vec<String> = rows.iter().map(|(sequence, claim)| format!("[{sequence},{claim}]")).collect();
    format!("[{}]", rows.join(","))
}

/// A number that is never negative, as it was read.
pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
