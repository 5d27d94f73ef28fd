//! RouteListeners to requests: `read` shows, `act` changes, `door` logs in and out; each takes a `visit`.

pub(super) mod act;
pub(super) mod door;
pub(super) mod not_found;
pub(super) mod read;
pub(super) mod visit;
