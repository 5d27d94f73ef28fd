//! The plugins of all live hosts.

use std::collections::BTreeMap;
use std::time::Duration;

use maud::{Markup, html};
use outbox_event::time::Timestamp;
use outbox_event::units::{count, number, size, span};
use outbox_event::{PluginCapability, PluginLimits, PluginSwap};
use outbox_listener::CallCounts;

use super::paging::Paging;
use crate::pages::asked::fields::Fields;
use crate::pages::document::Frame;
use crate::pages::known::plugins::{self, LivePlugin};
use crate::pages::words::{is_word, visible, when};

/// Plugins of a page.
const AT_ONCE: usize = 20;
/// Hosts that are named for one plugin.
const HOSTS: usize = 10;
/// Part of a limit from which its use is worth a warning.
const CLOSE: f64 = 0.8;

/// `calls` is what the calls of each plugin cost on this host since it started.
pub(crate) fn page(frame: &Frame, plugins: &[LivePlugin], calls: &BTreeMap<String, CallCounts>, asked: &Fields) -> Markup {
    let failed = plugins.iter().filter(|served| served.plugin.error.is_some());
    let serving = plugins.iter().filter(|served| served.plugin.error.is_none());
    let sorted: Vec<&LivePlugin> = failed.chain(serving).collect();
    let paging = Paging::of(asked, AT_ONCE, sorted.len());
    let now = frame.known.now();
    html! {
        h1 { "Plugins" }
        @if plugins.is_empty() {
            p { "No live host has plugins. Copy a component into the plugins directory as " code { "NAME.wasm" } ", or create one: " code.all { "outbox plugin new NAME --lang rust" } }
        }
        @for served in paging.slice(&sorted) { (one(served, calls.get(&served.plugin.name), now)) }
        (paging.show(frame, "plugins", &[]))
    }
}

fn one(served: &LivePlugin, calls: Option<&CallCounts>, now: Timestamp) -> Markup {
    let LivePlugin { plugin, hosts } = served;
    let details = &plugin.details;
    let calls = calls.filter(|calls| calls.calls > 0);
    let (class, shape) = plugins::badge(plugin.state);
    html! {
        section.plugin {
            h2 {
                span.mono { (visible(&plugin.name)) " " (visible(plugin.version.as_deref().unwrap_or_default())) } " "
                span.state.(class) { span aria-hidden="true" { (shape) } " " (plugin.state.word()) }
            }
            @if let Some(error) = &plugin.error { pre.error tabindex="0" { (visible(error)) } }
            @if let Some(pending) = &details.pending { p { (visible(pending)) } }
            dl.facts {
                dt { "Digest" } dd.mono { span.all title=[plugin.digest.as_deref()] { (plugin.short_digest().unwrap_or("–")) } }
                dt { "Routes" } dd.mono {
                    @for (index, route) in plugin.routes.iter().take(20).enumerate() { @if index > 0 { ", " } (visible(&route.to_string())) }
                    @let more = plugin.routes.len().saturating_sub(20).saturating_add(plugin.more_routes);
                    @if more > 0 { " and " (number(more as u64)) " more" }
                    @if plugin.routes.is_empty() && more == 0 { "–" }
                }
                dt { "Hosts" } dd {
                    (visible(&hosts[..hosts.len().min(HOSTS)].join(", ")))
                    @if hosts.len() > HOSTS { " and " (count((hosts.len() - HOSTS) as u64, "other host")) }
                }
                @if let Some(calls) = calls {
                    dt { "Calls" } dd {
                        (number(calls.calls)) " on this host since it started; on average "
                        (span(calls.took / u32::try_from(calls.calls).unwrap_or(u32::MAX))) " and " (number(calls.fuel_used / calls.calls)) " fuel"
                    }
                }
            }
            @if !details.capabilities.is_empty() { (capabilities(&details.capabilities)) }
            @if let Some(limits) = &details.limits { (uses(limits, calls)) }
            @if !details.swaps.is_empty() { (swaps(&plugin.name, &details.swaps, now)) }
        }
    }
}

/// The capabilities that the plugin asks for and those that it is granted, and how to grant the others.
fn capabilities(all: &[PluginCapability]) -> Markup {
    html! {
        h3 { "Capabilities" }
        table.rows {
            thead { tr { th scope="col" { "Capability" } th scope="col" { "Asked for" } th scope="col" { "Granted" } th scope="col" { "How to grant it" } } }
            tbody {
                @for capability in all {
                    tr {
                        td.mono.first { (visible(&capability.name)) }
                        td.tight data-name="asked for" { (if capability.asked { "yes" } else { "no" }) }
                        td data-name="granted" {
                            @match &capability.granted {
                                Some(granted) => span.mono { (visible(granted)) },
                                None if capability.to_add.is_some() => span.state.retry { span aria-hidden="true" { "!" } " no" },
                                None => span.quiet { "none set" },
                            }
                        }
                        td.quiet { (visible(capability.to_add.as_deref().unwrap_or_default())) }
                    }
                }
            }
        }
    }
}

/// The limits of one call, and the most that a call has used.
fn uses(limits: &PluginLimits, calls: Option<&CallCounts>) -> Markup {
    let deadline = Duration::from_millis(limits.deadline_ms);
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let most = |of: fn(&CallCounts) -> u64| calls.map(of);
    let rows = [
        ("Fuel", limits.fuel, most(|calls| calls.fuel_peak), number as fn(u64) -> String),
        ("Time", nanos(deadline), calls.map(|calls| nanos(calls.longest)), |nanos| span(Duration::from_nanos(nanos))),
        ("Memory", limits.memory_bytes, most(|calls| calls.memory_peak_bytes), size),
        ("Host calls", limits.host_calls.into(), most(|calls| calls.host_calls_peak), number),
    ];
    html! {
        h3 { "Limits of one call" }
        table.rows.few {
            thead { tr { th scope="col" { "Limit" } th.number scope="col" { "Allowed" } th.number scope="col" { "Most used" } th scope="col" { "Share of limit" } } }
            tbody {
                @for (name, allowed, used, say) in rows {
                    tr {
                        td.first { (name) }
                        td.number data-name="allowed" { (say(allowed)) }
                        td.number data-name="most used" { (used.map_or_else(|| "–".to_owned(), say)) }
                        td.part { @if let Some(used) = used { (part(name, used, allowed)) } }
                    }
                }
            }
        }
        p.quiet {
            "“Most used” is the most that one call has used on this host since it started. "
            @match limits.concurrency {
                Some(calls) => { "At most " (number(calls as u64)) " calls run at once." },
                None => "At most half of the workers call the plugin at once.",
            }
        }
    }
}

/// A bar with its figure.
#[expect(clippy::cast_precision_loss, reason = "a bar")]
pub(crate) fn part(name: &str, used: u64, allowed: u64) -> Markup {
    let part = used as f64 / allowed.max(1) as f64;
    let percent = (part * 100.0).round();
    let is_close = part >= CLOSE;
    html! {
        meter.close[is_close] min="0" max="1" value=(format!("{:.3}", part.min(1.0))) aria-label=(format!("{name}: {percent} % of the limit")) {}
        " " span.figure.retry[is_close] { (percent) " %" }
    }
}

/// The history of the plugin's file.
fn swaps(name: &str, swaps: &[PluginSwap], now: Timestamp) -> Markup {
    // A file that failed to load never served.
    let mut served: Vec<_> = swaps.iter().filter(|swap| swap.version.is_some()).map(|swap| &swap.digest).collect();
    served.sort();
    served.dedup();
    html! {
        h3 { "File history" }
        ol.timeline {
            @for swap in swaps {
                li {
                    (when(swap.at, now)) " "
                    span.mono { (visible(swap.version.as_deref().unwrap_or_default())) " " (visible(swap.digest.as_deref().unwrap_or_default())) }
                    " " (visible(plugins::result(swap)))
                }
            }
        }
        p.quiet { "Since the host started, or since the file was added: if a file is deleted, its history is forgotten." @if is_word(name) && served.len() > 1 { " To go back to the previous version: " code.all { "outbox plugin rollback " (name) } } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollback_is_offered_only_where_another_file_has_served() {
        let now = Timestamp::from_micros(0);
        let swap = |result: &str, version: Option<&str>, digest: &str| PluginSwap {
            at: now,
            result: result.to_owned(),
            version: version.map(str::to_owned),
            digest: Some(digest.to_owned()),
            dropped: Vec::new(),
        };
        let text = |swaps_of: &[PluginSwap]| swaps("mailer", swaps_of, now).into_string();
        let (first, failed) = (swap("loaded", Some("1.0.0"), "ab"), swap("failed", None, "cd"));

        assert!(!text(&[failed.clone(), first.clone()]).contains("rollback"), "what failed was never served");
        assert!(!text(&[first.clone(), failed, first.clone()]).contains("rollback"), "the same file again");
        assert!(text(&[swap("swapped", Some("1.1.0"), "ef"), first]).contains("outbox plugin rollback mailer"));
    }
}
