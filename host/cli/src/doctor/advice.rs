//! Settings that are valid one by one, and do not go together or surely do not do what somebody wants. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use outbox::Mode;
use outbox::event::MAX_PAYLOAD_BYTES;
use outbox::purge::OnDone;
use outbox::store::Finding;
use outbox::units::ByteSize;
use outbox::wasm::Manifest;

use crate::config::{Config, Kind, Policy};

/// A host that looks at the table less often leaves the events of other programs waiting for longer than people expect.
const SELDOM: Duration = Duration::from_secs(60);
/// A lease is renewed at a third of it.
const RENEWALS: u32 = 3;

/// The check that these findings belong to.
const CHECK: &str = "settings";

/// What to change, with the reason. `manifests` are those of all plugins, by name; `is_set` tells which keys somebody set.
pub(crate) fn advice(config: &Config, manifests: &BTreeMap<String, Manifest>, is_set: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut warn = |found: String, fix: &str| findings.push(Finding::warning(CHECK, found, fix));
    spans(config, &mut warn);
    retries(config, is_set, &mut warn);
    rows(config, &mut warn);
    modes(config, is_set, &mut warn);
    plugins(config, manifests, &mut warn);
    findings
}

/// Spans that must stay below the lease, or the host could lose what it holds.
fn spans(config: &Config, warn: &mut impl FnMut(String, &str)) {
    let lease = config.dispatcher.lease;
    if config.database.url.starts_with("sqlite:") && config.database.busy_timeout >= lease / RENEWALS {
        let wait = config.database.busy_timeout;
        warn(
            format!(
                "database.busy_timeout ({wait:?}) is not below a third of dispatcher.lease ({lease:?}): a claim could end while its renewal waits for the file"
            ),
            "lower database.busy_timeout, or raise dispatcher.lease",
        );
    }
    if config.dispatcher.settle_delay >= lease / RENEWALS {
        let delay = config.dispatcher.settle_delay;
        warn(
            format!(
                "dispatcher.settle_delay ({delay:?}) is not below a third of dispatcher.lease ({lease:?}): outcomes are \
                 written late, and events are delivered twice"
            ),
            "lower dispatcher.settle_delay; a few milliseconds are enough to write outcomes together",
        );
    }
    if config.poller.interval > SELDOM {
        let interval = config.poller.interval;
        warn(
            format!(
                "poller.interval is {interval:?}: events that another program writes wait for this time, and so do events \
                 that a killed host held"
            ),
            "lower poller.interval; an idle poll costs little",
        );
    }
    if config.poller.skip_recent >= lease {
        let skipped = config.poller.skip_recent;
        warn(
            format!("poller.skip_recent is {skipped:?}: events that another program writes are delivered only after this time"),
            "lower poller.skip_recent; 0s is right unless hosts compete for events that their writers deliver themselves",
        );
    }
}

fn retries(config: &Config, is_set: &dyn Fn(&str) -> bool, warn: &mut impl FnMut(String, &str)) {
    let attempts = config.dispatcher.max_attempts;
    if config.retry.base.is_zero() && config.mode != Mode::Ordered {
        at_once("retry.base", attempts, warn);
    }
    if attempts == 1 && config.mode != Mode::Ordered {
        warn(
            "dispatcher.max_attempts is 1: an event is dead after its first failure".to_owned(),
            "raise dispatcher.max_attempts; 10 is the default",
        );
    }
    let constant = match config.retry.policy {
        Policy::Exponential => None,
        Policy::Fixed => Some("fixed"),
        Policy::Jittered => Some("jittered"),
    };
    if let Some(policy) = constant.filter(|_| is_set("retry.max")) {
        warn(
            format!("retry.max is set, but retry.policy is {policy}, whose delay does not grow: retry.max has no effect"),
            "remove retry.max, or set retry.policy = \"exponential\"",
        );
    }
    if matches!(config.retry.policy, Policy::Fixed) && config.retry.base > Duration::from_secs(24 * 3_600) {
        let base = config.retry.base;
        warn(
            format!("retry.policy is fixed, and retry.base is {base:?}: a failed event waits for more than a day"),
            "lower retry.base, or set retry.policy = \"exponential\"",
        );
    }
}

/// Attempts without a rest between them.
fn at_once(key: &str, attempts: u32, warn: &mut impl FnMut(String, &str)) {
    warn(
        format!(
            "{key} is 0: an event that fails uses up its {attempts} attempts at once, and is dead before anything can recover"
        ),
        &format!("set {key} to at least 100ms"),
    );
}

fn rows(config: &Config, warn: &mut impl FnMut(String, &str)) {
    let purge = &config.purge;
    let is_purged = purge.enabled && purge.retention < Duration::from_secs(10 * 365 * 24 * 3_600);
    if config.mode != Mode::WriterOnly && purge.on_done == OnDone::Keep && !is_purged {
        warn(
            "purge.enabled is false or purge.retention is longer than ten years, and delivered events are kept: the table \
             grows without a limit"
                .to_owned(),
            "set purge.enabled = true and a purge.retention, or purge.on_done = \"delete\", or schedule `outbox purge`",
        );
    }
    if let Some(dead) = purge.dead_retention.filter(|dead| *dead < purge.retention && purge.on_done == OnDone::Keep) {
        let done = purge.retention;
        warn(
            format!(
                "purge.dead_retention ({}) is shorter than purge.retention ({}): dead events are deleted before delivered ones",
                humantime::format_duration(dead),
                humantime::format_duration(done)
            ),
            "raise purge.dead_retention, so that people have time to look at dead events",
        );
    }
    let bytes = config.dispatcher.queue_bytes;
    if bytes < ByteSize(MAX_PAYLOAD_BYTES as u64) {
        warn(
            format!(
                "dispatcher.queue_bytes is {bytes}, below the largest payload ({}): such events are delivered one at a time",
                ByteSize(MAX_PAYLOAD_BYTES as u64)
            ),
            "raise dispatcher.queue_bytes to a few MiB",
        );
    }
    let (first, drain) = (config.poller.batch_size, config.poller.drain_batch_size);
    if drain < first {
        warn(
            format!(
                "poller.drain_batch_size ({drain}) is below poller.batch_size ({first}): the polls that drain a backlog read fewer \
                 events than the first one"
            ),
            "raise poller.drain_batch_size, or lower poller.batch_size",
        );
    }
    let (queue, batch) = (config.dispatcher.cold_queue, config.poller.drain_batch_size);
    if u32::try_from(queue).is_ok_and(|queue| queue < batch) {
        warn(
            format!(
                "dispatcher.cold_queue ({queue}) is below poller.drain_batch_size ({batch}): no batch is ever read \
                 completely"
            ),
            "raise dispatcher.cold_queue, or lower poller.drain_batch_size",
        );
    }
}

/// Settings without an effect in this mode, and modes that do not fit the database.
fn modes(config: &Config, is_set: &dyn Fn(&str) -> bool, warn: &mut impl FnMut(String, &str)) {
    let mode = config.mode.as_str();
    for key in ["order.stop_on_first_failure", "order.on_dead"] {
        if is_set(key) && config.mode != Mode::OrderedByAggregate {
            warn(
                format!("{key} is set, but the mode is {mode}, which keeps no order of aggregates"),
                "set mode = \"ordered_by_aggregate\", or remove it",
            );
        }
    }
    if config.mode == Mode::WriterOnly {
        for key in ["dispatcher.workers", "poller.interval"] {
            if is_set(key) {
                warn(
                    format!("{key} is set, but the mode is writer_only, which delivers nothing"),
                    "choose another mode, or remove it",
                );
            }
        }
    }
    if !config.order.stop_on_first_failure && is_set("order.on_dead") {
        warn(
            "order.on_dead is set, but order.stop_on_first_failure is false: later events never wait for a dead one".to_owned(),
            "set order.stop_on_first_failure = true, or remove order.on_dead",
        );
    }
    if Kind::of(&config.database.url) == Some(Kind::Sqlite) && config.mode == Mode::MultiNode {
        warn(
            "the mode is multi_node, but the database is a SQLite file, which only the programs of this machine can share"
                .to_owned(),
            "choose PostgreSQL or MySQL for hosts on several machines; for one host set mode = \"single_node\"",
        );
    }
}

fn plugins(config: &Config, manifests: &BTreeMap<String, Manifest>, warn: &mut impl FnMut(String, &str)) {
    let (lease, workers, all) = (config.dispatcher.lease, config.dispatcher.workers, config.plugins.memory);
    if config.plugins.debounce >= config.plugins.rescan_interval {
        warn(
            format!(
                "plugins.debounce ({:?}) is not below plugins.rescan_interval ({:?})",
                config.plugins.debounce, config.plugins.rescan_interval
            ),
            "lower plugins.debounce to less than a second",
        );
    }
    for (name, manifest) in manifests {
        let is_section = config.plugins.manifests.contains_key(name);
        let key = |key: &str| if is_section { format!("plugins.{name}.{key}") } else { format!("{key} of {name}.toml") };
        let limits = &manifest.limits;
        if limits.deadline >= lease {
            warn(
                format!(
                    "{} ({:?}) is not below dispatcher.lease ({lease:?}): when the database cannot be reached, another host may call the plugin while this call still runs",
                    key("limits.deadline"),
                    limits.deadline
                ),
                "lower the deadline, or raise dispatcher.lease",
            );
        }
        if limits.memory > all {
            warn(
                format!(
                    "{} ({}) is above plugins.memory ({all}), which all plugins share: its calls never get that much memory",
                    key("limits.memory"),
                    limits.memory
                ),
                "raise plugins.memory, or lower the limit",
            );
        }
        if let Some(concurrency) = limits.concurrency.filter(|most| *most > workers) {
            warn(
                format!(
                    "{} ({concurrency}) is above dispatcher.workers ({workers}): that many calls never run at once",
                    key("limits.concurrency")
                ),
                "lower the limit, or raise dispatcher.workers",
            );
        }
        if let Some(retry) = manifest.retry.filter(|retry| retry.base.is_zero() && config.mode != Mode::Ordered) {
            at_once(&key("retry.base"), retry.max_attempts.unwrap_or(config.dispatcher.max_attempts), warn);
        }
    }
}

#[cfg(test)]
mod tests;
