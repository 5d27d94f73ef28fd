//! Failures counted by their kind, which is read from what was stored of them.

use super::unroutable::{NO_LISTENER, is_unroutable};

/// The longest [`error_kind`], in bytes.
const MAX_KIND: usize = 80;

/// Which kind of failure a stored error tells of, so that failures can be counted by it: its code, `[http-500]` or `fuel`;
/// without one its beginning, up to the first colon, or without the name of the route that nobody answers. At most 80 bytes, of
/// text that nobody has checked.
#[must_use]
pub fn error_kind(error: &str) -> &str {
    if is_unroutable(error) {
        return &error[..NO_LISTENER.len()];
    }
    let start = &error[..error.floor_char_boundary(MAX_KIND)];
    let end = match start.find(']') {
        Some(end) if start.starts_with('[') => end + 1,
        _ => start.find(':').unwrap_or(start.len()),
    };
    &start[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_an_error_is_its_code_or_its_beginning() {
        for (error, kind) in [
            ("[http-500] https://a.example: the endpoint answered 500", "[http-500]"),
            ("fuel: used up 200000000", "fuel"),
            ("connection refused", "connection refused"),
            ("no listener answers Order/Paid (did you mean Order/Placed?)", "no listener answers"),
            ("[not closed: it goes on", "[not closed"),
            ("", ""),
        ] {
            assert_eq!(error_kind(error), kind);
        }
        assert_eq!(error_kind(&"ä".repeat(100)).len(), MAX_KIND);
    }
}
