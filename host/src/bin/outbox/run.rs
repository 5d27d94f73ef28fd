//! `outbox run`: the host.

use clap::Args;
use outbox::Mode;

use crate::config::{Config, LogFormat, hide_password};
use crate::database::{self, Missing};
use crate::failure::{Exit, Failure};
use crate::host::{self, Stop};

/// Run the host: deliver events to the plugins of a directory
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  outbox run --database-url sqlite:shop.db --plugins plugins --migrate\n\n\
                        Prints `ready` on stderr once it delivers. SIGINT or SIGTERM stops it: what is queued is finished, claims\n\
                        are given back. A second signal ends it at once (exit code 130).")]
pub(crate) struct RunCommand {
    /// Bring the schema up to date first; makes the SQLite file when it is not there
    #[arg(long)]
    migrate: bool,
}

impl RunCommand {
    pub(crate) async fn run(self, config: &Config) -> Result<(), Failure> {
        let dir = &config.plugins.dir;
        if config.mode != Mode::WriterOnly && !dir.is_dir() {
            let what =
                format!("the plugins directory {} does not exist; make it, or name another with --plugins DIR", dir.display());
            return Err(Failure::new(Exit::Config, what));
        }
        let mut stop = Stop::listen()?;
        let store = database::open(config, if self.migrate { Missing::Create } else { Missing::Refuse }).await?;
        let starting = host::builder(store, config).migrate(self.migrate).start();
        let outbox = tokio::select! {
            outbox = starting => outbox?,
            () = stop.wait() => return Err(Failure::new(Exit::Interrupted, "stopped before it was ready")),
        };
        tracing::info!(
            database = hide_password(&config.database.url),
            mode = config.mode.as_str(),
            workers = config.dispatcher.workers,
            plugins = outbox.plugins().map_or(0, |plugins| plugins.list().len()),
            routes = outbox.listeners().routes().len(),
            owner = outbox.owner().as_str(),
            "the host runs"
        );
        // Not a log line: scripts wait for it, whatever the level.
        match config.log.format {
            LogFormat::Text => eprintln!("ready"),
            LogFormat::Json => eprintln!("{{\"level\":\"INFO\",\"message\":\"ready\"}}"),
        }
        let broken = tokio::select! {
            () = stop.wait() => None,
            part = outbox.broken() => Some(part),
        };
        host::shutdown(outbox, stop, config.dispatcher.drain_timeout).await;
        match broken {
            None => Ok(()),
            Some(part) => {
                Err(Failure::new(Exit::Failed, format!("the {part} of the host broke; no event is lost, start it again")))
            }
        }
    }
}
