//! `outbox route`: which events go where, and which of them are held up.

use clap::{Args, Subcommand};
use outbox::store::{BlockedKey, RouteRecord};
use outbox::{AggregateType, Route};
use serde::Serialize;

use crate::audit::Reason;
use crate::config::{Config, layers};
use crate::database;
use crate::failure::{Exit, Failure};
use crate::output::{self, Format, Output, count, or_dash, relative, short, shown};

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
    /// The route: AGGREGATE_TYPE/EVENT_TYPE, or EVENT_TYPE alone for events without an aggregate type
    #[arg(value_name = "A/T", value_parser = parse)]
    route: Route,
    #[command(flatten)]
    reason: Reason,
    #[command(flatten)]
    output: Output,
}

/// A route as people write it. An event type may hold a slash, an aggregate type in front of it may not.
fn parse(text: &str) -> Result<Route, String> {
    let (aggregate_type, event_type) = text.split_once('/').unwrap_or((AggregateType::GLOBAL, text));
    Route::new(aggregate_type, event_type).map_err(|error| error.to_string())
}

/// What a pause or a resumption came to.
#[derive(Serialize)]
struct Changed {
    #[serde(flatten)]
    route: Route,
    paused: bool,
    /// False when it was so before.
    changed: bool,
}

impl RouteCommand {
    pub(crate) async fn run(self, config: &Config) -> Result<(), Failure> {
        match self {
            Self::List { output } => {
                let routes = database::ready(config).await?.count_routes().await?;
                output::many(&routes, output.output, |routes| if routes.is_empty() { String::new() } else { table(routes) })?;
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
        [
            short(&known.route.to_string(), 48),
            known.waiting.to_string(),
            known.parked.to_string(),
            known.blocked.to_string(),
            known.dead.to_string(),
            known.first_seen_at.map_or_else(|| "never".to_owned(), relative),
            paused(known).map_or_else(|| "-".to_owned(), |pause| short(&pause, 80)),
        ]
    });
    output::table(&["route", ">waiting", ">parked", ">blocked", ">dead", "first listener", "paused"], rows)
}

/// `2h ago by anna@shop: the mail server moves`; `None` when it is not paused.
fn paused(known: &RouteRecord) -> Option<String> {
    let since = relative(known.paused_at?);
    let by = known.paused_by.as_deref().unwrap_or("somebody");
    let why = known.pause_reason.as_deref().map_or_else(String::new, |why| format!(": {why}"));
    Some(format!("{since} by {by}{why}"))
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
    match known {
        None => eprintln!("note: no listener ever answered {name}, and no event of it waits{}", near(&route, &routes)),
        Some(known) if !changed => eprintln!("{name} was paused already, {}", paused(known).unwrap_or_default()),
        Some(_) => {}
    }
    output::one(&Changed { route, paused: true, changed }, output.output, |_| {
        format!("{name} is paused; its events wait until `outbox route resume {name}`\n")
    })
}

async fn resume(Change { route, reason, output }: Change, config: &Config) -> Result<(), Failure> {
    let store = database::ready(config).await?;
    let routes = store.count_routes().await?;
    let known = routes.iter().find(|known| known.route == route);
    let name = shown(&route.to_string()).into_owned();
    let Some(known) = known else {
        return Err(Failure::new(Exit::NotFound, format!("no route is called {name}{}", near(&route, &routes))));
    };
    let changed = store.resume(&route, &reason.audit()).await?;
    if changed {
        database::tell_hosts(&*store).await;
    } else {
        eprintln!("{name} was not paused");
    }
    output::one(&Changed { route, paused: false, changed }, output.output, |_| {
        let parked =
            if known.parked > 0 { format!("; that lets {} go on", count(known.parked, "parked event")) } else { String::new() };
        format!("{name} is not paused{parked}\n")
    })
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
            Some(id) => eprintln!("why: `outbox event why {id}`; a dead one goes with `outbox dead replay|skip|discard {id}`"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_written_with_or_without_its_aggregate_type() {
        assert_eq!(parse("Order/OrderPlaced").unwrap(), Route::new("Order", "OrderPlaced").unwrap());
        assert_eq!(parse("Heartbeat").unwrap(), Route::new(AggregateType::GLOBAL, "Heartbeat").unwrap());
        assert!(parse("Order/").unwrap_err().contains("event_type is empty"));
    }
}
