use outbox::store::Severity;

use super::*;
use crate::config::of_text;

/// What is wrong with a file and what to do about it, by the configuration itself, which then does not start, or by
/// `outbox doctor`.
fn told(file: &str) -> Vec<String> {
    match of_text(file) {
        Err(faults) => faults,
        Ok((config, layers)) => {
            let findings = advice(&config, &config.plugins.manifests, &|key| layers.is_set(key));
            findings.into_iter().map(|finding| format!("{} → {}", finding.found, finding.fix.unwrap_or_default())).collect()
        }
    }
}

/// A file, a part of what is found, and a part of its fix.
const MISCONFIGURATIONS: [(&str, &str, &str); 49] = [
    // What the configuration refuses.
    ("[dispatcher]\nworkres = 4", "dispatcher.workres is not a setting", "did you mean dispatcher.workers?"),
    ("mode = \"ordred\"", "it is `ordred`, but must be `single_node`", "did you mean `ordered`?"),
    ("[dispatcher]\nworkers = 0", "dispatcher.workers is 0", "at least 1"),
    ("[dispatcher]\nmax_attempts = 0", "dispatcher.max_attempts is 0", "at least 1"),
    ("[dispatcher]\nlease = \"10ms\"\ndeadline = \"1ms\"", "dispatcher.lease is 10ms", "at least 1s"),
    ("[dispatcher]\ndeadline = \"1m\"", "dispatcher.deadline (60s) is not below dispatcher.lease (30s)", "outlive its claim"),
    ("[dispatcher]\ndeadline = \"0s\"", "dispatcher.deadline is 0", "above zero"),
    ("[dispatcher]\nlease = \"soon\"", "`soon` is not a duration", "write it like \"30s\""),
    ("[dispatcher]\nqueue_bytes = \"many\"", "`many` is not a size", "write it like \"64MiB\""),
    ("[poller]\ninterval = \"0s\"", "poller.interval is 0", "above zero"),
    ("[poller]\nbatch_size = 0", "poller.batch_size is 0", "at least 1"),
    ("[retry]\nbase = \"10m\"", "retry.max is below retry.base", "make it at least as long"),
    ("[plugins.mailer.retry]\nbase = \"5s\"\nmax = \"1s\"", "retry.max is below retry.base", "make it at least as long"),
    ("[sinks.a]\nkind = \"stdout\"\nurl = \"x\"", "there is no such field", "leave it out"),
    ("[breaker]\nwindow = 4", "breaker.threshold (10) is above breaker.window (4)", "could ever reach it"),
    (
        "[purge]\nundelivered_retention = \"1d\"",
        "purge.undelivered_retention is set, but the mode is single_node",
        "writer_only",
    ),
    ("mode = \"ordered\"\n[dispatcher]\nworkers = 8", "dispatcher.workers is set, but in the mode ordered", "leave it out"),
    ("[database]\nurl = \"outbox.db\"", "which is not a database address", "write it like sqlite:outbox.db"),
    ("[database]\nurl = \"sqlite::memory:\"", "would lose its events", "name a file"),
    ("[database]\nurl = \"postgres://app:a/b@db/shop\"", "database.url: ", "set database.password"),
    ("[database]\nurl = \"mysql://db\"", "database.url: ", "name a database after the host"),
    ("[database]\nmax_connections = 8", "database.max_connections is set, but a SQLite file", "remove it"),
    ("[database]\nurl = \"postgres://db/shop\"\nmax_connections = 2", "database.max_connections is 2", "need at least 4"),
    ("[database]\nschema = \"app\"", "SQLite has no schemas", "remove it"),
    ("[database]\nuser = \"app\"", "database.user is set, but database.url is a SQLite file", "database.url = \"postgres:\""),
    ("[database]\nurl = \"mysql://app@db/shop\"\nuser = \"app\"", "database.user is set, but database.url has one", "keep one"),
    ("[plugins]\nmemory = 0", "plugins.memory is 0", "above zero"),
    ("[plugins.compile_limits]\nmemory = \"1MiB\"", "plugins.compile_limits.memory is 1MiB", "at least 512MiB"),
    (
        "[sinks.a]\nkind = \"nats\"\nurl = \"nats://a\"\ntimeout = \"1m\"\n[routes.\"*/*\"]\nsink = \"a\"",
        "sinks.a.timeout is 60s",
        "must be less than dispatcher.lease",
    ),
    ("[routes.\"Order/*\"]\nsink = \"a\"", "routes.\"Order/*\".sink is `a`", "there are no sinks"),
    ("[log]\nlevel = \"loud\"", "log.level is `loud`", "write error, warn, info"),
    // What is valid, and does not do what somebody wants.
    ("[database]\nbusy_timeout = \"15s\"", "database.busy_timeout (15s) is not below a third", "lower database.busy_timeout"),
    ("[dispatcher]\nsettle_delay = \"10s\"", "dispatcher.settle_delay (10s)", "lower dispatcher.settle_delay"),
    ("[poller]\ninterval = \"10m\"", "poller.interval is 600s", "lower poller.interval"),
    ("[poller]\nskip_recent = \"1m\"", "poller.skip_recent is 60s", "lower poller.skip_recent"),
    ("[retry]\nbase = \"0s\"", "retry.base is 0", "at least 100ms"),
    ("[dispatcher]\nmax_attempts = 1", "dead after its first failure", "raise dispatcher.max_attempts"),
    ("[retry]\npolicy = \"fixed\"\nmax = \"20m\"", "retry.max is set, but retry.policy is fixed", "remove retry.max"),
    (
        "[poller]\nbatch_size = 200\ndrain_batch_size = 100",
        "poller.drain_batch_size (100) is below poller.batch_size (200)",
        "raise poller.drain_batch_size",
    ),
    ("[purge]\nenabled = false", "the table grows without a limit", "set purge.enabled = true"),
    ("[purge]\ndead_retention = \"1d\"", "purge.dead_retention (1day) is shorter", "raise purge.dead_retention"),
    ("[dispatcher]\nqueue_bytes = \"64KiB\"", "dispatcher.queue_bytes is 64KiB", "raise dispatcher.queue_bytes"),
    (
        "[dispatcher]\ncold_queue = 100",
        "dispatcher.cold_queue (100) is below poller.drain_batch_size (500)",
        "raise dispatcher.cold_queue",
    ),
    ("[order]\non_dead = \"skip\"", "order.on_dead is set, but the mode is single_node", "set mode = \"ordered_by_aggregate\""),
    ("mode = \"multi_node\"", "which only the programs of this machine can share", "choose PostgreSQL or MySQL"),
    (
        "[plugins.mailer.limits]\ndeadline = \"1m\"",
        "plugins.mailer.limits.deadline (60s) is not below dispatcher.lease",
        "lower the deadline",
    ),
    (
        "[plugins]\nmemory = \"32MiB\"\n[plugins.mailer.limits]\nmemory = \"64MiB\"",
        "is above plugins.memory (32MiB)",
        "raise plugins.memory",
    ),
    ("[plugins.mailer.retry]\nbase = \"0s\"\nmax = \"0s\"", "plugins.mailer.retry.base is 0", "at least 100ms"),
    (
        "[plugins.mailer.limits]\nconcurrency = 999",
        "concurrency (999) is above dispatcher.workers (256)",
        "raise dispatcher.workers",
    ),
];

#[test]
fn every_misconfiguration_is_found_with_its_fix() {
    let mut missed = Vec::new();
    for (file, found, fix) in MISCONFIGURATIONS {
        let told = told(file);
        if !told.iter().any(|one| one.contains(found) && one.contains(fix)) {
            missed.push(format!("{file}\n  should tell `{found}` and `{fix}`, not {told:#?}"));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn what_is_right_is_not_complained_about() {
    for file in [
        "",
        "mode = \"ordered_by_aggregate\"\n[order]\non_dead = \"skip\"\n[database]\nurl = \"postgres://db/shop\"\n",
        "mode = \"ordered\"\n",
        "[plugins.mailer.limits]\ndeadline = \"29s\"\nmemory = \"256MiB\"\nconcurrency = 256\n",
        "[purge]\non_done = \"delete\"\nenabled = false\n",
        "[plugins.mailer.retry]\nbase = \"5m\"\nmax = \"10m\"\n",
    ] {
        assert_eq!(told(file), [""; 0], "{file}");
    }
}

#[test]
fn advice_is_a_warning_and_has_a_fix() {
    let (config, layers) = of_text("[dispatcher]\nmax_attempts = 1\n").unwrap();
    let findings = advice(&config, &BTreeMap::new(), &|key| layers.is_set(key));
    assert!(findings.iter().all(|finding| finding.severity == Severity::Warning && finding.fix.is_some()), "{findings:?}");
    assert_eq!(findings.len(), 1);
}

#[test]
fn the_manifest_beside_a_component_is_looked_at_like_a_section() {
    let (config, layers) = of_text("").unwrap();
    let written = "limits.deadline = '30s'\nretry = { base = '0s', max_attempts = 3 }";
    let manifests = BTreeMap::from([("mailer".to_owned(), toml::from_str::<Manifest>(written).unwrap())]);

    let findings = advice(&config, &manifests, &|key| layers.is_set(key));

    let said: Vec<&str> = findings.iter().map(|finding| finding.found.as_str()).collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].starts_with("limits.deadline of mailer.toml (30s) is not below dispatcher.lease (30s)"), "{said:?}");
    assert!(
        said[1].starts_with("retry.base of mailer.toml is 0: an event that fails uses up its 3 attempts at once"),
        "{said:?}"
    );
}
