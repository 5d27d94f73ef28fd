//! The dashboard: pages that say what is wrong, why, and what can be done. The server renders them; they work without
//! JavaScript.
//!
//! A request goes from the left to the right: `handlers` → `asked` (what it asks for) and `known` (what the pages know) →
//! `view` (a file for each page, pure) → `document` (what stands around every page). `jobs` are replays and discards of many
//! events.

mod asked;
mod chart;
mod document;
#[cfg(test)]
mod fake;
mod handlers;
mod jobs;
mod known;
mod link;
#[cfg(test)]
mod tests;
mod view;
mod words;

pub(super) use handlers::not_found::method_not_allowed;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::routing::{get, post};
use outbox_event::time::system_clock;

use super::history::{History, SAMPLE_EVERY};
use super::host::Host;
use handlers::{act, door, not_found, read};
use known::snapshots::Snapshots;

/// What all handlers share; cheap to clone.
#[derive(Clone)]
struct Pages(Arc<Inner>);

struct Inner {
    host: Host,
    snapshots: Snapshots,
    history: History,
    jobs: jobs::Jobs,
    is_kept: AtomicBool,
}

impl Deref for Pages {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

/// The pages of a host, below the path that they are mounted at.
pub(super) fn routes<S>(host: Host) -> Router<S> {
    let snapshots = Snapshots::new(host.store.clone(), host.handle.purge_config().clone(), host.handle.lease());
    let pages = Pages(Arc::new(Inner {
        host,
        snapshots,
        history: History::default(),
        jobs: jobs::Jobs::default(),
        is_kept: AtomicBool::new(false),
    }));
    pages.keep_history();
    let asset = |path: &str| format!("/{path}");
    Router::new()
        .route("/", get(read::overview))
        .route("/search", get(read::search))
        .route("/events", get(read::events))
        .route("/events/{id}", get(read::event))
        .route("/events/{id}/{action}", post(act::one))
        .route("/dead", get(read::dead))
        .route("/dead/{action}", get(act::preview).post(act::many))
        .route("/jobs/{id}", get(act::progress))
        .route("/jobs/{id}/stop", post(act::stop))
        .route("/routes", get(read::routes))
        .route("/routes/{action}", get(act::route_before).post(act::route))
        .route("/plugins", get(read::plugins))
        .route("/sinks", get(read::sinks))
        .route("/hosts", get(read::hosts))
        .route("/audit", get(read::audit))
        .route("/login", get(door::login).post(door::enter))
        .route("/logout", post(door::leave))
        .route("/theme", post(door::theme))
        .route(&asset(document::script_path()), get(document::script))
        .route(&asset(document::icon_path()), get(document::icon))
        .fallback(not_found::not_found)
        .with_state(pages)
}

impl Pages {
    /// Starts the task that fills the history, once; it ends with the last clone of the pages. If the router is made outside of
    /// a runtime, the first visit starts the task.
    fn keep_history(&self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if self.is_kept.swap(true, Ordering::Relaxed) {
            return;
        }
        let inner = Arc::downgrade(&self.0);
        runtime.spawn(async move {
            while let Some(pages) = inner.upgrade().map(Pages) {
                pages.sample().await;
                drop(pages);
                tokio::time::sleep(SAMPLE_EVERY).await;
            }
        });
    }

    async fn sample(&self) {
        let known = self.snapshots.recent().await;
        let (counts, lags) = (self.host.metrics.counts(), self.host.metrics.routes.lags());
        self.history.sample(system_clock().now(), counts, lags, known.latest_count());
    }
}
