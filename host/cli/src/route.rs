//! `outbox route`: lists, pauses, resumes and forgets routes.

mod blocked;
mod sink;

use clap::{Args, Subcommand};
use outbox::listener::is_unroutable;
use outbox::node::{HostBreaker, OpenBreakers, Relays};
use outbox::store::{Filter, Record, RouteRecord, SetAside, left_out};
use outbox::time::Timestamp;
use outbox::why::{Pauses, covered, first_listener, holding, resume_command};
use outbox::wording::did_you_mean;
use outbox::{PAUSE_KNOWN_WITHIN, Route};
use serde::Serialize;

use self::sink::RouteSink;
use crate::audit::Reason;
use crate::config::Config;
use crate::database;
use crate::failure::{Exit, Failure};
use crate::flags::at_least_one;
use crate::output::{self, Format, Output, argument, count, or_dash, relative, short, shown, span, visible};
use crate::place::{self, Place};
use crate::plugins::answering;

#[derive(Subcommand, Debug)]
pub(crate) enum RouteCommand {
    /// List every route with the number of its waiting, parked, blocked and dead events, its sink, and its open breakers
    #[command(after_help = "Example:\n  outbox route list --output json")]
    List {
        #[command(flatten)]
        output: Output,
    },
    /// Pause a route: hosts park its events until it is resumed
    #[command(after_help = "Examples:\n  outbox route pause Order/OrderPlaced --reason 'the mail server moves'\n  \
                            outbox route pause 'Order/*'      every route of an aggregate type, including future ones\n  \
                            outbox route pause Heartbeat      a route without an aggregate type")]
    Pause(Pause),
    /// Resume a paused route
    #[command(after_help = "Example:\n  outbox route resume Order/OrderPlaced")]
    Resume(Change),
    /// Remove a route from the list, with its pause; refused while its events wait or a running host answers it
    ///
    /// For a misspelt route, or one whose listener is gone for good. Its delivered and dead events stay. Running hosts know within
    /// 2 s. From then on they treat its new events like those of a route that never had a listener: see the setting
    /// dispatcher.unroutable.
    #[command(after_help = "Example:\n  outbox route forget Order/OrderPlacd")]
    Forget(Change),
    /// List the aggregates whose events wait behind an earlier event that is not resolved
    #[command(after_help = "Example:\n  outbox route blocked --limit 10")]
    Blocked {
        /// Show at most this many
        #[arg(long, default_value_t = 50, value_name = "N", value_parser = at_least_one::<u32>)]
        limit: u32,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Change {
    /// The route: AGGREGATE_TYPE/EVENT_TYPE, or EVENT_TYPE alone for events without an aggregate type; `*` matches any name
    #[arg(value_name = "A/T", value_parser = crate::names::route)]
    route: Route,
    #[command(flatten)]
    reason: Reason,
    #[command(flatten)]
    output: Output,
}

#[derive(Args, Debug)]
pub(crate) struct Pause {
    #[command(flatten)]
    change: Change,
    /// Do not ask, even if no host has ever answered this route
    #[arg(long, short)]
    yes: bool,
}

/// A route of the list.
#[derive(Serialize)]
struct Listed<'r> {
    #[serde(flatten)]
    known: &'r RouteRecord,
    /// The routes and patterns whose pauses hold it, the most exact first.
    held_by: Vec<String>,
    /// The sink that it is relayed to; `None` if it is not relayed, or no host runs.
    sink: Option<&'r str>,
    /// Since when that sink has been down on all hosts that find it down.
    sink_down_since: Option<Timestamp>,
    /// How many hosts find it down, without hosts that stand aside.
    sink_down_on: usize,
    /// How many hosts relay the route to it, without hosts that stand aside.
    sink_hosts: usize,
    /// The open breakers of its listeners: on these hosts its events wait.
    open_breakers: &'r [HostBreaker],
}

/// The result of a pause or a resume.
#[derive(Serialize)]
struct Changed<'r> {
    #[serde(flatten)]
    route: &'r Route,
    /// Whether the route is paused now, by itself or by a pattern.
    paused: bool,
    /// False when the route was in that state before.
    changed: bool,
    /// How many live hosts have to apply the change.
    hosts: usize,
    /// Within how many seconds they apply it.
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
                let place = place::open(config).await?;
                let (now, routes) = (place.now().await?, place.routes().await?);
                let (sinks, nodes) = (place.sinks(&routes).await?, place.nodes().await?);
                let hosts = sink::by_host(sinks, &nodes);
                let relays: Vec<Relays<'_>> = hosts.iter().map(|sinks| Relays::of(sinks)).collect();
                let (pauses, breakers) = (Pauses::of(&routes), OpenBreakers::of(&nodes));
                let sinks: Vec<Option<RouteSink<'_>>> = routes.iter().map(|known| RouteSink::of(&relays, known)).collect();
                let listed = routes.iter().zip(&sinks).map(|(known, sink)| Listed {
                    held_by: pauses.names_holding(&known.route),
                    known,
                    sink: sink.as_ref().map(|sink| sink.name),
                    sink_down_since: sink.as_ref().and_then(|sink| sink.down_since),
                    sink_down_on: sink.as_ref().map_or(0, |sink| sink.down_on),
                    sink_hosts: sink.as_ref().map_or(0, |sink| sink.hosts),
                    open_breakers: breakers.on(&known.route),
                });
                let listed: Vec<Listed> = listed.collect();
                let people = |_: &[Listed]| {
                    if routes.is_empty() { String::new() } else { table(&routes, &pauses, &sinks, &breakers, now) }
                };
                output::many(&listed, output.output, people)?;
                if routes.is_empty() && output.output == Format::Table {
                    eprintln!("no route is known yet: no listener has been registered, and no event is waiting");
                }
                for note in breakers.more_words().into_iter().chain(left_out(&routes)) {
                    eprintln!("{note}");
                }
                Ok(())
            }
            Self::Pause(Pause { change, yes }) => pause(change, yes, config).await,
            Self::Resume(change) => resume(change, config).await,
            Self::Forget(change) => forget(change, config).await,
            Self::Blocked { limit, output } => blocked::blocked(limit, output.output, config).await,
        }
    }
}

/// `sinks` has the sink of each route. Without any, there is no column for them; likewise for the breakers.
fn table(
    routes: &[RouteRecord],
    pauses: &Pauses<'_>,
    sinks: &[Option<RouteSink<'_>>],
    breakers: &OpenBreakers,
    now: Timestamp,
) -> String {
    let (has_sinks, has_breakers) = (sinks.iter().any(Option::is_some), !breakers.is_empty());
    let rows = routes.iter().zip(sinks).map(|(known, sink)| {
        // Events are of routes, not of patterns.
        let counted = |number: u64| if known.route.is_pattern() && number == 0 { "-".to_owned() } else { number.to_string() };
        let never = if known.route.is_pattern() { "-" } else { "never" };
        [
            short(&visible(&known.route.to_string()), 48),
            counted(known.waiting),
            counted(known.parked),
            counted(known.blocked),
            counted(known.dead),
            first_listener(known, routes).map_or_else(|| never.to_owned(), relative),
        ]
        .into_iter()
        .chain(has_sinks.then(|| sink.as_ref().map_or_else(|| "-".to_owned(), |sink| sink.words(now))))
        .chain(has_breakers.then(|| or_dash(breakers.words(&known.route, now).as_deref())))
        .chain([paused(known, pauses)])
        .collect::<Vec<String>>()
    });
    let titles = ["route", ">waiting", ">parked", ">blocked", ">dead", "first listener"].into_iter();
    let optional = [has_sinks.then_some("sink"), has_breakers.then_some("breaker")].into_iter().flatten();
    let titles: Vec<&str> = titles.chain(optional).chain(["paused"]).collect();
    output::table(&titles, rows)
}

/// `2 h ago by anna@shop: the mail server moves`, with the pattern in front that is paused instead of the route.
fn paused(known: &RouteRecord, pauses: &Pauses<'_>) -> String {
    let Some(pause) = pauses.holding(&known.route).next() else { return "-".to_owned() };
    let by_pattern = if pause.route == known.route { String::new() } else { format!("{}, ", pause.route) };
    short(&format!("{by_pattern}{}", pause_for_lists(pause).unwrap_or_default()), 80)
}

/// `2 h ago by anna@shop: the mail server moves`; `None` when it is not paused.
fn pause_for_lists(known: &RouteRecord) -> Option<String> {
    let by = shown(known.paused_by.as_deref().unwrap_or("an unknown user"));
    let why = known.pause_reason.as_deref().map_or_else(String::new, |why| format!(": {}", shown(why)));
    Some(format!("{} by {by}{why}", relative(known.paused_at?)))
}

async fn pause(Change { route, reason, output }: Change, yes: bool, config: &Config) -> Result<(), Failure> {
    let place = place::open(config).await?;
    let routes = place.routes().await?;
    let known = routes.iter().find(|known| known.route == route);
    let name = shown(&route.to_string()).into_owned();
    if known.is_none() && !route.is_pattern() {
        let unknown =
            format!("no listener has ever answered {name}, and none of its events is waiting{}", near(&route, &routes));
        if !yes && output::can_ask() {
            output::ask(&format!("{unknown}. Pause it anyway? [y/N] "))?;
        } else {
            let undo = match &config.remote {
                None => config.flags.command(&format!("outbox route forget {}", argument(&route.to_string()))),
                // To forget a route needs the database.
                Some(_) => config.flags.command(&resume_command(&route)),
            };
            let next = if unknown.ends_with('?') { " If" } else { "; if" };
            eprintln!("warning: {unknown}{next} the name is misspelt, run `{undo}`");
        }
    }
    let changed = place.pause(&route, &reason.audit()).await?;
    let hosts = hosts(&*place).await?;
    match known {
        Some(known) if !changed => eprintln!("{name} was paused already, {}", pause_for_lists(known).unwrap_or_default()),
        _ if route.is_pattern() => eprintln!("{}", covers(&route, &routes)),
        _ => {}
    }
    for other in holding(&route, &routes).into_iter().filter(|pause| pause.route != route) {
        let (pattern, pause) = (shown(&other.route.to_string()).into_owned(), pause_for_lists(other).unwrap_or_default());
        eprintln!(
            "note: the pattern {pattern} covers it and is paused as well, {pause}; events of {name} are delivered again when \
             both are resumed"
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
    let place = place::open(config).await?;
    let routes = place.routes().await?;
    let name = shown(&route.to_string()).into_owned();
    let others: Vec<&RouteRecord> = holding(&route, &routes).into_iter().filter(|pause| pause.route != route).collect();
    if others.is_empty() && !route.is_pattern() && !routes.iter().any(|known| known.route == route) {
        return Err(Failure::new(Exit::NotFound, format!("no route is called {name}{}", near(&route, &routes))));
    }
    // Before they go on.
    let held = if others.is_empty() { held_alone(&*place, &route, &routes).await? } else { Held::default() };
    let changed = place.resume(&route, &reason.audit()).await?;
    if !changed && !others.is_empty() {
        eprintln!("{name} was not paused itself");
    }
    let hosts = hosts(&*place).await?;
    let answer = Changed::new(&route, !others.is_empty(), changed, hosts);
    if others.is_empty() {
        for still in covered(&route, &routes).filter(|known| known.route != route && known.paused_at.is_some()) {
            let (own, pause) = (shown(&still.route.to_string()).into_owned(), pause_for_lists(still).unwrap_or_default());
            let resume = config.flags.command(&resume_command(&still.route));
            eprintln!("note: {own} is still paused itself, {pause}; `{resume}`");
        }
        return output::one(&answer, output.output, |_| resumed(&name, changed, held, hosts));
    }
    output::one(&answer, output.output, |_| String::new())?;
    let resume_pattern =
        |pause: &&RouteRecord| format!("resume the pattern: {}", config.flags.command(&resume_command(&pause.route)));
    let held: Vec<String> = others.iter().map(|pause| shown(&pause.route.to_string()).into_owned()).collect();
    let exit = if changed { Exit::Partly } else { Exit::Conflict };
    Err(Failure::new(exit, format!("{name} is still paused, by the pattern {}", held.join(" and ")))
        .details(others.iter().map(resume_pattern).collect()))
}

/// The result of forgetting a route.
#[derive(Serialize)]
struct Forgotten<'r> {
    #[serde(flatten)]
    route: &'r Route,
    forgotten: bool,
}

async fn forget(Change { route, reason, output }: Change, config: &Config) -> Result<(), Failure> {
    let store = database::ready(config).await?;
    let routes = store.count_routes().await?;
    let name = shown(&route.to_string()).into_owned();
    let refused = |why: String| Err(Failure::new(Exit::Conflict, format!("{name} cannot be forgotten: {why}")));
    let Some(known) = routes.iter().find(|known| known.route == route) else {
        return Err(Failure::new(Exit::NotFound, format!("no route is called {name}{}", near(&route, &routes))));
    };
    let unfinished = known.waiting + known.parked + known.blocked;
    if unfinished > 0 {
        let list = config.flags.command(&format!("outbox event list --route {}", argument(&route.to_string())));
        return refused(format!("{} not delivered yet; see {list}", count(unfinished, "event")));
    }
    let live = outbox::node::hosts(&*store).await?.into_iter().filter(|node| node.alive);
    for node in live {
        if let Some(plugin) = answering(&outbox::node::plugins(&node), &route) {
            return refused(format!("the plugin {} on {} answers it", shown(&plugin.name), shown(&node.label)));
        }
    }
    let forgotten = store.forget_route(&route, &reason.audit()).await?;
    if forgotten {
        database::tell_hosts(&*store).await;
    }
    output::one(&Forgotten { route: &route, forgotten }, output.output, |_| match (forgotten, known.dead) {
        (true, _) => format!("{name} is forgotten; a host that answers it would list it again\n"),
        (false, dead) => {
            format!("{name} is listed only because of its {}; there was nothing else to forget\n", count(dead, "dead event"))
        }
    })
}

/// How many events a pause alone keeps parked.
#[derive(Clone, Copy, Default)]
struct Held {
    events: u64,
    /// Whether there may be more.
    at_least: bool,
}

/// How many parked events are looked at for what they wait for.
const ASKED: u32 = 1_000;

async fn held_alone(place: &dyn Place, pause: &Route, routes: &[RouteRecord]) -> Result<Held, Failure> {
    if !routes.iter().any(|known| known.parked > 0 && pause.covers(&known.route)) {
        return Ok(Held::default());
    }
    let name = |name: &str| (name != Route::ANY).then(|| name.to_owned());
    let (aggregate_type, event_type) = (name(pause.aggregate_type.as_str()), name(pause.event_type.as_str()));
    let filter = Filter { set_aside: Some(SetAside::Parked), aggregate_type, event_type, ..Filter::default() };
    let parked = place.list(&filter, ASKED).await?;
    let pauses = Pauses::of(routes);
    let events = parked.iter().filter(|record| is_held_by(pause, record, &pauses)).count();
    Ok(Held { events: events as u64, at_least: parked.len() >= ASKED as usize })
}

/// Whether this pause, and no other, keeps a parked event from being delivered.
fn is_held_by(pause: &Route, parked: &Record, pauses: &Pauses<'_>) -> bool {
    let is_paused = parked.parked.as_deref().is_some_and(|reason| !is_unroutable(reason));
    let route = Route::new(parked.aggregate_type.as_str(), parked.event_type.as_str());
    is_paused && route.is_ok_and(|route| pauses.holding(&route).all(|holding| holding.route == *pause))
}

fn resumed(name: &str, changed: bool, held: Held, hosts: usize) -> String {
    if !changed {
        return format!("{name} was not paused\n");
    }
    let at_least = if held.at_least { "at least " } else { "" };
    let events = format!("{at_least}{}", count(held.events, "parked event"));
    let what = match (hosts, held.events) {
        (0, 0) => "no host is running".to_owned(),
        (0, _) => format!("{events} will be delivered when a host is started"),
        (_, 0) => format!("{} will know within {}", running(hosts), span(PAUSE_KNOWN_WITHIN)),
        _ => format!("{} will resume {events} within {}", running(hosts), span(PAUSE_KNOWN_WITHIN)),
    };
    format!("{name} is no longer paused; {what}\n")
}

/// How many hosts deliver now.
async fn hosts(place: &dyn Place) -> Result<usize, Failure> {
    Ok(place.nodes().await?.iter().filter(|node| node.alive).count())
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
pub(crate) fn near(route: &Route, routes: &[RouteRecord]) -> String {
    let near = route.near(routes.iter().map(|known| &known.route));
    match near.as_slice() {
        [] => String::new(),
        near => {
            let names: Vec<String> = near.iter().map(|near| shown(&near.to_string()).into_owned()).collect();
            format!("; {}", did_you_mean(&names))
        }
    }
}
