//! `outbox event why`: where an event is, what happened to it, and what happens next.

use outbox::EventId;
use outbox::event::Status;
use outbox::why::{ActionCode, Explanation, State, attempt, parts};

use crate::config::{Config, Flags};
use crate::failure::Failure;
use crate::output::{self, Colour, Format, paint, relative_to as at, shown};
use crate::place;

/// Prints the page of one event.
pub(crate) async fn why(id: EventId, format: Format, config: &Config) -> Result<(), Failure> {
    let Some(mut why) = place::open(config).await?.why(id).await? else {
        let hint = "it may already have been discarded or purged; see `outbox event list` and `outbox audit list`";
        return Err(Failure::no_such_event(id, hint));
    };
    complete(&mut why, &config.flags);
    output::one(&why, format, text)
}

/// Gives the commands the flags of this call, but for the one that needs the database where this call does not.
fn complete(why: &mut Explanation, flags: &Flags) {
    for action in &mut why.actions {
        if !(flags.are_of_host && action.code == ActionCode::ExamineDatabase) {
            action.command = flags.command(&action.command);
        }
    }
}

fn text(why: &Explanation) -> String {
    let colour = match why.state {
        State::Done => Colour::Green,
        State::Dead | State::DeadBlocking | State::Stranded => Colour::Red,
        State::Claimed | State::Due | State::Delayed | State::Deferred => Colour::Faint,
        _ => Colour::Yellow,
    };
    let aggregate = why.aggregate_id.as_deref().map_or_else(String::new, |id| format!(" of {}", shown(id)));
    let counters = &why.counters;
    let stands = stands_as(counters.status, why.parked.is_some(), why.behind.is_some());
    let mut text = format!("{}  {}{aggregate}  {}\n\n", why.event_id, shown(&why.route), paint(&stands, colour));
    text.push_str(&format!("{}\n\n", shown(&why.sentence)));
    if let Some(error) = &why.last_error {
        let (first, rest) = parts(error);
        // What the sentence above has told is not told again.
        let is_told = why.sentence.contains(&*shown(first.trim_end_matches('.')));
        match (is_told, rest) {
            (false, _) => text.push_str(&format!("last error  {}\n", shown(error))),
            (true, "") => {}
            (true, rest) => text.push_str(&format!("details     {}\n", shown(rest))),
        }
    }
    if let Some(cost) = &why.last_cost {
        text.push_str(&format!("cost        {}\n", attempt(cost, why.last_plugin.as_deref())));
    }
    text.push_str(&format!("counted     {}\n\n", why.counted()));
    let rows = why.history.iter().map(|step| {
        let until = step.until.map_or_else(String::new, |until| format!(" (last batch {})", at(until, why.now)));
        [at(step.at, why.now), step.at.to_string(), format!("{}{until}", shown(&step.what))]
    });
    text.push_str(&output::table(&[">when", "at", "what happened"], rows));
    if !why.actions.is_empty() {
        let said: Vec<_> = why.actions.iter().map(|action| (shown(&action.command), shown(&action.meaning))).collect();
        let pairs: Vec<(&str, String)> = said.iter().map(|(command, meaning)| (&**command, meaning.to_string())).collect();
        text.push_str(&format!("\n{}", output::pairs(&pairs)));
    }
    text
}

/// A status, and what the event waits for without a time.
pub(crate) fn stands_as(status: Status, is_parked: bool, is_behind: bool) -> String {
    match (is_parked, is_behind) {
        (true, _) => format!("{status} (parked)"),
        (false, true) => format!("{status} (blocked)"),
        (false, false) => status.to_string(),
    }
}
