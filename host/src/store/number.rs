//! Numbers as the databases keep them: signed.

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

/// A number that is never negative, as it was read.
pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
