//! The style sheet, which is inlined in every page; the script and the icon, under paths that change with their content.

use std::sync::OnceLock;

use axum::http::{HeaderValue, header};
use axum::response::IntoResponse;
use data_encoding::{BASE64, HEXLOWER};
use sha2::{Digest as _, Sha256};

/// The style sheet.
pub(crate) const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("live.js");
const ICON: &str = r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3" fill="#0b5cad"/><path d="M4 8h7M8 4.5l3.5 3.5L8 11.5" fill="none" stroke="#fff" stroke-width="2"/></svg>"##;
/// A year: the path changes when the content does.
const FOR_EVER: &str = "public, max-age=31536000, immutable";

/// What a page may load and run: the script and the icon of this host, and the one inlined style sheet.
pub(crate) fn policy() -> HeaderValue {
    static POLICY: OnceLock<HeaderValue> = OnceLock::new();
    let made = || {
        let style = BASE64.encode(&Sha256::digest(STYLE.as_bytes()));
        HeaderValue::try_from(format!("{}; style-src 'sha256-{style}'", crate::guard::POLICY)).expect("it is ASCII")
    };
    POLICY.get_or_init(made).clone()
}

/// Where the script is.
pub(crate) fn script_path() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| path(SCRIPT, "js"))
}

/// Where the icon is.
pub(crate) fn icon_path() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| path(ICON, "svg"))
}

fn path(content: &str, ending: &str) -> String {
    let digest = HEXLOWER.encode(&Sha256::digest(content.as_bytes()));
    format!("assets/{}.{ending}", &digest[..16])
}

pub(crate) async fn script() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8"), (header::CACHE_CONTROL, FOR_EVER)], SCRIPT)
}

pub(crate) async fn icon() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "image/svg+xml"), (header::CACHE_CONTROL, FOR_EVER)], ICON)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_the_style_sheet_ends_it_early_or_is_loaded_from_elsewhere() {
        assert!(!STYLE.contains("</") && !STYLE.contains("url(") && !STYLE.contains("@import"));
        assert!(policy().to_str().unwrap().starts_with("default-src 'self'; "));
    }
}
