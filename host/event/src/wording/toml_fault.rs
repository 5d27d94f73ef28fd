//! What is wrong with a file in TOML, for one line.

use serde::de::DeserializeOwned;

use super::{Misfit, in_words};

/// What is wrong with a text in TOML that was not read as this type, and where, on one line: it stands in log records and in lists.
#[must_use]
pub fn toml_fault<T: DeserializeOwned>(text: &str, error: &toml::de::Error) -> String {
    let said = error.message().trim_end().replace('\n', ", ");
    let misfit = toml::Deserializer::parse(text).map(|values| Misfit::of::<T>(values, &said).to_string());
    // Without values it is no TOML.
    let message = misfit.unwrap_or_else(|_| in_words(&said));
    // What is wrong with the values together is told of the whole text.
    let place = error.span().filter(|span| span.start > 0 || span.end < text.trim_end().len());
    let Some(before) = place.and_then(|span| text.get(..span.start)) else { return message };
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|char| *char != '\n').count() + 1;
    format!("line {line}, column {column}: {message}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, Deserialize)]
    #[serde(try_from = "Raw")]
    struct Settings;

    /// The settings before the rule that a single field cannot check.
    #[derive(Debug, Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Raw {
        limits: Limits,
        mode: Mode,
        config: BTreeMap<String, String>,
        tags: Vec<String>,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Limits {
        fuel: Option<u64>,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Mode {
        #[default]
        Event,
        Batch,
    }

    impl TryFrom<Raw> for Settings {
        type Error = &'static str;

        fn try_from(raw: Raw) -> Result<Self, Self::Error> {
            if raw.limits.fuel == Some(0) { Err("limits.fuel is 0; it must be at least 1") } else { Ok(Self) }
        }
    }

    #[test]
    fn a_fault_in_toml_is_one_line_with_its_place() {
        let fault = |text: &str| toml_fault::<Settings>(text, &toml::from_str::<Settings>(text).unwrap_err());
        assert_eq!(
            fault("[limits]\nfuel = 1\nfule = 3\n"),
            "line 3, column 1: limits.fule: there is no such field; did you mean `fuel`?"
        );
        assert_eq!(
            fault("[limits]\nfuel = 'much'\n"),
            "line 2, column 8: limits.fuel: it is the text \"much\", but must be a whole number of 0 or more"
        );
        assert_eq!(
            fault("[limits]\nfuel = 1\nfuel = 2\n"),
            "line 3, column 1: this key or section is written twice; keep one of them"
        );
        assert!(fault("[limits\n").starts_with("line 1, column "), "{}", fault("[limits\n"));
        assert!(fault("a = \"ü\"\nmode = \"x\"").starts_with("line "));
        assert_eq!(fault("limits.fuel = 0\n"), "limits.fuel is 0; it must be at least 1");
        for text in ["[limits", "x", "= 3", "a = [1,\n2", "mode = 'thread'", "[config]\nhttp.allow = []", "tags = 'all'"] {
            assert_eq!(fault(text).lines().count(), 1, "{text}");
        }
    }
}
