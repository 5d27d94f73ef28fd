//! Which events by what they are called: `--route`, `--type`, `--aggregate-type`.

use clap::Args;
use outbox::{AggregateType, Route};

/// Which events by their route, or by one half of it.
#[derive(Args, Clone, Debug)]
#[group(id = "names", multiple = true)]
pub(crate) struct Names {
    /// Only events of this route, AGGREGATE_TYPE/EVENT_TYPE; `*` matches any name, and EVENT_TYPE alone means events without an
    /// aggregate type
    #[arg(long, value_name = "A/T", value_parser = route, conflicts_with_all = ["event_type", "aggregate_type"])]
    route: Option<Route>,
    /// Only events of this event type
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// Only events of this aggregate type
    #[arg(long, value_name = "TYPE")]
    aggregate_type: Option<String>,
}

impl Names {
    /// `None` for any.
    pub(crate) fn event_type(&self) -> Option<String> {
        half(self.route.as_ref().map(|route| route.event_type.as_str()), self.event_type.as_deref())
    }

    /// `None` for any.
    pub(crate) fn aggregate_type(&self) -> Option<String> {
        half(self.route.as_ref().map(|route| route.aggregate_type.as_str()), self.aggregate_type.as_deref())
    }
}

/// A half of the route, or what was asked for without one.
fn half(of_route: Option<&str>, alone: Option<&str>) -> Option<String> {
    match of_route {
        Some(Route::ANY) => None,
        Some(name) => Some(name.to_owned()),
        None => alone.map(str::to_owned),
    }
}

/// A route as people write it. An event type may hold a slash, an aggregate type in front of it may not.
pub(crate) fn route(text: &str) -> Result<Route, String> {
    if text == Route::ANY {
        return Err("it has no aggregate type, so it would mean events without one alone; write */* for every route".to_owned());
    }
    let (aggregate_type, event_type) = text.split_once('/').unwrap_or((AggregateType::GLOBAL, text));
    route_or_pattern(aggregate_type, event_type)
}

/// A route or a pattern of routes. A `*` within a name would be taken for a letter of it, and match nothing.
pub(crate) fn route_or_pattern(aggregate_type: &str, event_type: &str) -> Result<Route, String> {
    let is_part = |name: &str| name != Route::ANY && name.contains(Route::ANY);
    if is_part(aggregate_type) || is_part(event_type) {
        let before = if is_part(aggregate_type) { Route::ANY } else { aggregate_type };
        return Err(format!("`*` stands for a whole name; write {before}/* or the full name"));
    }
    Route::new(aggregate_type, event_type).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(route: Option<&str>, event_type: Option<&str>, aggregate_type: Option<&str>) -> [Option<String>; 2] {
        let route = route.map(|text| super::route(text).unwrap());
        let names =
            Names { route, event_type: event_type.map(str::to_owned), aggregate_type: aggregate_type.map(str::to_owned) };
        [names.aggregate_type(), names.event_type()]
    }

    #[test]
    fn a_route_is_written_with_or_without_its_aggregate_type() {
        assert_eq!(route("Order/OrderPlaced").unwrap(), Route::new("Order", "OrderPlaced").unwrap());
        assert_eq!(route("Heartbeat").unwrap(), Route::new(AggregateType::GLOBAL, "Heartbeat").unwrap());
        assert!(route("Order/").unwrap_err().contains("event_type is empty"));
        assert!(route("Order/*").unwrap().is_pattern() && route("*/*").unwrap().is_pattern());
    }

    #[test]
    fn a_star_that_would_match_nothing_is_refused() {
        for (text, part) in [
            ("Order/Ord*", "write Order/* or the full name"),
            ("Ord*/OrderPlaced", "write */* or the full name"),
            ("Order*", "`*` stands for a whole name"),
            ("*", "write */* for every route"),
        ] {
            let said = route(text).unwrap_err();
            assert!(said.contains(part), "{text}: {said}");
        }
    }

    #[test]
    fn a_route_stands_for_both_halves_and_a_star_for_any_name() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(names(Some("Order/OrderPlaced"), None, None), [some("Order"), some("OrderPlaced")]);
        assert_eq!(names(Some("Order/*"), None, None), [some("Order"), None]);
        assert_eq!(names(Some("*/OrderPlaced"), None, None), [None, some("OrderPlaced")]);
        assert_eq!(names(Some("Heartbeat"), None, None), [some(AggregateType::GLOBAL), some("Heartbeat")]);
        assert_eq!(names(None, Some("OrderPlaced"), None), [None, some("OrderPlaced")]);
        assert_eq!(names(None, None, None), [None, None]);
    }
}
