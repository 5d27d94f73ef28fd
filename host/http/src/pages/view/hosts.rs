//! The hosts that share the table.

use maud::{Markup, html};
use outbox_event::time::Timestamp;
use outbox_event::units::{figure, number};
use outbox_store::NodeRecord;

use super::paging::Paging;
use crate::pages::asked::fields::Fields;
use crate::pages::document::Frame;
use crate::pages::words::{short, visible, when};

/// Rows of a page.
const ROWS: usize = 100;

/// What only this host knows of itself.
#[derive(Debug)]
pub(crate) struct Own {
    pub(crate) owner: String,
    /// Events in its queues: hot, cold.
    pub(crate) queued: (usize, usize),
    /// Events that it holds.
    pub(crate) in_flight: usize,
    /// Since it started: outcomes that were fenced off, leases that were lost, statements that failed.
    pub(crate) fenced: u64,
    pub(crate) leases_lost: u64,
    pub(crate) db_errors: u64,
}

pub(crate) fn page(frame: &Frame, own: &Own, asked: &Fields) -> Markup {
    let nodes: &[NodeRecord] = frame.known.snapshot.as_ref().map_or(&[], |snapshot| &snapshot.nodes);
    let paging = Paging::of(asked, ROWS, nodes.len());
    let now = frame.known.now();
    html! {
        h1 { "Hosts" }
        @if frame.known.outage.is_some() || nodes.iter().any(|node| node.alive) {
            p.quiet { "A host is gone once its session has ended or its lease was not renewed in time; other hosts then take over its events. It stays listed for a day; hosts that were stopped are not listed." }
        } @else {
            p { "No host is alive. Start one in the directory of its configuration: " code.all { "outbox run" } }
        }
        @if !nodes.is_empty() {
            table.rows {
                thead { tr { th scope="col" { "Host" } th scope="col" { "State" } th scope="col" { "Mode" } th scope="col" { "Version" } th scope="col" { "Started" } th scope="col" { "Alive until" } th.number scope="col" { "Partitions" } } }
                tbody {
                    @for node in paging.slice(nodes) {
                        tr {
                            td.first { span.mono { (visible(&node.label)) } @if node.owner == own.owner { " " span.quiet { "(this one)" } } }
                            td.tight {
                                @if node.stands_aside() { span.state.retry { span aria-hidden="true" { "!" } " aside" } }
                                @else if node.alive { span.state.done { span aria-hidden="true" { "●" } " alive" } }
                                @else { span.state.retry { span aria-hidden="true" { "!" } " gone" } }
                            }
                            td { (visible(&node.mode.replace('_', " "))) }
                            td.mono { (visible(&node.version)) }
                            td.tight data-name="started" { (when(node.started_at, now)) }
                            td.tight data-name="alive until" { (when(node.alive_until, now)) }
                            td.number data-name="partitions" { (number(node.partitions.into())) }
                        }
                    }
                }
            }
            (paging.show(frame, "hosts", &[]))
            (stalled(nodes, now))
        }
        h2 { "This host" }
        (this_host(frame, own))
    }
}

/// The routes that hosts cannot deliver.
fn stalled(nodes: &[NodeRecord], now: Timestamp) -> Markup {
    let all = || nodes.iter().flat_map(|node| node.listeners.stalled.iter().map(move |stalled| (node, stalled)));
    html! {
        @if all().next().is_some() {
            h2 { "What hosts cannot deliver" }
            p.quiet { "A host gives these events back: the sink is down there, the breaker of the listener is open, or the host cannot read the table or store outcomes. It stands aside while another host reports less trouble." }
            table.rows {
                thead { tr { th scope="col" { "Host" } th scope="col" { "Route" } th scope="col" { "Listener" } th scope="col" { "Since" } th scope="col" { "Why" } } }
                tbody {
                    @for (node, stalled) in all().take(ROWS) {
                        tr {
                            td.first.mono.tight { (visible(&node.label)) }
                            td.mono.tight { @if stalled.is_all() { "all" } @else { (visible(&short(&stalled.route, 80))) } }
                            td { (visible(&short(&stalled.listener, 80))) }
                            td.tight data-name="since" { (when(stalled.since, now)) }
                            td { (visible(&short(&stalled.reason, 200))) }
                        }
                    }
                }
            }
        }
    }
}

/// The part of the page that is updated while it is open.
pub(crate) fn this_host(frame: &Frame, own: &Own) -> Markup {
    let facts = html! {
        dl.facts {
            dt { "Owner" } dd.mono.all { (visible(&own.owner)) }
            dt { "Delivery rate" } dd { (frame.rate.map_or_else(|| "–".to_owned(), figure)) " events a second" }
            dt { "In flight" } dd { (number(own.in_flight as u64)) (if own.in_flight == 1 { " event" } else { " events" }) }
            dt { "Queued" } dd { (number(own.queued.0 as u64)) " hot, " (number(own.queued.1 as u64)) " cold" }
            dt { "Since it started" } dd { (number(own.leases_lost)) " leases lost, " (number(own.fenced)) " outcomes reported too late, " (number(own.db_errors)) " failed database statements" }
        }
    };
    frame.live("own", &facts)
}
