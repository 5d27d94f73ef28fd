//! `outbox stats`: how many events stand where.

use clap::Args;

use crate::config::Config;
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::place;

/// Show how many events are in each state
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  outbox stats --output json\n  outbox stats --url http://127.0.0.1:8080")]
pub(crate) struct StatsCommand {
    #[command(flatten)]
    output: Output,
}

impl StatsCommand {
    pub(crate) async fn run(self, config: &Config) -> Result<(), Failure> {
        let stats = place::open(config).await?.stats().await?;
        output::one(&stats, self.output.output, |stats| {
            let oldest = stats.oldest_pending_seconds.longest();
            let cause = oldest.map_or_else(String::new, |(cause, _)| format!("; cause: {cause}"));
            let meaning = format!("how long the oldest due event has waited{cause}");
            let rows = [
                ("new", stats.new.to_string(), "waiting for their first attempt, or deferred by their listener"),
                ("retry", stats.retry.to_string(), "failed, waiting for another attempt"),
                ("claimed", stats.in_flight.to_string(), "of these two: claimed by a host now; `in_flight` in JSON"),
                ("parked", stats.parked.to_string(), "waiting for a listener, or for the end of a pause"),
                (
                    "blocked",
                    stats.blocked.to_string(),
                    "waiting behind an earlier event of the same aggregate; see `outbox route blocked`",
                ),
                ("done", stats.done.to_string(), "delivered, kept until they are purged"),
                ("dead", stats.dead.to_string(), "given up; see `outbox dead list`"),
                ("oldest", oldest.map_or_else(|| "-".to_owned(), |(_, age)| output::span(age)), meaning.as_str()),
            ];
            let rows = rows.map(|(name, value, meaning)| [name.to_owned(), value, meaning.to_owned()]);
            output::table(&["events", ">count", "meaning"], rows)
        })
    }
}
