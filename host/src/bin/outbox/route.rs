//! `outbox route`: which events go where, and which of them are held up.

use clap::{Args, Subcommand};
use outbox::store::{BlockedKey, RouteRecord};
use outbox::{PAUSE_KNOWN_WITHIN, Route, Store};
use serde::Serialize;

use crate::audit::Reason;
use crate::config::{Config, layers};
use crate::database;
use crate::failure::{Exit, Failure};
use crate::output::{self, Format, Output, count, or_dash, relative, short, shown, span};
use crate::pauses::{covered, holding, pause_for_lists, resume_command};

#[derive(Subcommand, Debug)]
pub(crate) enum RouteCommand {
    /// Show every route with its events: waiting, parked, blocked, dead
    #[command(after_help = "Example:\n  outbox route list --output json")]
    List {
        #[command(flatten)]
        output: Output,
    },
    /// Hold the events of a route back: hosts park them until it is resumed
    #[command(after_help = "Examples:\n  outbox route pause Order/OrderPlaced --reason 'the mail server moves'\n  \
                            outbox route pause 'Order/*'      every route of an aggregate type, also those to come\n  \
                            outbox route pause Heartbeat      a route without an aggregate type")]
    Pause(Change),
    /// Let the events of a paused route go on
    #[command(after_help = "Example:\n  outbox route resume Order/OrderPlaced")]
    Resume(Change),
    /// Show the aggregates whose later events wait behind one that is not resolved
    #[command(after_help = "Example:\n  outbox route blocked --limit 10")]
    Blocked {
        /// At most so many
        #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Change {
    /// The route: AGGREGATE_TYPE/EVENT_TYPE, or EVENT_TYPE alone for events without an aggregate type; `*` stands for any name
    #[arg(value_name = "A/T", value_parser = crate::names::route)]
    route: Route,
    #[command(flatten)]
    reason: Reason,
    #[command(flatten)]
    output: Output,
}

/// A route of the list.
#[derive(Serialize)]
struct Listed<'r> {
    #[serde(flatten)]
    known: &'r RouteRecord,
    /// The routes and patterns whose pauses hold it, the most exact first.
    held_by: Vec<String>,
}

/// What a pause or a resumption came to.
#[derive(Serialize)]
struct Changed<'r> {
    #[serde(flatten)]
    route: &'r Route,
    /// Whether it is paused by now, itself or by a pattern.
    paused: bool,
    /// False when it was so before.
    changed: bool,
    /// How many running hosts have to learn of it.
    hosts: usize,
    /// Within how long they do.
    known_within_seconds: u64,
}

impl<'r> Changed<'r> {
    fn new(route: &'r Route, paused: bool, changed: bool, hosts: usize) -> Self {
        Self { route, paused, changed, hosts, known_within_seconds: PAUSE_KNOWN_WITHIN.as_secs() }
    }
}

impl RouteCommand {
    pub(crate) async fn run(self, config: &Config) -> Result<(), Failure> {
        match self {
            Self::List { output } => {
                let routes = database::ready(config).await?.count_routes().await?;
                let held_by = |known: &RouteRecord| {
                    holding(&known.route, &routes).into_iter().map(|pause| pause.route.to_string()).collect()
                };
                let listed: Vec<Listed> = routes.iter().map(|known| Listed { known, held_by: held_by(known) }).collect();
                let people = |_: &[Listed]| if routes.is_empty() { String::new() } else { table(&routes) };
                output::many(&listed, output.output, people)?;
                if routes.is_empty() && output.output == Format::Table {
                    eprintln!("no route is known yet: none has a listener, and no event waits");
                }
                Ok(())
            }
            Self::Pause(change) => pause(change, config).await,
            Self::Resume(change) => resume(change, config).await,
            Self::Blocked { limit, output } => blocked(limit, output.output, config).await,
        }
    }
}

fn table(routes: &[RouteRecord]) -> String {
    let rows = routes.iter().map(|known| {
        // Events are of routes, not of patterns.
        let counted = |number: u64| if known.route.is_pattern() && number == 0 { "-".to_owned() } else { number.to_string() };
        let never = if known.route.is_pattern() { "-" } else { "never" };
        [
            short(&known.route.to_string(), 48),
            counted(known.waiting),
            counted(known.parked),
            counted(known.blocked),
            counted(known.dead),
            known.first_seen_at.map_or_else(|| never.to_owned(), relative),
            paused(known, routes),
        ]
    });
    output::table(&["route", ">waiting", ">parked", ">blocked", ">dead", "first listener", "paused"], rows)
}

/// `2h ago by anna@shop: the mail server moves`, with the pattern in front that is paused instead of the route.
fn paused(known: &RouteRecord, routes: &[RouteRecord]) -> String {
    let holding = holding(&known.route, routes);
    let Some(pause) = holding.first() else { return "-".to_owned() };
    let by_pattern = if pause.route == known.route { String::new() } else { format!("{}, ", pause.route) };
    short(&format!("{by_pattern}{}", pause_for_lists(pause).unwrap_or_default()), 80)
}

async fn pause(Change { route, reason, output }: Change, config: &Config) -> Result<(), Failure> {
    let store = database::ready(config).await?;
    let routes = store.count_routes().await?;
    let known = routes.iter().find(|known| known.route == route);
    let name = shown(&route.to_string()).into_owned();
    let changed = store.pause(&route, &reason.audit()).await?;
    if changed {
        database::tell_hosts(&*store).await;
    }
    let hosts = hosts(&*store).await?;
    match known {
        Some(known) if !changed => eprintln!("{name} was paused already, {}", pause_for_lists(known).unwrap_or_default()),
        _ if route.is_pattern() => eprintln!("{}", covers(&route, &routes)),
        None => eprintln!("note: no listener ever answered {name}, and no event of it waits{}", near(&route, &routes)),
        Some(_) => {}
    }
    for other in holding(&route, &routes).into_iter().filter(|pause| pause.route != route) {
        let (pattern, pause) = (shown(&other.route.to_string()).into_owned(), pause_for_lists(other).unwrap_or_default());
        eprintln!(
            "note: the pattern {pattern} covers it and is paused as well, {pause}; events of {name} go on when both are resumed"
        );
    }
    let resume = config.flags.command(&resume_command(&route));
    output::one(&Changed::new(&route, true, changed, hosts), output.output, |_| match (hosts, changed) {
        (_, false) => format!("{name} is paused; its events wait until `{resume}`\n"),
        (0, true) => format!("{name} is paused; no host is running. Its events wait until `{resume}`\n"),
        (hosts, true) => format!(
            "{name} will be paused within {} by {}; its events then wait until `{resume}`\n",
            span(PAUSE_KNOWN_WITHIN),
            running(hosts)
        ),
    })
}

async fn resume(Change { route, reason, output }: Change, config: &Config) -> Result<(), Failure> {
    let store = database::ready(config).await?;
    let routes = store.count_routes().await?;
    let name = shown(&route.to_string()).into_owned();
    let others: Vec<&RouteRecord> = holding(&route, &routes).into_iter().filter(|pause| pause.route != route).collect();
    if others.is_empty() && !route.is_pattern() && !routes.iter().any(|known| known.route == route) {
        return Err(Failure::new(Exit::NotFound, format!("no route is called {name}{}", near(&route, &routes))));
    }
    let changed = store.resume(&route, &reason.audit()).await?;
    if changed {
        database::tell_hosts(&*store).await;
    } else if !others.is_empty() {
        eprintln!("{name} was not paused itself");
    }
    let hosts = hosts(&*store).await?;
    let answer = Changed::new(&route, !others.is_empty(), changed, hosts);
    if others.is_empty() {
        for still in covered(&route, &routes).filter(|known| known.route != route && known.paused_at.is_some()) {
            let (own, pause) = (shown(&still.route.to_string()).into_owned(), pause_for_lists(still).unwrap_or_default());
            let resume = config.flags.command(&resume_command(&still.route));
            eprintln!("note: {own} is still paused itself, {pause}; `{resume}`");
        }
        let parked: u64 = routes.iter().filter(|known| route.covers(&known.route)).map(|known| known.parked).sum();
        return output::one(&answer, output.output, |_| resumed(&name, changed, parked, hosts));
    }
    output::one(&answer, output.output, |_| String::new())?;
    let resume_pattern =
        |pause: &&RouteRecord| format!("resume the pattern: {}", config.flags.command(&resume_command(&pause.route)));
    let held: Vec<String> = others.iter().map(|pause| shown(&pause.route.to_string()).into_owned()).collect();
    let exit = if changed { Exit::Partly } else { Exit::Conflict };
    Err(Failure::new(exit, format!("{name} is still paused, by the pattern {}", held.join(" and ")))
        .details(others.iter().map(resume_pattern).collect()))
}

fn resumed(name: &str, changed: bool, parked: u64, hosts: usize) -> String {
    if !changed {
        return format!("{name} was not paused\n");
    }
    let events = count(parked, "parked event");
    let what = match (hosts, parked) {
        (0, 0) => "no host is running".to_owned(),
        (0, _) => format!("{events} will go on when a host is started"),
        (_, 0) => format!("{} will know within {}", running(hosts), span(PAUSE_KNOWN_WITHIN)),
        _ => format!("{} will let {events} go on within {}", running(hosts), span(PAUSE_KNOWN_WITHIN)),
    };
    format!("{name} is not paused any more; {what}\n")
}

/// How many hosts deliver now.
async fn hosts(store: &dyn Store) -> Result<usize, Failure> {
    Ok(store.nodes().await?.iter().filter(|node| node.alive).count())
}

fn running(hosts: usize) -> String {
    count(u64::try_from(hosts).unwrap_or(u64::MAX), "running host")
}

/// The most names that are listed of what a pattern covers.
const NAMED: usize = 5;

/// What a pattern stands for, as a note.
fn covers(pattern: &Route, routes: &[RouteRecord]) -> String {
    let names: Vec<String> = covered(pattern, routes).map(|known| shown(&known.route.to_string()).into_owned()).collect();
    match names.len() {
        0 => "note: no known route matches this pattern; events of routes that appear later wait as well".to_owned(),
        all => {
            let rest = if all > NAMED { format!(" and {} more", all - NAMED) } else { String::new() };
            format!("note: this pattern holds {}{rest}", names[..all.min(NAMED)].join(", "))
        }
    }
}

/// Names that were probably meant, as the end of a sentence.
fn near(route: &Route, routes: &[RouteRecord]) -> String {
    let wanted = route.to_string().to_lowercase();
    let mut near: Vec<(usize, String)> = routes
        .iter()
        .filter(|known| known.route != *route)
        .map(|known| {
            let name = known.route.to_string();
            // Whoever forgets the aggregate type means a route that has one.
            let same_type = known.route.event_type == route.event_type;
            (if same_type { 0 } else { layers::distance(&wanted, &name.to_lowercase()) }, name)
        })
        .filter(|(distance, _)| *distance <= 4)
        .collect();
    near.sort();
    match near.as_slice() {
        [] => String::new(),
        near => {
            let names: Vec<String> = near.iter().take(3).map(|(_, name)| shown(name).into_owned()).collect();
            format!("; near it: {}", names.join(", "))
        }
    }
}

async fn blocked(limit: u32, format: Format, config: &Config) -> Result<(), Failure> {
    let keys = database::ready(config).await?.blocked_keys(limit).await?;
    output::many(&keys, format, |keys| if keys.is_empty() { String::new() } else { blocked_table(keys) })?;
    if format == Format::Table {
        match keys.first().and_then(|key| key.event_id) {
            None if keys.is_empty() => eprintln!("no event waits behind another"),
            None => {}
            Some(id) => eprintln!(
                "why: `outbox event why {id}`; if it is dead, `outbox dead replay {id}` delivers it again, and `outbox dead skip {id}` \
                 lets the others go on"
            ),
        }
    }
    Ok(())
}

fn blocked_table(keys: &[BlockedKey]) -> String {
    let rows = keys.iter().map(|key| {
        [
            short(&format!("{}/{}", key.aggregate_type, key.aggregate_id), 48),
            key.waiting.to_string(),
            key.event_id.map_or_else(|| key.seq.to_string(), |id| id.to_string()),
            key.event_type.as_deref().map_or_else(|| "-".to_owned(), |event_type| short(event_type, 32)),
            key.status.map_or_else(|| "gone".to_owned(), |status| status.to_string()),
            key.due_at.map_or_else(|| "-".to_owned(), relative),
            or_dash(key.last_error.as_deref().map(|error| short(error, 60)).as_deref()),
        ]
    });
    output::table(&["aggregate", ">waiting", "behind", "type", "status", "due", "cause"], rows)
}
