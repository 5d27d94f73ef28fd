//! Starting a host from the configuration, and stopping it: what `run` and `dev` share.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use outbox::listener::{Exponential, Fixed, Jittered};
use outbox::{Mode, Outbox, OutboxBuilder, Store};
use outbox_http::Server;

use crate::config::{Config, Policy};
use crate::failure::{Exit, Failure};
use crate::output::{argument, shown};
use crate::plugins;
use crate::sinks;
use crate::stderr;
use crate::stop::Stop;
use crate::telemetry::Telemetry;

/// How long connections are waited for when everything else has ended. One may still be in a statement that a stop has left behind.
const CLOSING: Duration = Duration::from_secs(2);

/// A host as the configuration wants it, not yet started.
///
/// # Errors
/// If the sinks cannot be made.
pub(crate) fn builder(
    store: Arc<dyn Store>,
    config: &Config,
    telemetry: Option<&Telemetry>,
) -> Result<OutboxBuilder<Arc<dyn Store>>, Failure> {
    let sinks = sinks::connect(config)?;
    sinks::follow_files(config, &sinks);
    let builder = Outbox::single_node(store)
        .mode(config.mode)
        .dispatcher(config.dispatcher.clone())
        .poller(config.poller.clone())
        .order(config.order)
        .breaker(config.breaker)
        .purge(config.purge.clone())
        .metrics(config.metrics.clone())
        .sinks(sinks);
    let builder = telemetry.into_iter().fold(builder, |builder, telemetry| telemetry.attach(builder));
    let builder = if wants_plugins(config) { builder.plugins_config(plugins::settings(config)) } else { builder };
    let builder = config
        .relays()
        .into_iter()
        .fold(builder, |builder, (route, relay)| builder.relay((route.aggregate_type, route.event_type), relay));
    let retry = &config.retry;
    Ok(match retry.policy {
        Policy::Exponential => builder.retry(Exponential { base: retry.base, max: retry.max }),
        Policy::Fixed => builder.retry(Fixed(retry.base)),
        Policy::Jittered => builder.retry(Jittered(Fixed(retry.base))),
    })
}

/// Whoever only relays need not make an empty directory. One that was named must be there: it may be a volume that is not mounted.
pub(crate) fn wants_plugins(config: &Config) -> bool {
    let dir = &config.plugins.dir;
    config.routes.is_empty() || *dir != Config::default().plugins.dir || dir.exists()
}

/// Whether there is a plugins directory to load from.
///
/// # Errors
/// When it does not exist, or is a file.
pub(crate) fn check_plugins_dir(dir: &Path) -> Result<(), Failure> {
    if dir.is_dir() {
        return Ok(());
    }
    if dir.is_file() {
        let what = format!("{} is a file; --plugins and plugins.dir name the directory that plugins are in", dir.display());
        return Err(Failure::new(Exit::Config, what));
    }
    let what = format!("the plugins directory {} does not exist", dir.display());
    let fix = format!("create it: mkdir -p {}; or name another with --plugins DIR", argument(&dir.to_string_lossy()));
    Err(Failure::new(Exit::Config, what).details(vec![fix]))
}

/// What a host of this configuration would miss of its plugins; a machine on which it is only checked need not have them.
pub(crate) fn plugins_missing(config: &Config) -> Vec<String> {
    if !wants_plugins(config) || config.mode == Mode::WriterOnly {
        return Vec::new();
    }
    let dir = &config.plugins.dir;
    if !dir.is_dir() {
        let what = if dir.exists() { "is not a directory" } else { "does not exist" };
        return vec![format!("the plugins directory {} {what}, and `outbox run` does not start without it", dir.display())];
    }
    let is_absent = |name: &&String| !dir.join(format!("{name}.wasm")).exists();
    let absent = |name: &String| {
        format!(
            "plugins.required names {}, but {} holds no {0}.wasm, so a host does not become ready",
            shown(name),
            dir.display()
        )
    };
    let mut missing: Vec<String> = config.plugins.required.iter().filter(is_absent).map(absent).collect();
    if let Some(file) = &config.plugins.ca_file
        && let Err(error) = std::fs::File::open(file)
    {
        let file = file.display();
        missing
            .push(format!("plugins.ca_file {file} cannot be read, so no plugin with a grant for HTTP requests loads: {error}"));
    }
    missing
}

/// Drains the host; a second signal ends the program at once.
pub(crate) async fn shutdown(
    outbox: Outbox<Arc<dyn Store>>,
    server: Option<Server>,
    telemetry: Option<Telemetry>,
    mut stop: Stop,
    drain_timeout: Duration,
) {
    tracing::info!(
        in_flight = outbox.in_flight(),
        "stopping: finishing queued events, for at most {drain_timeout:?}; a second signal stops the host at once"
    );
    let counts = outbox.metrics().clone();
    let store = outbox.store().clone();
    let stopping = async {
        if let Some(server) = server {
            server.shutdown().await;
        }
        outbox.shutdown().await;
        if tokio::time::timeout(CLOSING, store.close()).await.is_err() {
            tracing::warn!("the database is still running a statement of this host; the program ends without its answer");
        }
        if let Some(telemetry) = telemetry {
            telemetry.shutdown().await;
        }
    };
    tokio::select! {
        () = stopping => {
            for (listener, calls) in counts.calls.counts() {
                tracing::info!(
                    listener,
                    calls = calls.calls,
                    call_seconds = calls.took.as_secs_f64(),
                    fuel_used = calls.fuel_used,
                    memory_peak_bytes = calls.memory_peak_bytes,
                    host_calls = calls.host_calls,
                    host_bytes = calls.host_bytes,
                    "listener totals"
                );
            }
            let counts = counts.counts();
            tracing::info!(
                delivered = counts.dispatch_success,
                failed = counts.dispatch_failure,
                dead = counts.dispatch_dead,
                released = counts.dispatch_released,
                "stopped"
            );
        }
        () = stop.again() => {
            stderr::say("stopped at once; claimed events are delivered again after their lease");
            stderr::finish();
            std::process::exit(i32::from(Exit::Interrupted as u8));
        }
    }
}
