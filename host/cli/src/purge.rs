//! `outbox purge`: deletes old finished events, now.

use std::time::{Duration, Instant};

use clap::Args;
use outbox::event::Status;
use outbox::purge::PurgeLimits;
use outbox::store::{Purged, Undeletable};
use outbox::units::duration;
use serde::Serialize;

use crate::audit::ManyArgs;
use crate::config::Config;
use crate::failure::{Exit, Failure};
use crate::flags::at_least_one;
use crate::output::{self, count, span};
use crate::place::{self, Confirmed, Progress, Purging, WouldPurge};

/// Delete delivered or dead events that are old enough
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  outbox purge --older-than 30d --dry-run\n  outbox purge --dead --older-than 90d --yes")]
pub(crate) struct PurgeCommand {
    /// Only events finished longer ago than this; default purge.retention, or purge.dead_retention with --dead
    #[arg(long, value_name = "SPAN", value_parser = duration::parse)]
    older_than: Option<Duration>,
    /// Stop after this many events
    #[arg(long, value_name = "N", value_parser = at_least_one::<u64>)]
    limit: Option<u64>,
    /// Stop after this long, like 10m
    #[arg(long, value_name = "SPAN", value_parser = duration::parse)]
    time_limit: Option<Duration>,
    /// Delete dead events instead of delivered ones
    #[arg(long)]
    dead: bool,
    #[command(flatten)]
    many: ManyArgs,
}

#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    purged: &'a Purged,
    dry_run: bool,
}

impl PurgeCommand {
    pub(crate) async fn run(self, config: &Config) -> Result<(), Failure> {
        let ManyArgs { dry_run, yes, reason, output } = self.many;
        let (what, status) = if self.dead { (Purging::Dead, Status::Dead) } else { (Purging::Done, Status::Done) };
        let place = place::open(config).await?;
        let WouldPurge { older_than, finished_before, purgeable } = place.purgeable(what, self.older_than).await?;
        let wanted = purgeable.count.min(self.limit.unwrap_or(u64::MAX));
        if purgeable.blocking > 0 {
            eprintln!(
                "{} kept, because later events of the same aggregates wait behind them; replay, skip or discard them: see outbox route blocked",
                count(purgeable.blocking, &format!("{status} event"))
            );
        }
        let show = |purged: &Purged, dry_run: bool| {
            output::one(&Report { purged, dry_run }, output.output, |report| {
                let would = if dry_run { "would be " } else { "" };
                format!("{} {would}deleted\n", count(report.purged.count, "event"))
            })
        };
        if dry_run || wanted == 0 {
            return show(&Purged { count: wanted, ..Purged::default() }, dry_run);
        }
        let events = format!("{} that finished more than {} ago", count(wanted, &format!("{status} event")), span(older_than));
        output::confirm(&format!("permanently delete {events}"), yes)?;
        let limits = PurgeLimits { time: self.time_limit, rows: self.limit };
        let confirmed = Confirmed { finished_before, count: purgeable.count };
        let (started, audit) = (Instant::now(), reason.audit());
        let purge = async |so_far: Progress<'_>| place.purge(what, confirmed, limits, &audit, so_far).await;
        let purged = output::counting("deleting", "deleted", wanted, purge).await?;
        show(&purged, false)?;
        if purged.count < wanted && self.time_limit.is_some_and(|limit| started.elapsed() >= limit) {
            eprintln!("the time limit was reached; run the command again for the rest");
        }
        if purged.undeletable.count > 0 { Err(undeletable(&purged)) } else { Ok(()) }
    }
}

/// Names the events that the database did not delete.
fn undeletable(purged: &Purged) -> Failure {
    let Undeletable { count: events, first, gave_up } = &purged.undeletable;
    let exit = if purged.count > 0 { Exit::Partly } else { Exit::Failed };
    let named = first.iter().take(Undeletable::NAMED);
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
        details.push(
            "these are too many for one purge, so it ended early; other events that are old enough may be left".to_owned(),
        );
    }
    details.push(
        "help: find the foreign key, trigger or row-level policy of the table that keeps them, then run the command again"
            .to_owned(),
    );
    Failure::new(exit, format!("{} could not be deleted", count(*events, "event"))).details(details)
}
