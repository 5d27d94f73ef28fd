//! `outbox route blocked`: which aggregates wait behind an event that is not resolved, and what resolves it.

use outbox::event::Status;
use outbox::store::{BlockedKey, Filter};
use outbox::why::{Action, ActionCode, MISSPELT, State, never_had_listener};
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
    /// Why the event that they wait behind is parked; `None` when it is not.
    parked: Option<String>,
}

/// Lists them, the longest queue first, and tells below what lets that one go on.
pub(super) async fn blocked(limit: u32, format: Format, config: &Config) -> Result<(), Failure> {
    let place = place::open(config).await?;
    let mut keys = Vec::new();
    for key in place.blocked(limit).await? {
        keys.push(Blocked { parked: parked(&*place, &key).await?, key });
    }
    output::many(&keys, format, |keys| if keys.is_empty() { String::new() } else { blocked_table(keys) })?;
    if format == Format::Table {
        match keys.first().and_then(|first| first.key.event_id) {
            None if keys.is_empty() => eprintln!("no event waits behind another"),
            None => {}
            Some(id) => eprintln!("{}", way_on(&*place, id, config).await?),
        }
    }
    Ok(())
}

/// Why the event is parked that others wait behind.
async fn parked(place: &dyn Place, key: &BlockedKey) -> Result<Option<String>, Failure> {
    // Only an event that waits for something that is not time can be parked.
    let may_be = key.due_at.is_none() && matches!(key.status, Some(Status::New | Status::Retry));
    if !may_be {
        return Ok(None);
    }
    let from = Filter { after: key.seq.checked_sub(1), ..Filter::default() };
    let found = place.list(&from, 1).await?.pop();
    Ok(found.filter(|record| record.seq == key.seq).and_then(|record| record.parked))
}

/// What lets those go on that wait behind this event.
async fn way_on(place: &dyn Place, id: EventId, config: &Config) -> Result<String, Failure> {
    let command = |words: &str| config.flags.command(words);
    let of_it = |what: &str| command(&format!("outbox {what} {}", argument(id.as_str())));
    let why = format!("why: `{}`", of_it("event why"));
    let Some(explained) = place.why(id).await? else { return Ok(why) };
    let resumes = |action: &&Action| matches!(action.code, ActionCode::ResumeRoute | ActionCode::ResumePattern);
    let next = match explained.state {
        State::DeadBlocking => format!(
            "it is dead: `{}` delivers it again, and `{}` lets the others go on",
            of_it("dead replay"),
            of_it("dead skip")
        ),
        State::Paused => {
            let resume: Vec<_> = explained.actions.iter().filter(resumes).map(|action| command(&action.command)).collect();
            format!("its route is paused: `{}`", resume.join("`, `"))
        }
        State::Parked => {
            let routes = place.routes().await?;
            let of = Route::try_from(explained.route.split_once('/').unwrap_or_default());
            let never = of.is_ok_and(|of| never_had_listener(&of, &routes));
            let route = shown(&explained.route);
            let way_out = if never { format!("; if that name is a mistake, {MISSPELT}") } else { String::new() };
            format!("it waits for a listener: add a plugin that answers {route}{way_out}")
        }
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
