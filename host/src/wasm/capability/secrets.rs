//! A plugin's secrets, blanked out of what it says.

use std::borrow::Cow;

use super::Grants;

/// What stands in place of a secret.
const HIDDEN: &str = "***";
/// Shorter ones are left: blanking out every `a` hides nothing and spoils every line.
const SHORTEST: usize = 4;
/// The same for one line of a secret.
const SHORTEST_LINE: usize = 8;

impl Grants {
    /// The text without the values of the plugin's secrets, as they were given. What the guest made of them, such as base64, is
    /// not found.
    pub(in crate::wasm) fn hide<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut hidden = Cow::Borrowed(text);
        if self.secrets.is_empty() {
            return hidden;
        }
        // The lines of one that has several, too: standard output is looked at line by line.
        let lines = self.secrets.values().flat_map(|secret| secret.lines().filter(|line| line.len() >= SHORTEST_LINE));
        let plain: Vec<&str> = self.secrets.values().map(String::as_str).chain(lines).collect();
        // As a report quotes them, in the way of Rust and of JSON.
        let quoted = plain.iter().flat_map(|secret| [secret.escape_debug().to_string(), in_json(secret)]);
        let mut all: Vec<Cow<'_, str>> = quoted.filter(|quoted| !plain.contains(&quoted.as_str())).map(Cow::Owned).collect();
        all.extend(plain.iter().map(|secret| Cow::Borrowed(*secret)));
        // The longest first: one may be a part of another.
        all.sort_unstable_by_key(|secret| std::cmp::Reverse(secret.len()));
        for secret in all.iter().filter(|secret| secret.len() >= SHORTEST) {
            if hidden.contains(&**secret) {
                hidden = Cow::Owned(hidden.replace(&**secret, HIDDEN));
            }
        }
        hidden
    }
}

/// A text as it stands between the quotes of a JSON string.
fn in_json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_secret_is_blanked_out_and_other_text_is_left_alone() {
        let secrets = [("a", "s3cret"), ("short", "abc"), ("b", "s3cret and more"), ("key", "-- BEGIN --\nZm9vYmFy\nx")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let grants = Grants { secrets: secrets.into(), ..Grants::default() };
        assert_eq!(grants.hide("s3cret is s3cret, abc"), "*** is ***, abc");
        assert_eq!(grants.hide("s3cret and more"), "***", "not *** and more");
        assert_eq!(grants.hide("line Zm9vYmFy"), "line ***");
        assert!(matches!(grants.hide("nothing"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_secret_is_found_as_a_report_quotes_it_too() {
        let secret = "pa\"ss\\wo\u{7f}rd";
        let grants = Grants { secrets: [("a".to_owned(), secret.to_owned())].into(), ..Grants::default() };
        let json = serde_json::json!({ "token": secret }).to_string();
        assert_eq!(grants.hide(&format!("{secret} {secret:?} {json}")), "*** \"***\" {\"token\":\"***\"}");
    }
}
