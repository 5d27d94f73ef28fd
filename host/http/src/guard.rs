//! The checks that every request passes before its handler, and the headers of every answer.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::access::bearer;
use super::access::token::Role;
use super::config::names_loopback;
use super::host::Host;
use super::host::ReadPlace;
use super::paths::{LIVEZ, METRICS, OPENAPI, READYZ};
use super::peer::{Leaving, Peer};
use super::problem::{Kind, Problem};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Where scripts, styles and the like may come from, and forms may lead.
pub(super) const POLICY: &str =
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'";

/// The headers of every answer, unless its handler set them. No page needs a script, a style or a frame of another origin.
const HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Checks where the request comes from, has it handled, and adds the headers of every answer.
pub(super) async fn guard(State(host): State<Host>, request: Request, next: Next) -> Response {
    let checked =
        check_host(&request, &host.config.allowed_hosts).and_then(|()| check_site(request.method(), request.headers()));
    let response = match checked {
        Ok(()) => match reader(&host, &request) {
            None => in_task(None, request, next).await,
            Some(role) => match host.read_place(role).await {
                Ok(place) => in_task(Some(place), request, next).await,
                Err(problem) => problem.into_response(),
            },
        },
        Err(problem) => problem.into_response(),
    };
    with_headers(response)
}

/// Whether a request needs a place to read the database. Requests that write are short, or take a place themselves while they
/// count; a body that arrives slowly must not hold one.
fn reads(request: &Request) -> bool {
    let path = request.uri().path();
    let needs_none = matches!(path, LIVEZ | READYZ | METRICS | OPENAPI) || path.starts_with("/assets/") || path == "/v1/stream";
    matches!(*request.method(), Method::GET | Method::HEAD) && !needs_none
}

/// The role of a caller who reads the database. `None` for a request that needs no place, and for strangers, who are refused
/// later and must not keep others waiting.
fn reader(host: &Host, request: &Request) -> Option<Role> {
    let viewer = || host.access.viewer(request.headers(), request.extensions().get()).ok();
    reads(request).then(viewer).flatten().map(|viewer| viewer.role)
}

/// Runs the handler in a task of its own: when the client goes away its connection is dropped, and a statement that is
/// cancelled in the middle would leave a database connection with an open transaction behind.
async fn in_task(place: Option<ReadPlace>, mut request: Request, next: Next) -> Response {
    let (_stays, leaving) = Leaving::new();
    request.extensions_mut().insert(leaving);
    let handled = async move {
        let response = next.run(request).await;
        drop(place);
        response
    };
    match tokio::spawn(handled).await {
        Ok(response) => response,
        Err(error) => {
            tracing::error!(target: "outbox::http::guard", %error, "the handler of a request broke");
            Problem::internal().into_response()
        }
    }
}

/// An answer with the headers that every answer carries.
pub(super) fn with_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// On a loopback address the `Host` must name this machine: a page of another site whose name was made to point here (DNS
/// rebinding) still sends that name.
fn check_host(request: &Request, allowed: &[String]) -> Result<(), Problem> {
    let on_loopback = request.extensions().get::<Peer>().is_some_and(Peer::is_on_loopback);
    // Probes ask a host by its address.
    let is_probe = matches!(request.uri().path(), LIVEZ | READYZ);
    if !on_loopback && (allowed.is_empty() || is_probe) {
        return Ok(());
    }
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let (host, more) = (hosts.next().and_then(|host| host.to_str().ok()), hosts.next().is_some());
    let Some(host) = host.filter(|_| !more) else {
        return Err(Problem::new(Kind::BadRequest, "the request needs one Host header"));
    };
    // A request to a proxy names the host twice.
    let named = request.uri().authority().map(axum::http::uri::Authority::as_str);
    let is_named = |name: &str| {
        if on_loopback { names_loopback(name, allowed) } else { allowed.iter().any(|allowed| is_host(name, allowed)) }
    };
    if [Some(host), named].into_iter().flatten().all(is_named) {
        return Ok(());
    }
    Err(Problem::new(
        Kind::ForeignHost,
        "the Host header names another host; write localhost or 127.0.0.1, or add the name to http.allowed_hosts",
    ))
}

fn is_host(authority: &str, name: &str) -> bool {
    authority.parse::<axum::http::uri::Authority>().is_ok_and(|authority| authority.host().eq_ignore_ascii_case(name))
}

/// A page of another site must change nothing, and must not look, which takes time and a place: it may only link here. Browsers
/// say who asks; what says nothing is no browser. Whoever brings a token in the `Authorization` header needs no check: no
/// browser adds one by itself.
fn check_site(method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    if *method == Method::OPTIONS || bearer(headers).is_some() {
        return Ok(());
    }
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let reads = matches!(*method, Method::GET | Method::HEAD);
    let is_link = || text(SEC_FETCH_MODE) == Some("navigate") && text(SEC_FETCH_DEST) == Some("document");
    let same = match (text(SEC_FETCH_SITE), text(header::ORIGIN)) {
        (Some("cross-site" | "same-site"), _) if reads => is_link(),
        _ if reads => true,
        (Some(site), _) => matches!(site, "same-origin" | "none"),
        (None, Some(origin)) => {
            let origin = origin.split_once("://").map(|(_, authority)| authority);
            origin.is_some() && origin == text(header::HOST)
        }
        (None, None) => true,
    };
    if same {
        return Ok(());
    }
    Err(Problem::new(Kind::CrossSite, "a browser sent this request for a page of another site; nothing was done"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair =
            |(name, value): &(&'static str, &'static str)| (HeaderName::from_static(name), HeaderValue::from_static(value));
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn a_change_asked_for_by_a_page_of_another_site_is_refused() {
        let post = |pairs: &[(&'static str, &'static str)]| check_site(&Method::POST, &headers(pairs)).is_ok();
        let host = ("host", "localhost:8080");
        assert!(post(&[host]), "no browser");
        assert!(post(&[host, ("sec-fetch-site", "same-origin")]) && post(&[host, ("sec-fetch-site", "none")]));
        assert!(post(&[host, ("origin", "http://localhost:8080")]), "an older browser");
        assert!(post(&[host, ("origin", "https://evil.example"), ("authorization", "Bearer obx_a")]), "a token");
        for other in ["cross-site", "same-site", "", "Same-Origin"] {
            assert!(!post(&[host, ("sec-fetch-site", other)]), "{other}");
        }
        for other in ["https://evil.example", "http://localhost:9090", "null", "", "http://localhost"] {
            assert!(!post(&[host, ("origin", other)]), "{other}");
        }
        assert!(!post(&[host, ("sec-fetch-site", "cross-site"), ("origin", "http://localhost:8080")]));
        assert!(!post(&[host, ("sec-fetch-site", "cross-site"), ("authorization", "Basic YTpi")]));
        for method in [Method::PUT, Method::DELETE, Method::PATCH] {
            assert!(check_site(&method, &headers(&[host, ("sec-fetch-site", "cross-site")])).is_err(), "{method}");
        }
    }

    #[test]
    fn a_page_of_another_site_may_link_here_and_not_fetch() {
        let get = |pairs: &[(&'static str, &'static str)]| check_site(&Method::GET, &headers(pairs)).is_ok();
        let (link, page) = (("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document"));
        for site in ["cross-site", "same-site"] {
            let site = ("sec-fetch-site", site);
            assert!(get(&[site, link, page]), "a link");
            assert!(!get(&[site]) && !get(&[site, link]) && !get(&[site, link, ("sec-fetch-dest", "iframe")]), "{site:?}");
            assert!(!get(&[site, ("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "image")]), "{site:?}");
            assert!(get(&[site, ("authorization", "Bearer obx_a")]), "a token");
        }
        for site in ["same-origin", "none"] {
            assert!(get(&[("sec-fetch-site", site), ("sec-fetch-mode", "cors")]), "{site}");
        }
        assert!(get(&[]) && get(&[("origin", "https://evil.example")]), "no browser of today");
    }
}
