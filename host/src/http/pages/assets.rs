//! The style sheet and the script, from our own origin, under a path that changes with their content.

use std::sync::OnceLock;

use axum::http::header;
use axum::response::IntoResponse;
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("live.js");
const ICON: &str = r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3" fill="#0b5cad"/><path d="M4 8h7M8 4.5l3.5 3.5L8 11.5" fill="none" stroke="#fff" stroke-width="2"/></svg>"##;
/// A year: the path changes when the content does.
const FOR_EVER: &str = "public, max-age=31536000, immutable";

/// Where the style sheet is, from the root of the pages.
pub(super) fn style_path() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| path(STYLE, "css"))
}

/// Where the script is.
pub(super) fn script_path() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| path(SCRIPT, "js"))
}

/// Where the icon is.
pub(super) fn icon_path() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| path(ICON, "svg"))
}

fn path(content: &str, ending: &str) -> String {
    let digest = HEXLOWER.encode(&Sha256::digest(content.as_bytes()));
    format!("assets/{}.{ending}", &digest[..16])
}

pub(super) async fn style() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8"), (header::CACHE_CONTROL, FOR_EVER)], STYLE)
}

pub(super) async fn script() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8"), (header::CACHE_CONTROL, FOR_EVER)], SCRIPT)
}

pub(super) async fn icon() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "image/svg+xml"), (header::CACHE_CONTROL, FOR_EVER)], ICON)
}
