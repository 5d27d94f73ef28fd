//! The answers 404 and 405: pages for browsers, problems as JSON for programs.

use axum::extract::{FromRequestParts, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::visit::{Visit, plain, theme};
use crate::pages::Pages;
use crate::pages::link::root;
use crate::paths::{LIVEZ, METRICS, OPENAPI, READYZ};
use crate::problem::{Kind, Problem};

/// Nothing is at this address.
pub(crate) async fn not_found(State(pages): State<Pages>, request: Request) -> Response {
    let (mut parts, _) = request.into_parts();
    if !is_for_a_page(parts.uri.path(), &parts.headers) {
        return Problem::new(Kind::NotFound, "there is nothing at this path").into_response();
    }
    let (title, sentence) =
        ("Page not found", "There is no page at this address. The link may be mistyped, or from another version.");
    match Visit::from_request_parts(&mut parts, &pages).await {
        Ok(visit) => visit.refused(StatusCode::NOT_FOUND, title, sentence).into_response(),
        // A visitor without a session learns no more.
        Err(_) => plain(&root(parts.uri.path()), theme(&parts), StatusCode::NOT_FOUND, title, sentence),
    }
}

/// Something is at this address, but not for this method.
pub(crate) async fn method_not_allowed(request: Request) -> Response {
    let (parts, _) = request.into_parts();
    if !is_for_a_page(parts.uri.path(), &parts.headers) {
        return Problem::new(
            Kind::MethodNotAllowed,
            "this path does not allow this method; the Allow header lists the methods it does allow",
        )
        .into_response();
    }
    let (title, sentence) = ("Page not available", "This request is not allowed at this address. Nothing was changed.");
    plain(&root(parts.uri.path()), theme(&parts), StatusCode::METHOD_NOT_ALLOWED, title, sentence)
}

/// Whether a person in a browser asks, and not for a part of the API.
fn is_for_a_page(path: &str, headers: &HeaderMap) -> bool {
    let is_api = path == "/v1" || path.starts_with("/v1/") || matches!(path, LIVEZ | READYZ | METRICS | OPENAPI);
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    !is_api && accepted.flat_map(|value| value.split(',')).any(|kind| kind.trim().to_ascii_lowercase().starts_with("text/html"))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_page_is_for_whoever_takes_html_and_asks_for_no_part_of_the_api() {
        let takes = |path: &str, accept: &'static str| {
            is_for_a_page(path, &HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]))
        };
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        assert!(takes("/evnts", browser) && takes("/evnts", "Text/HTML") && takes("/v1x", browser));
        for path in ["/v1", "/v1/evnts", LIVEZ, READYZ, METRICS, OPENAPI] {
            assert!(!takes(path, browser), "{path}");
        }
        for program in ["*/*", "application/json", "application/text/html", ""] {
            assert!(!takes("/evnts", program), "{program}");
        }
        assert!(!is_for_a_page("/evnts", &HeaderMap::new()));
    }
}
