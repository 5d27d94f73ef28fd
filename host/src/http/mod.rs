//! The HTTP API of a host: writing events, looking at them, and what operators do.
//!
//! [`Server`] listens on a socket of its own; [`router`] is the same API for a service that has an axum router already.
//! Handlers use what an embedder would use: the [`Writer`](crate::Writer), the [`Store`](crate::Store),
//! [`DeadEvents`](crate::dead::DeadEvents). Nothing outside this room knows of HTTP requests.
//!
//! `GET /openapi.json` describes every route of the API; router and document are made from one table. Programs send a token
//! with each request; browsers log in with it once, and have a session.

mod access;
#[doc(hidden)] // for our own program
pub mod answer;
mod api;
mod auth;
mod body;
mod cached;
mod config;
mod cursor;
mod guard;
mod history;
mod host;
mod openapi;
mod pages;
mod params;
mod peer;
mod problem;
mod server;
mod standing;
#[cfg(all(test, feature = "sqlite"))]
mod tests;

use axum::Router;
use axum::middleware::from_fn_with_state;

pub use access::token::{Role, Token, TokenHash, TokenHashError};
pub use config::{ConfigFaults, HttpConfig, Listen, ListenError};
pub use server::{ServeError, Server};

use crate::outbox::Outbox;
use crate::store::SharedStore;
use host::Host;

/// Says that the process answers, and no more.
const LIVEZ: &str = "/livez";
/// Says whether the host can do its work.
const READYZ: &str = "/readyz";
/// What the host has counted.
const METRICS: &str = "/metrics";

/// The document that describes the API.
const OPENAPI: &str = "/openapi.json";

/// The HTTP API of an outbox, to be mounted in a service: as it is, or nested below a path that ends with a slash, which the
/// links of the pages need.
///
/// Without [tokens](HttpConfig::tokens) it lets nobody in, unless [`open`](HttpConfig::open) says that the service checks its
/// callers itself. Listening, connections, and timeouts of headers and of answers that nobody reads are the service's own.
///
/// # Errors
/// Every value of the configuration that makes no sense or is unsafe, all at once.
///
/// ```no_run
/// # async fn example(outbox: outbox::Outbox<outbox::SqliteStore>) -> Result<(), outbox::http::ConfigFaults> {
/// use outbox::http::{HttpConfig, router};
///
/// let api = router(&outbox, HttpConfig { open: true, ..HttpConfig::default() })?;
/// let service: axum::Router = axum::Router::new().nest("/outbox/", api);
/// # Ok(())
/// # }
/// ```
pub fn router<S: SharedStore>(outbox: &Outbox<S>, config: HttpConfig) -> Result<Router, ConfigFaults> {
    config.check()?;
    Ok(of(Host::new(outbox, config)))
}

fn of(host: Host) -> Router {
    Router::new()
        .merge(api::routes())
        .merge(pages::routes(host.clone()))
        .method_not_allowed_fallback(pages::method_not_allowed)
        .layer(from_fn_with_state(host.clone(), guard::guard))
        .with_state(host)
}
