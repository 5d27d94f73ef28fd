//! Links within the pages. All are relative, so the pages work below any path.

pub(super) use outbox_event::text::encoded;

/// A link and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// Relative to the root of the pages, without a slash in front.
    pub(super) to: String,
    pub(super) word: &'static str,
}

/// More than the depth of any page. The way back stands in every link, and a made-up path can have any number of parts.
const MAX_DEPTH: usize = 16;

/// The way from the page at this path to the root of the pages: `./` from `/dead`, `../` from `/events/ID`.
pub(super) fn root(path: &str) -> String {
    match path.matches('/').count() {
        0 | 1 => "./".to_owned(),
        deep => "../".repeat((deep - 1).min(MAX_DEPTH)),
    }
}

/// A query of these pairs, in order; empty values are left out.
pub(super) fn query(pairs: &[(&str, &str)]) -> String {
    let pairs = pairs.iter().filter(|(_, value)| !value.is_empty());
    pairs.map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leads_to_the_root_from_everywhere() {
        assert_eq!(["/", "/dead", "/events/01J", "/a/b/c"].map(root), ["./", "./", "../", "../../"]);
    }

    #[test]
    fn a_path_of_any_length_has_a_short_way_back() {
        assert_eq!(root(&"/".repeat(60_000)).len(), 3 * MAX_DEPTH);
    }

    #[test]
    fn whatever_a_value_holds_it_is_one_value() {
        assert_eq!(query(&[("type", "a&b=c"), ("empty", ""), ("key", "ü/ \"<>")]), "type=a%26b%3Dc&key=%C3%BC%2F%20%22%3C%3E");
    }
}
