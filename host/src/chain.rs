//! Errors as text.

/// An error and its causes on one line, for a log.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let told = cause.to_string();
        // Some errors end in their cause's text already.
        if !text.ends_with(&told) {
            text.push_str(": ");
            text.push_str(&told);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Caused(&'static str, #[source] std::io::Error);

    #[test]
    fn every_cause_is_told_once() {
        let refused = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert_eq!(chain(&Caused("cannot connect", refused())), "cannot connect: connection refused");
        assert_eq!(chain(&Caused("I/O: connection refused", refused())), "I/O: connection refused");
    }
}
