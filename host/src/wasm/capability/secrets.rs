//! A plugin's secrets, blanked out of what it says.

use std::borrow::Cow;

use super::Grants;

/// What stands in place of a secret.
const HIDDEN: &str = "***";
/// Shorter ones are left: blanking out every `a` hides nothing and spoils every line.
const SHORTEST: usize = 4;

impl Grants {
    /// The text without the values of the plugin's secrets, as they were given. What the guest made of them, such as base64, is
    /// not found.
    pub(in crate::wasm) fn hide<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut hidden = Cow::Borrowed(text);
        for secret in self.secrets.values().filter(|secret| secret.len() >= SHORTEST) {
            if hidden.contains(secret.as_str()) {
                hidden = Cow::Owned(hidden.replace(secret.as_str(), HIDDEN));
            }
        }
        hidden
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_secret_is_blanked_out_and_other_text_is_left_alone() {
        let secrets = [("token", "s3cret"), ("short", "abc")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let grants = Grants { secrets: secrets.into(), ..Grants::default() };
        assert_eq!(grants.hide("s3cret is s3cret, abc"), "*** is ***, abc");
        assert!(matches!(grants.hide("nothing"), Cow::Borrowed(_)));
    }
}
