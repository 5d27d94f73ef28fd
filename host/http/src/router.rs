//! The API and the dashboard as one router.

use axum::Router;
use axum::middleware::from_fn_with_state;
use outbox::Outbox;
use outbox_store::SharedStore;

use super::host::Host;
use super::{ConfigFaults, HttpConfig, api, guard, pages};

/// The HTTP API of an outbox, to be mounted in a service: as it is, or nested below a path that ends with a slash, which the
/// links of the pages need.
///
/// Without [tokens](HttpConfig::tokens) it refuses every request, unless [`open`](HttpConfig::open) says that the service checks its
/// callers itself. Listening, connections, and timeouts of headers and of unread answers are the service's own.
///
/// # Errors
/// Every value of the configuration that makes no sense or is unsafe, all at once.
///
/// ```no_run
/// # async fn example(outbox: outbox::Outbox<outbox::SqliteStore>) -> Result<(), outbox_http::ConfigFaults> {
/// use outbox_http::{HttpConfig, router};
///
/// let api = router(&outbox, HttpConfig { open: true, ..HttpConfig::default() })?;
/// let service: axum::Router = axum::Router::new().nest("/outbox/", api);
/// # Ok(())
/// # }
/// ```
pub fn router<S: SharedStore>(outbox: &Outbox<S>, config: HttpConfig) -> Result<Router, ConfigFaults> {
    config.check()?;
    Ok(routes(Host::new(outbox, config)))
}

/// As [`router`], for a configuration that was checked.
pub(crate) fn routes(host: Host) -> Router {
    Router::new()
        .merge(api::routes())
        .merge(pages::routes(host.clone()))
        .method_not_allowed_fallback(pages::method_not_allowed)
        .layer(from_fn_with_state(host.clone(), guard::guard))
        .with_state(host)
}
