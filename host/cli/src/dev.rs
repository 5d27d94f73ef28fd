//! `outbox dev`: everything on one machine, for trying it out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use outbox::event::Status;
use outbox::store::{Record, hide_password};
use outbox::{Envelope, EventId, Outbox, Route, Store};
use outbox_http::Server;

use crate::config::{Config, Override};
use crate::database::{self, Missing};
use crate::failure::{Exit, Failure};
use crate::host;
use crate::output::{lines, or_dash, shown};
use crate::plugin::list::answered;
use crate::plugins::{PluginState, PluginStatus, answering};
use crate::rights;
use crate::serve;
use crate::stop::Stop;
use crate::telemetry;

const AGGREGATE_TYPE: &str = "Order";
const EVENT_TYPE: &str = "OrderPlaced";
/// The directory of the samples in a checkout of this repository.
const SAMPLES: &str = "target/plugins";
/// Where their sources are, in a clone of the repository.
const SOURCES: &str = "plugins/order-mailer-rust";
/// How often the sample's row is looked at: fine enough to feel immediate.
const LOOK: Duration = Duration::from_millis(20);
/// How often, once it has waited for a while.
const LOOK_LATER: Duration = Duration::from_millis(250);

/// Try outbox on this machine: starts a host with a database file, loads the plugins and delivers a sample event
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  outbox dev --plugins target/plugins\n\n\
                        Creates outbox-dev.db, or uses the database of --database-url; loads the plugins, writes a sample event of \
                        Order/OrderPlaced, and shows its delivery. When you rebuild a plugin, it is reloaded, and another sample event \
                        goes to the new version. Ctrl-C stops it.")]
pub(crate) struct DevCommand {}

/// What is different while trying things out. Only flags override it: the database of an `outbox.toml` is likely a real one,
/// and no place for sample events.
pub(crate) fn defaults() -> Vec<Override> {
    vec![
        Override::new("database.url", database::OF_DEV, "outbox dev"),
        // A sample event that nobody answers waits for its plugin.
        Override::new("dispatcher.unroutable", "park", "outbox dev"),
        // What it shows first is what the plugins answer.
        Override::new("plugins.ready_when", "all", "outbox dev"),
        Override::new("http.listen", serve::DEV, "outbox dev"),
    ]
}

impl DevCommand {
    pub(crate) async fn run(self, config: &Config) -> Result<(), Failure> {
        let dir = &config.plugins.dir;
        // Whoever names a directory has one: a mistyped name must not become a new, empty directory.
        if *dir != Config::default().plugins.dir {
            host::check_plugins_dir(dir)?;
        } else if !dir.exists() {
            std::fs::create_dir_all(dir).map_err(|error| {
                Failure::new(Exit::Config, format!("the plugins directory {} cannot be created", dir.display()))
                    .because(error)
                    .details(rights::to_create(dir))
            })?;
            eprintln!("created the plugins directory {}", dir.display());
        }
        let mut stop = Stop::listen()?;
        let store = database::open(config, Missing::Create).await?;
        let server = serve::bind_in_dev(config.http.clone(), config.log.format).await?;
        let telemetry = telemetry::start()?;
        let outbox = host::builder(store, config, telemetry.as_ref())?.migrate(true).start().await?;
        if let Some(server) = &server {
            server.serve(&outbox);
        }
        let mut dev = Dev {
            route: Route::new(AGGREGATE_TYPE, EVENT_TYPE).map_err(|error| Failure::new(Exit::Failed, error.to_string()))?,
            outbox,
            loaded: BTreeMap::new(),
            waiting: Vec::new(),
            order_id: 0,
            dir: dir.clone(),
        };
        dev.banner(config, server.as_ref());
        let ended = tokio::select! {
            ended = dev.follow() => ended,
            () = stop.wait() => Ok(()),
        };
        eprintln!();
        host::shutdown(dev.outbox, server, telemetry, stop, config.dispatcher.drain_timeout).await;
        ended
    }
}

struct Dev {
    route: Route,
    outbox: Outbox<Arc<dyn Store>>,
    /// Digest or fault of each plugin that was seen, by name.
    loaded: BTreeMap<String, String>,
    /// Sample events that are not finished.
    waiting: Vec<Sample>,
    order_id: u64,
    /// The plugins directory.
    dir: PathBuf,
}

/// The plugins in columns: name, version, routes; of one that failed its error.
fn plugin_lines(plugins: &[PluginStatus]) -> Vec<String> {
    let rows: Vec<(String, String, String)> = plugins
        .iter()
        .map(|plugin| {
            let what = match &plugin.error {
                Some(error) if plugin.state == PluginState::Failed => format!("failed: {}", lines(error)),
                _ => answered(plugin),
            };
            (shown(&plugin.name).into_owned(), or_dash(plugin.version.as_deref()), what)
        })
        .collect();
    let width = |cell: fn(&(String, String, String)) -> &String| rows.iter().map(|row| cell(row).chars().count()).max();
    let (names, versions) = (width(|row| &row.0).unwrap_or(0), width(|row| &row.1).unwrap_or(0));
    rows.iter().map(|(name, version, what)| format!("{name:names$}  {version:versions$}  {what}")).collect()
}

struct Sample {
    id: EventId,
    since: Instant,
    /// What was said of it so far.
    attempts: u32,
    parked: bool,
}

impl Dev {
    fn plugins(&self) -> Vec<PluginStatus> {
        self.outbox.plugins().map(|plugins| plugins.list()).unwrap_or_default()
    }

    fn banner(&self, config: &Config, server: Option<&Server>) {
        let url = hide_password(&config.database.url);
        let table = config.database.table.as_str();
        let table = if table == "outbox_event" { String::new() } else { format!(" --set database.table={table}") };
        eprintln!();
        eprintln!("  outbox dev");
        eprintln!("  database  {url}");
        eprintln!("  plugins   {}", config.plugins.dir.display());
        let plugins = self.plugins();
        if plugins.is_empty() {
            eprintln!("            none yet");
        }
        for line in plugin_lines(&plugins) {
            eprintln!("            {line}");
        }
        // As it was typed: a fresh build is on nobody's path.
        let program = std::env::args().next().map_or_else(|| "outbox".into(), |program| shown(&program).into_owned());
        eprintln!(
            "  emit      {program} event emit --database-url {url}{table} --type {EVENT_TYPE} --aggregate-type {AGGREGATE_TYPE} --payload '{{\"order_id\":7,\"total\":12.5}}'"
        );
        eprintln!("  look      {program} event list --database-url {url}{table}");
        if let Some(server) = server {
            eprintln!("  page      {}/", serve::url(server));
        }
        eprintln!("  stop      Ctrl-C");
        eprintln!();
    }

    /// Writes a sample event now and after every change of the plugins, and shows what becomes of it.
    async fn follow(&mut self) -> Result<(), Failure> {
        let mut changes = self.outbox.listeners().changes();
        self.loaded = fingerprints(&self.plugins());
        self.emit().await?;
        loop {
            let young = self.waiting.iter().any(|sample| sample.since.elapsed() < Duration::from_secs(10) && !sample.parked);
            tokio::select! {
                () = tokio::time::sleep(if young { LOOK } else { LOOK_LATER }) => {}
                // The registry lives as long as the host; its list of plugins follows a moment later, at the next look.
                _ = changes.changed() => {}
            }
            self.look().await?;
            let plugins = self.plugins();
            let now = fingerprints(&plugins);
            if now == self.loaded {
                continue;
            }
            let fresh = plugins.iter().any(|plugin| {
                plugin.state == PluginState::Serving
                    && plugin.error.is_none()
                    && self.loaded.get(&plugin.name) != now.get(&plugin.name)
            });
            self.loaded = now;
            // One that waits for its plugin is sample enough.
            if fresh && self.waiting.is_empty() {
                self.emit().await?;
            }
        }
    }

    async fn emit(&mut self) -> Result<(), Failure> {
        self.order_id += 1;
        let payload = format!(r#"{{"order_id":{},"total":99.5,"customer":"ada@example.com"}}"#, self.order_id);
        let envelope = Envelope::new(EVENT_TYPE)
            .aggregate(AGGREGATE_TYPE, self.order_id.to_string())
            .header("source", "outbox dev")
            .json_text(payload.clone())?;
        let id = envelope.id();
        self.outbox.writer().emit(vec![envelope]).await?;
        eprintln!("emitted    {id}  {}  {payload}", self.route);
        if answering(&self.plugins(), &self.route).is_none() {
            eprintln!("           no plugin answers {}, so the event waits for one.", self.route);
            eprintln!(
                "           Write one with `outbox plugin new NAME --lang rust --route {}`, and copy its NAME.wasm into {}.",
                self.route,
                self.dir.display()
            );
            if Path::new(SOURCES).is_dir() {
                // Where `cargo xtask plugins` puts them.
                let again = if self.dir.ends_with(SAMPLES) {
                    String::new()
                } else {
                    format!(" and start again with --plugins {SAMPLES}")
                };
                eprintln!("           Or build the samples with `cargo xtask plugins`{again}.");
            }
        }
        self.waiting.push(Sample { id, since: Instant::now(), attempts: 0, parked: false });
        Ok(())
    }

    /// Looks at every sample that is not finished, and says what is new of it.
    async fn look(&mut self) -> Result<(), Failure> {
        for mut sample in std::mem::take(&mut self.waiting) {
            let Some(row) = self.outbox.store().get(sample.id).await? else { continue };
            match row.status {
                Status::Done => eprintln!("delivered  {}  {}  by {}, {}", sample.id, self.route, self.plugin(), took(&row)),
                Status::Dead => {
                    eprintln!("dead       {}  {}", sample.id, or_dash(row.last_error.as_deref()));
                    eprintln!("           Correct the plugin and rebuild it; then another sample event is written.");
                }
                Status::New | Status::Retry => {
                    if row.attempts > sample.attempts {
                        eprintln!(
                            "failed     {}  attempt {}: {}; it will be retried",
                            sample.id,
                            row.attempts,
                            or_dash(row.last_error.as_deref())
                        );
                        sample.attempts = row.attempts;
                    }
                    sample.parked = row.parked.is_some();
                    self.waiting.push(sample);
                }
            }
        }
        Ok(())
    }

    fn plugin(&self) -> String {
        answering(&self.plugins(), &self.route).map_or_else(
            || "a plugin that has been removed since".to_owned(),
            |plugin| {
                let digest: String = plugin.digest.as_deref().unwrap_or_default().chars().take(12).collect();
                format!("{} {} ({digest})", shown(&plugin.name), or_dash(plugin.version.as_deref()))
            },
        )
    }
}

/// How long after its commit an event was done.
fn took(row: &Record) -> String {
    let span = row.done_at.map_or(Duration::ZERO, |done| done.since(row.created_at));
    match span.as_millis() {
        0..100 => format!("{:.1} ms after its commit", span.as_secs_f64() * 1_000.0),
        ms @ 100..10_000 => format!("{ms} ms after its commit"),
        ms => format!("{} s after its commit", ms / 1_000),
    }
}

/// What tells one state of the plugins from the next.
fn fingerprints(plugins: &[PluginStatus]) -> BTreeMap<String, String> {
    let print = |plugin: &PluginStatus| plugin.error.clone().or_else(|| plugin.digest.clone()).unwrap_or_default();
    plugins.iter().map(|plugin| (plugin.name.clone(), print(plugin))).collect()
}
