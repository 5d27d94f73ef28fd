//! A visit: who asks for which page, and what every handler needs for its answer.

use std::borrow::Cow;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use maud::Markup;
use outbox::PAUSE_KNOWN_WITHIN;
use outbox_event::units::span;
use outbox_store::{Audit, StoreError};

use crate::access::session;
use crate::access::token::Role;
use crate::auth::Viewer;
use crate::pages::Pages;
use crate::pages::asked::fields::Fields;
use crate::pages::document::{self, Frame, Theme};
use crate::pages::known::snapshot::Known;
use crate::pages::link::{query, root};

/// The cookie with the colour scheme.
pub(crate) const THEME: &str = "outbox_theme";
/// With this header the script asks for the live parts of a page, and says which it has: `nav=MARK status=MARK`.
const HAS: HeaderName = HeaderName::from_static("outbox-has");
/// The most parts that are read from the header; no page has as many.
const MOST_PARTS: usize = 16;

/// A page that says why there is nothing to show, or why nothing was done.
pub(crate) struct Refused(Box<Response>);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        *self.0
    }
}

/// A request for a page, by somebody who may see it.
#[derive(Clone)]
pub(crate) struct Visit {
    pub(crate) pages: Pages,
    pub(crate) viewer: Viewer,
    pub(crate) frame: Frame,
    /// The fields of the address.
    pub(crate) asked: Fields,
}

impl FromRequestParts<Pages> for Visit {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, pages: &Pages) -> Result<Self, Response> {
        let (host, path) = (&pages.host, parts.uri.path());
        let (root, theme) = (root(path), theme(parts));
        let here =
            parts.uri.path_and_query().map_or(path, axum::http::uri::PathAndQuery::as_str).trim_start_matches('/').to_owned();
        let viewer = match host.viewer(&parts.headers, parts.extensions.get()) {
            Ok(viewer) => viewer,
            Err(_) if host.access.wants_tokens() && parts.method == axum::http::Method::GET => {
                let to = format!("{root}login?{}", query(&[("back", &here)]));
                return Err((StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response());
            }
            Err(problem) => return Err(plain(&root, theme, StatusCode::UNAUTHORIZED, "No access", problem.detail())),
        };
        pages.keep_history();
        let asked = Fields::of_address(&parts.uri);
        let entry = match path.trim_start_matches('/').split('/').next().unwrap_or_default() {
            "" => "Overview",
            "events" | "search" => "Events",
            "dead" | "jobs" => "Dead",
            "routes" => "Routes",
            "plugins" => "Plugins",
            "sinks" => "Sinks",
            "hosts" => "Hosts",
            "audit" => "Audit log",
            _ => "",
        };
        let frame = Frame {
            root,
            here,
            theme,
            entry,
            place: format!("{}, {}", host.store.kind(), host.monitor.mode().as_str().replace('_', " ")),
            visitor: host.access.wants_tokens().then(|| viewer.name.to_string()),
            may_act: viewer.role >= Role::Operator,
            known: pages.snapshots.latest().await,
            owner: host.owner.as_str().to_owned(),
            unready: host.monitor.readiness().reasons().to_vec(),
            rate: pages.history.rate(),
            notice: notice(asked.text("did")),
            has: has(&parts.headers),
        };
        Ok(Self { pages: pages.clone(), viewer, frame, asked })
    }
}

/// A notice of what the visitor has just done. Only fixed texts: anybody can write an address.
fn notice(did: &str) -> Option<Cow<'static, str>> {
    let text = match did {
        "replay" => "The event is new again, and will be delivered as soon as a host takes it.",
        "discard" => "The event is deleted.",
        "skip" => "The event stays dead, and later events of its aggregate are delivered.",
        "resume" => "The route is resumed: hosts deliver its events again within seconds.",
        "pause" => {
            let within = span(PAUSE_KNOWN_WITHIN);
            let text = format!(
                "The route is paused: every host stops calling its listener within {within}, and calls that have begun are finished."
            );
            return Some(text.into());
        }
        _ => return None,
    };
    Some(text.into())
}

/// The parts that the script has; `None` for a request for the whole page.
fn has(headers: &HeaderMap) -> Option<Vec<(String, String)>> {
    let text = headers.get(HAS)?.to_str().unwrap_or_default();
    let pairs = text.split(' ').filter_map(|pair| pair.split_once('=')).take(MOST_PARTS);
    Some(pairs.map(|(id, mark)| (id.to_owned(), mark.to_owned())).collect())
}

/// The colour scheme of the cookie.
pub(crate) fn theme(parts: &Parts) -> Theme {
    session::cookie(&parts.headers, THEME).map_or(Theme::System, Theme::of)
}

/// A page without navigation.
pub(crate) fn plain(root: &str, theme: Theme, status: StatusCode, title: &str, sentence: &str) -> Response {
    (status, response(document::plain(root, theme, title, sentence))).into_response()
}

/// A document as an answer, under the policy of documents.
pub(crate) fn response(markup: Markup) -> Response {
    let headers = [
        (header::CONTENT_SECURITY_POLICY, document::policy()),
        // Under the policy of the API browsers leave the origin out of forms, and then the check of their origin fails.
        (header::REFERRER_POLICY, HeaderValue::from_static("same-origin")),
    ];
    (headers, Html(markup.into_string())).into_response()
}

impl Visit {
    /// A page.
    pub(crate) fn page(&self, title: &str, body: Markup) -> Response {
        response(self.frame.document(title, body))
    }

    /// Whether the script asks for the live parts, and not for the page.
    pub(crate) fn wants_parts(&self) -> bool {
        self.frame.has.is_some()
    }

    /// A page that says no, in one sentence.
    pub(crate) fn refused(&self, status: StatusCode, title: &str, sentence: &str) -> Refused {
        self.refused_with(status, title, maud::html! { h1 { (title) } p { (sentence) } })
    }

    /// A page that says no.
    pub(crate) fn refused_with(&self, status: StatusCode, title: &str, body: Markup) -> Refused {
        Refused(Box::new((status, self.page(title, body)).into_response()))
    }

    /// The answer of the database. While it is silent nothing is asked: the visitor has waited for it already.
    ///
    /// # Errors
    /// 503 as a page.
    pub(crate) async fn answer<T>(&self, asked: impl Future<Output = Result<T, StoreError>>) -> Result<T, Refused> {
        let silent = "The database is not answering. Nothing was changed; reload this page in a moment.";
        let known = &self.frame.known;
        if known.outage.as_ref().is_some_and(|outage| outage.is_silence) {
            return Err(self.unavailable(known.clone(), silent));
        }
        let error = match asked.await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        tracing::warn!(
            target: "outbox::http::pages::handlers::visit",
            error = %outbox_event::chain::chain(&error),
            "a page could not be shown"
        );
        let sentence = if error.is_transient() {
            silent
        } else {
            "The host could not read or change the data of this page. The log of the host says why."
        };
        Err(self.unavailable(self.pages.snapshots.after(&error).await, sentence))
    }

    /// The page for a visit that the database did not answer.
    fn unavailable(&self, known: Known, sentence: &str) -> Refused {
        let page = Self { frame: Frame { known, ..self.frame.clone() }, ..self.clone() };
        if page.wants_parts() {
            // The status line says so; the page stays as it is, marked as out of date.
            return Refused(Box::new(page.page("Temporarily unavailable", maud::html! {})));
        }
        page.refused(StatusCode::SERVICE_UNAVAILABLE, "Temporarily unavailable", sentence)
    }

    /// Whether the visitor may change anything.
    ///
    /// # Errors
    /// 403 as a page.
    pub(crate) fn may_act(&self) -> Result<(), Refused> {
        if self.frame.may_act {
            return Ok(());
        }
        let sentence =
            format!("Your token {} has the role {}; this needs the role operator.", self.viewer.name, self.viewer.role);
        Err(self.refused(StatusCode::FORBIDDEN, "Not allowed", &sentence))
    }

    /// Who makes a change and why, for the audit log.
    ///
    /// # Errors
    /// As a page: 403 for somebody who may not act, 422 for a form without a reason.
    pub(crate) fn audit(&self, form: &Fields) -> Result<Audit, Refused> {
        self.may_act()?;
        let reason = form.text("reason");
        if reason.is_empty() {
            return Err(self.refused(
                StatusCode::UNPROCESSABLE_ENTITY,
                "The reason is missing",
                "Nothing was done. Go back and enter a reason; it is recorded in the audit log.",
            ));
        }
        Ok(self.viewer.audit(Some(reason.to_owned())))
    }

    /// Redirects to another page after a change.
    pub(crate) async fn on_to(&self, path: &str) -> Response {
        self.pages.snapshots.forget().await;
        self.over_to(path)
    }

    /// Redirects to another page; nothing was changed.
    pub(crate) fn over_to(&self, path: &str) -> Response {
        (StatusCode::SEE_OTHER, [(header::LOCATION, self.frame.to(path))]).into_response()
    }
}
