//! The plugins of all live hosts.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::layout::Frame;
use super::told::{self, Plugin};
use super::words::{number, span, visible};
use crate::metrics::CallCounts;
use crate::units::size;

/// `calls` is what the calls of each plugin cost on this host since it started.
pub(super) fn page(frame: &Frame, calls: &BTreeMap<String, CallCounts>) -> Markup {
    let plugins = frame.seen.look.as_ref().map(|look| told::of_all(&look.nodes)).unwrap_or_default();
    let failed = plugins.iter().filter(|plugin| plugin.told.error.is_some());
    let serving = plugins.iter().filter(|plugin| plugin.told.error.is_none());
    html! {
        h1 { "Plugins" }
        @if plugins.is_empty() {
            p { "No live host tells of plugins. Copy a component into the plugins directory as " code { "NAME.wasm" } ", or make one: " code.all { "outbox plugin new NAME --lang rust" } }
        }
        @for plugin in failed.chain(serving) { (one(plugin, calls.get(&plugin.told.name))) }
        @if !plugins.is_empty() {
            p.quiet { "What a plugin asks for and is granted: " code { "outbox plugin check FILE" } ". The version before: " code { "outbox plugin rollback NAME" } }
        }
    }
}

fn one(plugin: &Plugin, calls: Option<&CallCounts>) -> Markup {
    let told = &plugin.told;
    let (class, shape) = told.state.look();
    html! {
        section.plugin {
            h2 {
                span.mono { (visible(&told.name)) " " (visible(told.version.as_deref().unwrap_or_default())) } " "
                span.state.(class) { span aria-hidden="true" { (shape) } " " (told.state.word()) }
            }
            @if let Some(error) = &told.error { pre.error { (visible(error)) } }
            dl.facts {
                dt { "Digest" } dd.mono { span.all title=[told.digest.as_deref()] { (told.short_digest()) } }
                dt { "Routes" } dd.mono {
                    @for (index, route) in told.routes.iter().take(20).enumerate() { @if index > 0 { ", " } (visible(&route.to_string())) }
                    @let more = told.routes.len().saturating_sub(20) + told.more_routes;
                    @if more > 0 { " and " (number(more as u64)) " more" }
                    @if told.routes.is_empty() && more == 0 { "–" }
                }
                dt { "On" } dd { (visible(&plugin.hosts.join(", "))) }
                @if let Some(calls) = calls.filter(|calls| calls.calls > 0) {
                    dt { "Calls" } dd {
                        (number(calls.calls)) " on this host since it started; on average "
                        (span(calls.took / u32::try_from(calls.calls).unwrap_or(u32::MAX))) " and " (number(calls.fuel_used / calls.calls)) " fuel; at most "
                        (size(calls.memory_peak_bytes)) " of memory"
                    }
                }
            }
        }
    }
}
