//! A plugin's secrets, blanked out of what it says.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use outbox_event::text::cut;

use super::Grants;

/// What stands in place of a secret.
const HIDDEN: &str = "***";
/// Shorter ones are left: blanking out every `a` hides nothing and spoils every line.
const SHORTEST: usize = 4;
/// The same for one line of a secret.
const SHORTEST_LINE: usize = 8;

/// `[secrets]`, and what finds them in a text.
#[derive(Clone, Default)]
pub(crate) struct Secrets {
    values: BTreeMap<String, String>,
    /// Made once, since a key has many lines and a guest may say much. `None` when there is nothing to find.
    patterns: Option<AhoCorasick>,
}

impl From<BTreeMap<String, String>> for Secrets {
    fn from(values: BTreeMap<String, String>) -> Self {
        // The lines of one that has several, too: standard output is looked at line by line.
        let lines = values.values().flat_map(|secret| secret.lines().filter(|line| line.len() >= SHORTEST_LINE));
        let plain: BTreeSet<&str> = values.values().map(String::as_str).chain(lines).collect();
        // As a report quotes them, in the way of Rust and of JSON.
        let each = |secret: &&str| [(*secret).to_owned(), secret.escape_debug().to_string(), in_json(secret)];
        let all: BTreeSet<String> = plain.iter().flat_map(each).filter(|secret| secret.len() >= SHORTEST).collect();
        let patterns = (!all.is_empty()).then(|| {
            // The other kinds take more memory for each byte of a secret than a secret is worth.
            let builder = AhoCorasick::builder().kind(Some(AhoCorasickKind::ContiguousNFA)).build(&all);
            builder.expect("the secrets of a plugin have less than 2 GiB")
        });
        Self { values, patterns }
    }
}

impl Secrets {
    pub(crate) fn get(&self, key: &str) -> Option<&String> {
        self.values.get(key)
    }
}

/// Without the values.
impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.values.keys()).finish()
    }
}

impl Grants {
    /// The text without the values of the plugin's secrets, as they were given. What the guest made of them, such as base64, is
    /// not found. Looks at each byte once, however many secrets there are.
    pub(crate) fn hide<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let covered = self.covered(text);
        if covered.is_empty() {
            return Cow::Borrowed(text);
        }
        let (mut hidden, mut from) = (String::with_capacity(text.len()), 0);
        for secret in covered {
            hidden.push_str(&text[from..secret.start]);
            hidden.push_str(HIDDEN);
            from = secret.end;
        }
        hidden.push_str(&text[from..]);
        Cow::Owned(hidden)
    }

    /// The first `max` bytes of a text at most, or more if a secret crosses that end: [`hide`](Self::hide) would not find a part of it.
    pub(crate) fn cut<'t>(&self, text: &'t str, max: usize) -> &'t str {
        if text.len() <= max {
            return text;
        }
        let crossing = self.covered(text).into_iter().find(|secret| secret.start < max && secret.end > max);
        cut(text, crossing.map_or(max, |secret| secret.end))
    }

    /// The most bytes that one secret takes in a text.
    pub(crate) fn longest_secret(&self) -> usize {
        self.secrets.patterns.as_ref().map_or(0, AhoCorasick::max_pattern_len)
    }

    /// The parts of a text that are secrets, in the order of the text.
    fn covered(&self, text: &str) -> Vec<Range<usize>> {
        // One may be a part of another, or begin in its middle: what any of them covers is hidden.
        let mut covered: Vec<Range<usize>> = Vec::new();
        let Some(patterns) = &self.secrets.patterns else { return covered };
        for found in patterns.find_overlapping_iter(text) {
            // They come by their ends.
            while covered.pop_if(|last| last.start >= found.start()).is_some() {}
            match covered.last_mut() {
                Some(last) if last.end > found.start() => last.end = found.end(),
                _ => covered.push(found.range()),
            }
        }
        covered
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
        let grants = Grants { secrets: BTreeMap::from(secrets).into(), ..Grants::default() };
        assert_eq!(grants.hide("s3cret is s3cret, abc"), "*** is ***, abc");
        assert_eq!(grants.hide("s3cret and more"), "***", "not *** and more");
        assert_eq!(grants.hide("line Zm9vYmFy"), "line ***");
        assert!(matches!(grants.hide("nothing"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_secret_is_found_as_a_report_quotes_it_too() {
        let secret = "pa\"ss\\wo\u{7f}rd";
        let grants = Grants { secrets: BTreeMap::from([("a".to_owned(), secret.to_owned())]).into(), ..Grants::default() };
        let json = serde_json::json!({ "token": secret }).to_string();
        assert_eq!(grants.hide(&format!("{secret} {secret:?} {json}")), "*** \"***\" {\"token\":\"***\"}");
    }

    #[test]
    fn what_two_secrets_cover_together_is_hidden_whole() {
        let secrets = [("a", "abcdef"), ("b", "defghi"), ("c", "bcde"), ("d", "aaaa")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let grants = Grants { secrets: BTreeMap::from(secrets).into(), ..Grants::default() };
        assert_eq!(grants.hide("-abcdefghi-abcdef-defghi-bcde-"), "-***-***-***-***-");
        assert_eq!(grants.hide("aaaaaaaaaaaaa b"), "*** b");
        assert_eq!(grants.hide("abcdefabcdef"), "******");
        assert_eq!(format!("{grants:?}").matches("abcdef").count(), 0);
    }

    #[test]
    fn a_text_is_looked_through_once_for_all_secrets_together() {
        let key: String = (0..5_000).map(|line| format!("{line:064}\n")).collect();
        let grants = Grants { secrets: BTreeMap::from([("key".to_owned(), key)]).into(), ..Grants::default() };
        // It would not end in a test's time, if each look built the patterns anew.
        for _ in 0..100_000 {
            assert_eq!(grants.hide("x"), "x");
        }
        assert_eq!(grants.hide(&"x".repeat(1 << 20)).len(), 1 << 20);
        assert_eq!(grants.hide(&"0".repeat(1 << 20)), "***", "the first line again and again");
    }
}
