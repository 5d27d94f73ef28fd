//! Handlers ask for a caller of a role by these extractors.

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};

pub(super) use super::access::Viewer;
use super::access::bearer;
use super::access::refused::Door;
use super::access::token::Role;
use super::host::Host;
use super::peer::Peer;
use super::problem::Problem;

/// A [`Viewer`] who may write, replay, discard and pause.
#[derive(Clone, Debug)]
pub(super) struct Operator(pub(super) Viewer);

/// A [`Viewer`] who may purge.
#[derive(Clone, Debug)]
pub(super) struct Admin(pub(super) Viewer);

impl Host {
    /// As [`Access::viewer`]; a token that was refused is noted.
    ///
    /// # Errors
    /// 401.
    pub(super) fn viewer(&self, headers: &HeaderMap, peer: Option<&Peer>) -> Result<Viewer, Problem> {
        let viewer = self.access.viewer(headers, peer);
        if viewer.is_err() && self.access.wants_tokens() && bearer(headers).is_some() {
            self.refused.note(Door::Api, peer.map(Peer::address));
        }
        viewer
    }

    /// As [`Access::log_in`]; a token that was refused is noted.
    ///
    /// # Errors
    /// 401.
    pub(super) fn log_in(
        &self,
        token: &str,
        headers: &HeaderMap,
        peer: Option<&Peer>,
    ) -> Result<(Viewer, Option<HeaderValue>), Problem> {
        let entered = self.access.log_in(token, headers);
        if entered.is_err() {
            self.refused.note(Door::Form, peer.map(Peer::address));
        }
        entered
    }
}

impl FromRequestParts<Host> for Viewer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, host: &Host) -> Result<Self, Problem> {
        host.viewer(&parts.headers, parts.extensions.get())
    }
}

/// `None` without a valid token, for pages that then show the log-in.
impl OptionalFromRequestParts<Host> for Viewer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, host: &Host) -> Result<Option<Self>, Problem> {
        Ok(host.viewer(&parts.headers, parts.extensions.get()).ok())
    }
}

impl FromRequestParts<Host> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, host: &Host) -> Result<Self, Problem> {
        let operator = host.viewer(&parts.headers, parts.extensions.get())?.at_least(Role::Operator)?;
        check_parameters(parts)?;
        Ok(Self(operator))
    }
}

impl FromRequestParts<Host> for Admin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, host: &Host) -> Result<Self, Problem> {
        let admin = host.viewer(&parts.headers, parts.extensions.get())?.at_least(Role::Admin)?;
        check_parameters(parts)?;
        Ok(Self(admin))
    }
}

/// Refuses query parameters. A change takes its arguments from the body, and a `dry_run` in the address must not be ignored.
fn check_parameters(parts: &Parts) -> Result<(), Problem> {
    let Some(query) = parts.uri.query().filter(|query| !query.is_empty()) else { return Ok(()) };
    let name = query.split(['=', '&']).next().unwrap_or_default();
    Err(Problem::field(name, "a request that changes something takes no query parameters; write it into the JSON body"))
}
