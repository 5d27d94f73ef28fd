//! The routes: which have a listener, which are paused, what waits for them.

use maud::{Markup, html};

use super::layout::Frame;
use super::link::query;
use super::told;
use super::words::{number, visible, when};
use crate::event::Route;
use crate::store::RouteRecord;
use crate::why::holding;

/// `here` are the routes that this host has a listener for.
pub(super) fn page(frame: &Frame, here: &[Route]) -> Markup {
    let Some(look) = &frame.seen.look else { return html! { h1 { "Routes" } } };
    let now = frame.seen.now();
    let plugins = told::of_all(&look.nodes);
    let answers = |route: &Route| plugins.iter().find(|plugin| plugin.told.routes.contains(route));
    html! {
        h1 { "Routes" }
        @if look.routes.is_empty() {
            p { "No routes yet: a route appears with its first listener or its first event." }
        } @else {
            table.rows {
                thead { tr { th scope="col" { "Route" } th scope="col" { "State" } th scope="col" { "Listener" } @for name in ["Waiting", "Parked", "Blocked", "Dead"] { th.number scope="col" { (name) } } th scope="col" { span.unseen { "Actions" } } } }
                tbody {
                    @for known in &look.routes {
                        @let pair = query(&[("aggregate_type", known.route.aggregate_type.as_str()), ("event_type", known.route.event_type.as_str())]);
                        tr {
                            td.first.mono { a.row href=(frame.to(&format!("events?{pair}"))) { (visible(&known.route.to_string())) } }
                            td {
                                @let pause = holding(&known.route, &look.routes).into_iter().next();
                                (state(known, pause))
                                @if let Some((pause, at)) = pause.and_then(|pause| Some((pause, pause.paused_at?))) {
                                    " " small.quiet {
                                        @if pause.route != known.route { "by the pattern " span.mono { (visible(&pause.route.to_string())) } ", " }
                                        (when(at, now)) @if let Some(by) = &pause.paused_by { " by " (visible(by)) } @if let Some(why) = &pause.pause_reason { ": " (visible(why)) }
                                    }
                                }
                            }
                            td.mono { @match answers(&known.route) {
                                Some(plugin) => { (visible(&plugin.told.name)) " " (visible(plugin.told.version.as_deref().unwrap_or_default())) },
                                None if here.contains(&known.route) => "native or sink",
                                None => span.quiet { @if known.first_seen_at.is_some() { "none on this host" } @else { "none" } },
                            } }
                            @for (name, class, count) in [("waiting", "", known.waiting), ("parked", "parked", known.parked), ("blocked", "blocked", known.blocked), ("dead", "dead", known.dead)] {
                                @let class = if count == 0 { "zero" } else { class };
                                td.number data-name=(name) { span.(class) { (number(count)) } }
                            }
                            td.tight {
                                @if frame.may_act {
                                    @let action = if known.paused_at.is_some() { "resume" } else { "pause" };
                                    a href=(frame.to(&format!("routes/{action}?{pair}"))) { (if known.paused_at.is_some() { "Resume" } else { "Pause" }) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Whether a route is open; `pause` is what holds it, its own or that of a pattern.
fn state(known: &RouteRecord, pause: Option<&RouteRecord>) -> Markup {
    let (class, shape, word) = if pause.is_some() {
        ("parked", "‖", "paused")
    } else if known.first_seen_at.is_some() {
        ("done", "●", "known")
    } else {
        ("waiting", "○", "no listener")
    };
    html! { span.state.(class) { span aria-hidden="true" { (shape) } " " (word) } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::pages::fake::{frame, route};

    #[test]
    fn a_route_that_a_pattern_holds_is_paused_and_names_the_pattern() {
        let mut frame = frame();
        let mut look = crate::http::pages::look::Look::made_up(frame.seen.now());
        let pattern = RouteRecord { paused_at: Some(look.at), paused_by: Some("ada".to_owned()), ..route("Order", "*") };
        look.routes = vec![pattern, route("Order", "Paid"), route("User", "Seen")];
        frame.seen.look = Some(std::sync::Arc::new(look));

        let text = page(&frame, &[]).into_string();

        let row = |name: &str| text.split("<tr>").find(|row| row.contains(name)).expect("a row").to_owned();
        assert!(row("Order/Paid").contains("paused") && row("Order/Paid").contains("by the pattern"), "{text}");
        assert!(row("Order/Paid").contains("routes/pause?"), "its own pause is another: {text}");
        assert!(!row("User/Seen").contains("paused"), "{text}");
    }
}
