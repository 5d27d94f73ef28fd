//! Sessions of browsers: the token in a cookie that no script reads and no other site sends. There is nothing to keep on the host.

use axum::http::{HeaderMap, HeaderValue, header};

use super::auth::COOKIE;

/// Sets the cookie of a session; for as long as the browser runs.
pub(super) fn begin(token: &str, headers: &HeaderMap) -> Option<HeaderValue> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if token.is_empty() || !token.chars().all(is_plain) {
        return None;
    }
    set(COOKIE, token, "", headers)
}

/// Takes the cookie back.
pub(super) fn end(headers: &HeaderMap) -> Option<HeaderValue> {
    set(COOKIE, "", "; Max-Age=0", headers)
}

/// Sets a cookie of a harmless value for a year.
pub(super) fn remember(name: &str, value: &str, headers: &HeaderMap) -> Option<HeaderValue> {
    set(name, value, "; Max-Age=31536000", headers)
}

fn set(name: &str, value: &str, age: &str, headers: &HeaderMap) -> Option<HeaderValue> {
    // Behind a proxy that speaks TLS the cookie never goes over anything else.
    let is_tls = headers.get("x-forwarded-proto").is_some_and(|proto| proto.as_bytes().eq_ignore_ascii_case(b"https"));
    let secure = if is_tls { "; Secure" } else { "" };
    HeaderValue::try_from(format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{age}")).ok()
}

/// The value of a cookie.
pub(super) fn cookie<'h>(headers: &'h HeaderMap, wanted: &str) -> Option<&'h str> {
    let values = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = values.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == wanted).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_script_reads_the_cookie_and_no_other_site_sends_it() {
        let text = |headers: &HeaderMap| begin("obx_abc-1", headers).unwrap().to_str().unwrap().to_owned();
        let mut headers = HeaderMap::new();
        assert_eq!(text(&headers), "outbox_session=obx_abc-1; Path=/; HttpOnly; SameSite=Strict");
        headers.insert("x-forwarded-proto", HeaderValue::from_static("https"));
        assert!(text(&headers).ends_with("; Secure"));
        assert!(end(&headers).unwrap().to_str().unwrap().contains("Max-Age=0"));
    }

    #[test]
    fn a_token_cannot_add_to_its_cookie() {
        for bad in ["", "a;b", "a b", "a\r\nSet-Cookie: x=y", "ü"] {
            assert_eq!(begin(bad, &HeaderMap::new()), None, "{bad}");
        }
    }

    #[test]
    fn a_cookie_is_found_among_others() {
        let headers = HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_static("a=1; outbox_theme=dark; b=2"))]);
        assert_eq!((cookie(&headers, "outbox_theme"), cookie(&headers, "theme")), (Some("dark"), None));
    }
}
