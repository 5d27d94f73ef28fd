//! The login, if the host has tokens; the logout; and the colour scheme.

use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};

use super::visit::{THEME, response, theme as theme_of};
use crate::access::session;
use crate::pages::Pages;
use crate::pages::asked::fields::{Fields, Form};
use crate::pages::document::{Theme, shell};
use crate::peer::Peer;

/// A request by anybody, with or without access.
pub(crate) struct Anybody {
    theme: Theme,
    headers: HeaderMap,
    peer: Option<Peer>,
    asked: Fields,
}

impl FromRequestParts<Pages> for Anybody {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &Pages) -> Result<Self, Self::Rejection> {
        Ok(Self {
            theme: theme_of(parts),
            headers: parts.headers.clone(),
            peer: parts.extensions.get().cloned(),
            asked: Fields::of_address(&parts.uri),
        })
    }
}

pub(crate) async fn login(visitor: Anybody) -> Response {
    form(&visitor, visitor.asked.text("back"), None)
}

/// Checks the token; a valid one begins a session.
pub(crate) async fn enter(State(pages): State<Pages>, visitor: Anybody, Form(said): Form) -> Response {
    let (token, back) = (said.text("token"), said.text("back"));
    match pages.host.log_in(token, &visitor.headers, visitor.peer.as_ref()) {
        Ok((viewer, cookie)) => {
            tracing::info!(
                target: "outbox::http::pages::handlers::door",
                viewer = &*viewer.name,
                "login to the pages"
            );
            to(back, cookie)
        }
        Err(problem) => {
            let mut response = form(&visitor, back, Some(problem.detail()));
            *response.status_mut() = StatusCode::FORBIDDEN;
            response
        }
    }
}

pub(crate) async fn leave(State(pages): State<Pages>, visitor: Anybody) -> Response {
    to("login", pages.host.access.log_out(&visitor.headers))
}

pub(crate) async fn theme(visitor: Anybody, Form(said): Form) -> Response {
    let theme = Theme::of(said.text("theme"));
    to(said.text("back"), session::remember(THEME, theme.as_str(), &visitor.headers))
}

/// Redirects back to a page of this host. With `./` in front no text leads to another site.
fn to(back: &str, cookie: Option<HeaderValue>) -> Response {
    let location = HeaderValue::try_from(format!("./{back}")).unwrap_or(HeaderValue::from_static("./"));
    let mut response = (StatusCode::SEE_OTHER, [(header::LOCATION, location)]).into_response();
    if let Some(cookie) = cookie {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

fn form(visitor: &Anybody, back: &str, fault: Option<&str>) -> Response {
    let body: Markup = html! {
        main.alone #main {
            h1 { "outbox" }
            p { "This host requires a token. Create one with " code { "outbox token new" } "." }
            @if let Some(fault) = fault { p.status.fault role="alert" { "Refused: " (fault) "." } }
            form.sure method="post" action="./login" {
                input type="hidden" name="back" value=(back);
                label { "Token" input type="password" name="token" required autocomplete="current-password" autofocus; }
                div.row-of { button.primary { "Log in" } }
            }
        }
    };
    response(shell("./", visitor.theme, "Log in · outbox", body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_back_never_leads_to_another_site() {
        for back in ["//evil.example", "https://evil.example", "\\\\evil", "", "events?status=dead", "a\r\nX: y"] {
            let response = to(back, None);
            let location = response.headers()[header::LOCATION].to_str().unwrap();
            assert!(location.starts_with("./"), "{location}");
        }
    }
}
