//! `outbox route blocked`: which aggregates wait behind an event that is not resolved, and what resolves it.

use outbox::event::Status;
use outbox::listener::is_unroutable;
use outbox::store::{BlockedKey, Filter, RouteRecord};
use outbox::why::{Action, ActionCode, MISSPELT, Pauses, State, may_be_misspelt};
use outbox::{EventId, Route};
use serde::Serialize;

use crate::config::Config;
use crate::failure::Failure;
use crate::output::{self, Format, argument, or_dash, relative, short, shown};
use crate::place::{self, Place};

/// An aggregate whose events wait behind another one.
#[derive(Serialize)]
struct Blocked {
    #[serde(flatten)]
    key: BlockedKey,
    /// Why the event that they wait behind is parked; `None` when it is not, or when the pause that parked it is over.
    parked: Option<String>,
}

/// Lists them, the longest queue first, and tells below what lets that one go on.
pub(super) async fn blocked(limit: u32, format: Format, config: &Config) -> Result<(), Failure> {
    let place = place::open(config).await?;
    let keys = place.blocked(limit).await?;
    let routes = if keys.iter().any(may_be_parked) { place.routes().await? } else { Vec::new() };
    let mut all = Vec::new();
    for key in keys {
        let parked = if may_be_parked(&key) { parked(&*place, &key).await? } else { None };
        all.push(Blocked { parked: parked.filter(|reason| is_still_so(reason, &key, &routes)), key });
    }
    output::many(&all, format, |all| if all.is_empty() { String::new() } else { blocked_table(all) })?;
    if format == Format::Table {
        match all.first().map(|first| (first, first.key.event_id)) {
            None => eprintln!("no event waits behind another"),
            Some((_, None)) => {}
            Some((first, Some(id))) => eprintln!("{}", way_on(&*place, first, id, &routes, config).await?),
        }
    }
    Ok(())
}

/// Whether the event that others wait behind waits for something that is not time.
fn may_be_parked(key: &BlockedKey) -> bool {
    key.due_at.is_none() && matches!(key.status, Some(Status::New | Status::Retry))
}

/// Why that event is parked.
async fn parked(place: &dyn Place, key: &BlockedKey) -> Result<Option<String>, Failure> {
    let from = Filter { after: key.seq.checked_sub(1), ..Filter::default() };
    let found = place.list(&from, 1).await?.pop();
    Ok(found.filter(|record| record.seq == key.seq).and_then(|record| record.parked))
}

/// Whether it waits for a listener, or a pause holds it still.
fn is_still_so(parked: &str, key: &BlockedKey, routes: &[RouteRecord]) -> bool {
    is_unroutable(parked) || route(key).is_some_and(|route| Pauses::of(routes).holding(&route).next().is_some())
}

fn route(key: &BlockedKey) -> Option<Route> {
    Route::new(key.aggregate_type.as_str(), key.event_type.as_deref()?).ok()
}

/// What lets those go on that wait behind this event.
async fn way_on(
    place: &dyn Place,
    blocked: &Blocked,
    id: EventId,
    routes: &[RouteRecord],
    config: &Config,
) -> Result<String, Failure> {
    let command = |words: &str| config.flags.command(words);
    let of_it = |what: &str| command(&format!("outbox {what} {}", argument(id.as_str())));
    let why = format!("why: `{}`", of_it("event why"));
    let Some(explained) = place.why(id).await? else { return Ok(why) };
    let resumes = |action: &&Action| matches!(action.code, ActionCode::ResumeRoute | ActionCode::ResumePattern);
    let next = match explained.state {
        State::DeadBlocking => format!(
            "it is dead: `{}` delivers it again, and `{}` unblocks the others",
            of_it("dead replay"),
            of_it("dead skip")
        ),
        State::Paused => {
            let resume: Vec<_> = explained.actions.iter().filter(resumes).map(|action| command(&action.command)).collect();
            format!("its route is paused: `{}`", resume.join("`, `"))
        }
        State::Parked => match &blocked.parked {
            None => format!("its pause is over: it is delivered when a host that answers {} runs", shown(&explained.route)),
            Some(reason) => {
                let misspelt = route(&blocked.key).is_some_and(|route| may_be_misspelt(reason, &route, routes));
                let way_out = if misspelt { format!("; if that name is a mistake, {MISSPELT}") } else { String::new() };
                format!("it waits for a listener: add a plugin that answers {}{way_out}", shown(&explained.route))
            }
        },
        _ => return Ok(why),
    };
    Ok(format!("{why}; {next}"))
}

fn blocked_table(blocked: &[Blocked]) -> String {
    let rows = blocked.iter().map(|Blocked { key, parked }| {
        [
            short(&format!("{}/{}", key.aggregate_type, key.aggregate_id), 48),
            key.waiting.to_string(),
            key.event_id.map_or_else(|| key.seq.to_string(), |id| id.to_string()),
            key.event_type.as_deref().map_or_else(|| "-".to_owned(), |event_type| short(event_type, 32)),
            key.status.map_or_else(|| "gone".to_owned(), |status| status.to_string()),
            key.due_at.map_or_else(|| "-".to_owned(), relative),
            or_dash(parked.as_deref().or(key.last_error.as_deref())),
        ]
    });
    output::table(&["aggregate", ">waiting", "behind", "type", "status", "due", "~cause"], rows)
}
