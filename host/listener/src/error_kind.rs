//! The kind of a stored error, by which failures are counted.

use outbox_event::NO_LISTENER;

use super::unroutable::is_unroutable;

/// The longest [`error_kind`], in bytes.
const MAX_KIND: usize = 80;

/// The kind of a stored error, by which failures are counted. It is the error's code, such as `[http-500]` or `fuel`. Without a code it is
/// the text before the first colon; if no listener answers the route, the text before the route's name. At most 80 bytes of unchecked text.
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
