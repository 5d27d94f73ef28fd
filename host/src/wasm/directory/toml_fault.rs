//! What is wrong with a file in TOML, for one line.

/// What is wrong with a text in TOML, and where, on one line: it stands in log records and in lists.
pub(super) fn toml_fault(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().trim_end().replace('\n', ", ");
    // What is wrong with the values together is told of the whole text.
    let place = error.span().filter(|span| span.start > 0 || span.end < text.trim_end().len());
    let Some(before) = place.and_then(|span| text.get(..span.start)) else { return message };
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|char| *char != '\n').count() + 1;
    format!("line {line}, column {column}: {message}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_in_toml_is_one_line_with_its_place() {
        let fault = |text: &str| toml_fault(text, &toml::from_str::<crate::wasm::Manifest>(text).unwrap_err());
        assert!(
            fault("[limits]\nfuel = 1\nfule = 3\n")
                .starts_with("line 3, column 1: unknown field `fule`, expected one of `fuel`")
        );
        assert!(fault("[limits\n").starts_with("line 1, column "), "{}", fault("[limits\n"));
        assert!(fault("a = \"ü\"\nisolation = \"x\"").starts_with("line "));
        assert_eq!(fault("limits.fuel = 0\n"), "limits.fuel is 0; it must be at least 1");
        for text in ["[limits", "x", "= 3", "a = [1,\n2", "isolation = 'thread'", "[config]\nhttp.allow = []", "emit = 'all'"] {
            assert_eq!(fault(text).lines().count(), 1, "{text}");
        }
    }
}
