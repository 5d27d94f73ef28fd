//! `outbox run`: the host.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use outbox::{Mode, Outbox, Store};

use crate::config::{Config, Kind, LogFormat, hide_password};
use crate::database::{self, Missing};
use crate::failure::{Exit, Failure};
use crate::host;
use crate::logging;
use crate::output::shown;
use crate::plugins::PluginState;
use crate::serve;
use crate::stop::Stop;
use crate::systemd;
use crate::telemetry::{self, Telemetry};

/// How soon a server that is not there is asked again, at first and in the end.
const FIRST_REST: Duration = Duration::from_millis(100);
const LONGEST_REST: Duration = Duration::from_secs(2);
/// How often a host that is not ready looks whether it is.
const READY_CHECK: Duration = Duration::from_millis(500);

/// Run a host: deliver events to plugins and sinks, and serve the HTTP API
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  outbox run --database-url sqlite:shop.db --plugins plugins --migrate\n\n\
                        If the HTTP API is switched on by --listen or http.listen, the host prints `listening on http://…` on stderr. \
                        It prints `ready` when it delivers events and the plugins of plugins.required serve. If the database server is \
                        not up yet, the host waits for it.\n\n\
                        Plugins that are not in the compile cache are compiled in the background; their events wait until then (see the \
                        setting plugins.ready_when). `outbox plugin check` compiles a plugin in advance.\n\n\
                        SIGINT, SIGTERM, SIGQUIT or SIGHUP stops the host: it finishes the events in its queue and gives its other \
                        claims back. A second SIGINT, SIGTERM or SIGQUIT ends it at once, with exit code 130. A SIGHUP that the host was started to \
                        ignore (nohup) does not stop it.")]
pub(crate) struct RunCommand {
    /// Apply missing migrations and add the index of the mode first; creates the SQLite file if it does not exist
    #[arg(long)]
    migrate: bool,
}

impl RunCommand {
    pub(crate) async fn run(self, config: &Config) -> Result<(), Failure> {
        if host::wants_plugins(config) && config.mode != Mode::WriterOnly {
            host::check_plugins_dir(&config.plugins.dir)?;
        }
        let mut stop = Stop::listen()?;
        let telemetry = telemetry::start()?;
        // Before the database is waited for: a port that is taken is told at once, and whoever asks is told that the host starts.
        let server = serve::bind(config.http.clone(), config.log.format).await?;
        let outbox = tokio::select! {
            outbox = self.start(config, telemetry.as_ref()) => outbox?,
            () = stop.wait() => return Err(Failure::new(Exit::Interrupted, "stopped before it was ready")),
        };
        if let Some(server) = &server {
            server.serve(&outbox);
        }
        let plugins = outbox.plugins().map(|plugins| plugins.list()).unwrap_or_default();
        let many = |state| plugins.iter().filter(|plugin| plugin.state == state).count();
        tracing::info!(
            database = hide_password(&config.database.url),
            mode = config.mode.as_str(),
            workers = outbox.workers(),
            plugins = many(PluginState::Serving) + many(PluginState::ServingOlder),
            loading = many(PluginState::Loading),
            failed = many(PluginState::Failed),
            routes = outbox.listeners().routes().len(),
            owner = outbox.owner().as_str(),
            "the host runs"
        );
        let is_ready = outbox.readiness().is_ready();
        if is_ready {
            logging::announce("ready", config.log.format);
        }
        systemd::ready().await;
        tokio::spawn(systemd::watch(outbox.clone()));
        let broken = tokio::select! {
            () = stop.wait() => None,
            part = outbox.broken() => Some(part),
            never = announce_when_ready(&outbox, config.log.format), if !is_ready => match never {},
        };
        systemd::stopping().await;
        host::shutdown(outbox, server, telemetry, stop, config.dispatcher.drain_timeout).await;
        match broken {
            None => Ok(()),
            Some(part) => Err(Failure::new(
                Exit::Failed,
                format!("the {part} of the host failed; no event is lost. Start the host again"),
            )),
        }
    }

    /// Starts the host; waits for a server that is not there yet, since machines come up in any order. A file is there or not.
    async fn start(&self, config: &Config, telemetry: Option<&Telemetry>) -> Result<Outbox<Arc<dyn Store>>, Failure> {
        let is_a_server = config.database.kind()? != Kind::Sqlite;
        let mut waiting: Option<Instant> = None;
        let mut rest = FIRST_REST;
        let mut opened = None;
        loop {
            match self.try_to_start(&mut opened, config, telemetry).await {
                Err(failure) if is_a_server && failure.is_passing() => {
                    if waiting.is_none() {
                        waiting = Some(Instant::now());
                        tracing::warn!(reason = failure.chain(), "the database cannot be used yet; waiting for it");
                        systemd::waiting(failure.message()).await;
                    }
                }
                started => {
                    if let (Some(since), Ok(_)) = (waiting, &started) {
                        tracing::info!("the database can be used, after {:.1?} of waiting", since.elapsed());
                    }
                    return started;
                }
            }
            tokio::time::sleep(rest).await;
            rest = (rest * 2).min(LONGEST_REST);
        }
    }

    /// A later try uses the store that an earlier one has opened: a new one would log the state of its servers again.
    async fn try_to_start(
        &self,
        opened: &mut Option<Arc<dyn Store>>,
        config: &Config,
        telemetry: Option<&Telemetry>,
    ) -> Result<Outbox<Arc<dyn Store>>, Failure> {
        let missing = if self.migrate { Missing::Create } else { Missing::Refuse };
        let store = match &*opened {
            Some(store) => store.clone(),
            None => opened.insert(database::open(config, missing).await?).clone(),
        };
        let outbox = host::builder(store, config, telemetry)?.migrate(self.migrate).start().await;
        outbox.map_err(|error| database::not_started(error, config))
    }
}

/// Logs why the host is not ready, and prints `ready` when `/readyz` says so too. Never ends.
async fn announce_when_ready(outbox: &Outbox<Arc<dyn Store>>, format: LogFormat) -> Infallible {
    let mut logged = Vec::new();
    loop {
        let readiness = outbox.readiness();
        if readiness.is_ready() {
            logging::announce("ready", format);
            return std::future::pending().await;
        }
        // A message may count seconds, a code does not.
        let codes: Vec<_> = readiness.reasons().iter().map(|reason| reason.code).collect();
        if codes != logged {
            let reasons: Vec<_> = readiness.reasons().iter().map(|reason| reason.message.as_str()).collect();
            tracing::warn!("the host delivers events, but it is not ready: {}", shown(&reasons.join("; ")));
            logged = codes;
        }
        tokio::time::sleep(READY_CHECK).await;
    }
}
