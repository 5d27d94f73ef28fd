//! The routes: which have a listener, which are paused, what waits for them.

use maud::{Markup, html};

use super::layout::Frame;
use super::link::query;
use super::told;
use super::words::{number, visible, when};
use crate::event::Route;
use crate::store::RouteRecord;

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
                                (state(known))
                                @if let Some(at) = known.paused_at { " " small.quiet { (when(at, now)) @if let Some(by) = &known.paused_by { " by " (visible(by)) } @if let Some(why) = &known.pause_reason { ": " (visible(why)) } } }
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

fn state(known: &RouteRecord) -> Markup {
    let (class, shape, word) = if known.paused_at.is_some() {
        ("parked", "‖", "paused")
    } else if known.first_seen_at.is_some() {
        ("done", "●", "known")
    } else {
        ("waiting", "○", "no listener")
    };
    html! { span.state.(class) { span aria-hidden="true" { (shape) } " " (word) } }
}
