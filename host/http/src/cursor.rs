//! Where a page of routes ends, as the address of the next one says it. Pure.

use outbox_event::Route;
use outbox_event::text::encoded;
use percent_encoding::percent_decode_str;

/// A route as text; a name may hold a slash.
pub(super) fn text(route: &Route) -> String {
    format!("{}/{}", encoded(route.aggregate_type.as_str()), encoded(route.event_type.as_str()))
}

/// The route of such a text; `None` for any other.
pub(super) fn route(text: &str) -> Option<Route> {
    let (aggregate_type, event_type) = text.split_once('/')?;
    let decoded = |name| percent_decode_str(name).decode_utf8().ok();
    Route::new(decoded(aggregate_type)?, decoded(event_type)?).ok()
}
