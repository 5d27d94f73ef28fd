//! `outbox dead test` and `outbox event test`: how a component file would answer events that are in the database. Nothing is
//! written, and none of the component's effects happen: HTTP requests are answered with 200 and messages are confirmed here,
//! and the report says so.

mod matching;
mod tried;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use outbox::event::{StateUsage, StateValue, Status};
use outbox::store::{Filter, Record};
use outbox::wasm::{PluginHost, StateSource};
use outbox::{EventId, Route, Store};
use serde::Serialize;

use crate::candidate::{Guise, absent, stem};
use crate::config::Config;
use crate::failure::{Exit, Failure};
use crate::output::{self, Format, Output, count, or_dash, short, shown};
use crate::plugins::{self, PluginStatus};
use matching::Matching;
use tried::{Then, Tried};

/// Which component.
#[derive(Args, Clone, Debug)]
pub(crate) struct Candidate {
    /// The component file to try
    #[arg(long = "plugin", value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    guise: Guise,
}

/// What it would make of them.
#[derive(Serialize)]
struct Report {
    plugin: String,
    version: String,
    digest: String,
    tested: usize,
    done: usize,
    deferred: usize,
    retry: usize,
    dead: usize,
    unanswered: usize,
    /// Dead events that match, but not its routes, and so were not tried; none when a route was asked for, and when they were not
    /// counted.
    of_other_routes: Option<u64>,
    /// HTTP requests that were answered 200 here, and messages that were confirmed here. None was sent.
    requests: usize,
    messages: usize,
    /// Those that would end otherwise than they stand come first.
    events: Vec<Tried>,
    /// Delivers the dead events that would be done; none when there is none.
    replay: Option<String>,
}

/// Tries dead events that match, oldest first.
pub(crate) async fn dead(
    store: Arc<dyn Store>,
    filter: Filter,
    limit: u32,
    candidate: &Candidate,
    output: Output,
    config: &Config,
) -> Result<(), Failure> {
    candidate.is_there()?;
    let loaded = candidate.load(&store, config).await?;
    let matching = Matching::read(&*store, &filter, loaded.routes(), limit).await?;
    if matching.rows.is_empty() {
        return Err(Failure::new(Exit::NotFound, matching.nothing()));
    }
    let Matching { rows, more, of_other_routes, .. } = matching;
    let host = loaded.host(&rows, config).await?;
    let ids: Vec<EventId> = rows.into_iter().map(|row| row.event_id).collect();
    let tried = each(&host, &*store, &ids).await?;
    let shown = show(&host, tried, of_other_routes, output, config);
    if more {
        eprintln!("there are more; raise --limit to try them too");
    }
    shown
}

/// Tries the named events, whatever their state.
pub(crate) async fn named(
    store: Arc<dyn Store>,
    ids: &[EventId],
    candidate: &Candidate,
    output: Output,
    config: &Config,
) -> Result<(), Failure> {
    candidate.is_there()?;
    let mut rows = Vec::with_capacity(ids.len());
    for id in ids {
        rows.extend(store.get(*id).await?);
    }
    let host = candidate.load(&store, config).await?.host(&rows, config).await?;
    let tried = each(&host, &*store, ids).await?;
    let missing: Vec<String> =
        ids.iter().filter(|id| !tried.iter().any(|one| one.event_id == **id)).map(EventId::to_string).collect();
    if tried.is_empty() {
        return Err(Failure::new(Exit::NotFound, format!("not found: {}", missing.join(", "))));
    }
    let shown = show(&host, tried, None, output, config);
    if missing.is_empty() { shown } else { Err(Failure::new(Exit::Partly, format!("not found: {}", missing.join(", ")))) }
}

impl Candidate {
    fn is_there(&self) -> Result<(), Failure> {
        if self.file.exists() {
            return Ok(());
        }
        Err(absent(&self.file))
    }

    /// Loads the file as what it says itself that it is.
    async fn load(&self, store: &Arc<dyn Store>, config: &Config) -> Result<Loaded<'_>, Failure> {
        let state = Arc::new(StoredState(store.clone()));
        let served = served(&**store).await?;
        let served_names: Vec<String> = served.iter().map(|status| status.name.clone()).collect();
        self.guise.check_name(&self.file, config, &served_names)?;
        let is_clear = self.guise.is_clear(&self.file, config) || served_names.contains(&stem(&self.file));
        let alone = self.guise.load(&self.file, config, state.clone()).await;
        Ok(Loaded { candidate: self, alone, is_clear, served, state })
    }
}

/// A component file as itself, and what it may be taken for instead.
struct Loaded<'c> {
    candidate: &'c Candidate,
    /// Why it could not serve as itself, otherwise.
    alone: Result<PluginHost, Failure>,
    /// Whether the file says itself what it is.
    is_clear: bool,
    served: Vec<PluginStatus>,
    state: Arc<StoredState>,
}

impl Loaded<'_> {
    /// What it answers; `None` where that is not known.
    fn routes(&self) -> Option<&[Route]> {
        self.alone.as_ref().ok().map(PluginHost::routes)
    }

    /// The plugin for these rows: the one that serves them, unless the file says itself what it is or answers none of them, and
    /// so is another plugin, which the settings, secrets and state of this one do not concern.
    async fn host(self, rows: &[Record], config: &Config) -> Result<PluginHost, Failure> {
        let Self { candidate, alone, is_clear, served, state } = self;
        let answers = |host: &PluginHost| rows.iter().any(|row| host.routes().iter().any(|route| is_of(row, route)));
        if is_clear || alone.as_ref().is_ok_and(|host| !answers(host)) {
            return alone;
        }
        let servers = servers(served, rows, config).await;
        let names = servers.iter().map(|name| shown(name).into_owned()).collect::<Vec<_>>().join(", ");
        match servers.as_slice() {
            [plugin] => {
                let tried = candidate.guise.of(plugin).load(&candidate.file, config, state).await;
                if tried.as_ref().is_ok_and(|host| !answers(host)) {
                    return alone;
                }
                eprintln!(
                    "note: tried as {names}, which answers these events: with its settings, grants and state (--as NAME for another's)"
                );
                tried
            }
            [] => alone,
            _ => {
                eprintln!(
                    "note: tried without settings and grants; --as NAME uses those of a plugin that answers these events: \
                     {names}"
                );
                alone
            }
        }
    }
}

fn is_of(row: &Record, route: &Route) -> bool {
    route.aggregate_type.as_str() == row.aggregate_type && route.event_type.as_str() == row.event_type
}

/// The plugins of the hosts that run.
async fn served(store: &dyn Store) -> Result<Vec<PluginStatus>, Failure> {
    let live = outbox::node::hosts(store).await?.into_iter().filter(|node| node.alive);
    Ok(live.flat_map(|node| outbox::node::plugins(&node)).collect())
}

/// The plugins that answer the routes of these rows, by name: those that are served, or else those of the directory.
async fn servers(served: Vec<PluginStatus>, rows: &[Record], config: &Config) -> Vec<String> {
    let answers = |status: &PluginStatus| rows.iter().any(|row| status.routes.iter().any(|route| is_of(row, route)));
    let names = |plugins: Vec<PluginStatus>| -> BTreeSet<String> {
        plugins.into_iter().filter(answers).map(|status| status.name).collect()
    };
    let mut servers = names(served);
    if servers.is_empty() && config.plugins.dir.is_dir() {
        // One that cannot be looked at answers nothing.
        servers = names(plugins::inspect(config).await.unwrap_or_default());
    }
    servers.into_iter().collect()
}

/// One after the other, each in an instance of its own and with the state as it stands.
async fn each(host: &PluginHost, store: &dyn Store, ids: &[EventId]) -> Result<Vec<Tried>, Failure> {
    let bar = output::progress("trying", u64::try_from(ids.len()).ok());
    let mut tried = Vec::with_capacity(ids.len());
    for id in ids {
        if let Some(row) = store.get(*id).await? {
            tried.push(Tried::of(host, &row).await);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    tried.sort_by_key(|one| (!one.differs, one.seq));
    Ok(tried)
}

fn show(
    host: &PluginHost,
    events: Vec<Tried>,
    of_other_routes: Option<u64>,
    output: Output,
    config: &Config,
) -> Result<(), Failure> {
    let of = |then: Then| events.iter().filter(|one| one.then == then).count();
    let to_replay: Vec<String> = events
        .iter()
        .filter(|one| one.now == Status::Dead && one.then == Then::Done)
        .map(|one| one.event_id.to_string())
        .collect();
    let description = host.description();
    let report = Report {
        plugin: host.name().to_owned(),
        version: description.version.clone(),
        digest: description.digest.clone(),
        tested: events.len(),
        done: of(Then::Done),
        deferred: of(Then::Deferred),
        retry: of(Then::Retry),
        dead: of(Then::Dead),
        unanswered: of(Then::Unanswered),
        of_other_routes,
        requests: events.iter().map(|one| one.requests).sum(),
        messages: events.iter().map(|one| one.messages).sum(),
        replay: (!to_replay.is_empty()).then(|| config.flags.command(&format!("outbox dead replay {}", to_replay.join(" ")))),
        events,
    };
    output::one(&report, output.output, for_people)?;
    if output.output == Format::Table && report.replay.is_some() {
        eprintln!(
            "nothing was written; once hosts serve this file, the command above delivers the dead events that it can \
             finish"
        );
    }
    // The table has told the rest.
    if report.done == report.tested { Ok(()) } else { Err(Failure::silent(Exit::Findings)) }
}

fn for_people(report: &Report) -> String {
    let rows = report.events.iter().map(|one| {
        [
            one.event_id.to_string(),
            short(&one.route, 40),
            one.now.to_string(),
            short(&or_dash(one.last_error.as_deref()), 40),
            one.then.as_str().to_owned(),
            shown(&one.says).into_owned(),
        ]
    });
    let mut text = output::table(&["event_id", "route", "now", "last error", "then", "~it says"], rows);
    let counts = [
        (report.done, Then::Done),
        (report.deferred, Then::Deferred),
        (report.retry, Then::Retry),
        (report.dead, Then::Dead),
        (report.unanswered, Then::Unanswered),
    ];
    let counts: Vec<String> =
        counts.iter().filter(|(number, _)| *number > 0).map(|(number, then)| format!("{number} × {}", then.as_str())).collect();
    let tested = count(u64::try_from(report.tested).unwrap_or(u64::MAX), "event");
    let (name, version) = (shown(&report.plugin), shown(&report.version));
    text.push_str(&format!("\n{tested} with {name} {version}: {}\n", counts.join(", ")));
    if let Some(others) = report.of_other_routes.filter(|others| *others > 0) {
        text.push_str(&format!("not tried: {} of routes that it does not answer\n", count(others, "dead event")));
    }
    if let Some(not_sent) = not_sent(report.requests, report.messages) {
        text.push_str(&format!("{not_sent}\n"));
    }
    if let Some(replay) = &report.replay {
        text.push_str(&format!("{replay}\n"));
    }
    text
}

/// What an answer stands on that nobody outside has given; `None` when the plugin asked for nothing outside.
fn not_sent(requests: usize, messages: usize) -> Option<String> {
    let counted = |number: usize, noun: &str| count(u64::try_from(number).unwrap_or(u64::MAX), noun);
    let were = |number: usize| if number == 1 { "was" } else { "were" };
    let (asked, published) = (counted(requests, "request"), counted(messages, "message"));
    let (requested, confirmed) = (were(requests), were(messages));
    match (requests, messages) {
        (0, 0) => None,
        (_, 0) => {
            Some(format!("{asked} {requested} answered with 200 here and not sent; a failing endpoint would change the result"))
        }
        (0, _) => Some(format!("{published} {confirmed} confirmed here and not sent; a failing sink would change the result")),
        _ => Some(format!(
            "{asked} {requested} answered with 200 here and {published} confirmed; none was sent, and a failing endpoint or \
             sink would change the result"
        )),
    }
}

/// The plugin's values as they stand in the database.
struct StoredState(Arc<dyn Store>);

#[async_trait::async_trait]
impl StateSource for StoredState {
    async fn get(&self, plugin: &str, key: &str) -> Result<Option<StateValue>, String> {
        self.0.state(plugin, key).await.map_err(|error| outbox::chain(&error))
    }

    async fn usage(&self, plugin: &str) -> Result<StateUsage, String> {
        self.0.state_usage(plugin).await.map_err(|error| outbox::chain(&error))
    }
}

impl Tried {
    async fn of(host: &PluginHost, row: &Record) -> Self {
        let route = format!("{}/{}", row.aggregate_type, row.event_type);
        if !host.routes().iter().any(|one| is_of(row, one)) {
            return Self::unanswered(row, route, "this plugin does not answer the route".to_owned());
        }
        match tried::event_of(row) {
            Ok(event) => Self::reported(row, route, &host.call(tried::call_of(row, event)).await),
            Err(error) => Self::unanswered(row, route, outbox::chain(&error)),
        }
    }
}
