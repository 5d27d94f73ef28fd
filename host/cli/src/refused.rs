//! Names the rows that the database refused to delete or change.

use outbox::store::RefusedRows;

use crate::failure::{Exit, Failure};
use crate::output::count;

/// Fails if the database refused some rows. `done` is how many rows it did not refuse.
pub(crate) fn check(refused: &RefusedRows, done: u64, verb: &str) -> Result<(), Failure> {
    if refused.is_empty() {
        return Ok(());
    }
    let RefusedRows { count: events, first, gave_up } = refused;
    let exit = if done > 0 { Exit::Partly } else { Exit::Failed };
    let named = first.iter().take(RefusedRows::NAMED);
    let mut details: Vec<String> = named
        .map(|row| {
            let id = row.event_id.map_or_else(String::new, |id| format!(", {id}"));
            format!("seq {}{id}: {}", row.seq, row.error)
        })
        .collect();
    let more = events.saturating_sub(u64::try_from(details.len()).unwrap_or(u64::MAX));
    if more > 0 {
        details.push(format!("and {more} more"));
    }
    if *gave_up {
        details.push("these are too many for one run, so it ended early; other events that match may be left".to_owned());
    }
    details.push(
        "help: find the constraint, trigger, rule or row-level policy of the table that refuses them, then run the command again"
            .to_owned(),
    );
    Err(Failure::new(exit, format!("{} could not be {verb}", count(*events, "event"))).details(details))
}
