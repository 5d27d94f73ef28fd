//! What a content type says of a payload.

/// Whether a content type says that the payload is JSON: `application/json`, `text/json`, or one with the suffix `+json`. One
/// that says nothing might be.
pub(crate) fn is_json(content_type: &str) -> bool {
    let media = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    matches!(media.as_str(), "" | "application/json" | "text/json") || media.ends_with("+json")
}

/// The character set that a content type names, unless that is UTF-8 or a part of it.
pub(crate) fn other_charset(content_type: &str) -> Option<&str> {
    let parameters = content_type.split(';').skip(1).filter_map(|parameter| parameter.split_once('='));
    let named = parameters.filter(|(name, _)| name.trim().eq_ignore_ascii_case("charset"));
    let mut charsets = named.map(|(_, charset)| charset.trim().trim_matches('"'));
    charsets.find(|charset| !["utf-8", "utf8", "us-ascii"].iter().any(|known| charset.eq_ignore_ascii_case(known)))
}
