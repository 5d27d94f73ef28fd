//! `outbox purge`: deletes old finished events, now.

use std::time::{Duration, Instant};

use clap::Args;
use outbox::event::Status;
use outbox::purge::PurgeLimits;
use outbox::store::Purged;
use outbox::units::duration;
use serde::Serialize;

use crate::audit::Reason;
use crate::config::Config;
use crate::failure::Failure;
use crate::output::{self, Output, count, span};
use crate::place::{self, Confirmed, Purging, WouldPurge};

/// Delete delivered or dead events that are old enough
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  outbox purge --older-than 30d --dry-run\n  outbox purge --dead --older-than 90d --yes")]
pub(crate) struct PurgeCommand {
    /// Only events finished longer ago than this; default purge.retention, or purge.dead_retention with --dead
    #[arg(long, value_name = "SPAN", value_parser = duration::parse)]
    older_than: Option<Duration>,
    /// Stop after this many events
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Stop after this long, like 10m
    #[arg(long, value_name = "SPAN", value_parser = duration::parse)]
    time_limit: Option<Duration>,
    /// Delete dead events instead of delivered ones
    #[arg(long)]
    dead: bool,
    /// Print how many events would be affected, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    reason: Reason,
    #[command(flatten)]
    output: Output,
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    purged: Purged,
    dry_run: bool,
}

impl PurgeCommand {
    pub(crate) async fn run(self, config: &Config) -> Result<(), Failure> {
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
        let show = |purged: Purged, dry_run: bool| {
            output::one(&Report { purged, dry_run }, self.output.output, |report| {
                let would = if dry_run { "would be " } else { "" };
                format!("{} {would}deleted\n", count(report.purged.count, "event"))
            })
        };
        if self.dry_run || wanted == 0 {
            return show(Purged { count: wanted, ..Purged::default() }, self.dry_run);
        }
        let events = format!("{} that finished more than {} ago", count(wanted, &format!("{status} event")), span(older_than));
        output::confirm(&format!("permanently delete {events}"), self.yes)?;
        let bar = output::progress("deleting", Some(wanted));
        let limits = PurgeLimits { time: self.time_limit, rows: self.limit };
        let confirmed = Confirmed { finished_before, count: purgeable.count };
        let (started, mut done) = (Instant::now(), 0);
        let mut so_far = |events| {
            done = events;
            bar.set_position(events);
        };
        let ended = place.purge(what, confirmed, limits, &self.reason.audit(), &mut so_far).await;
        bar.finish_and_clear();
        let purged = ended.map_err(|failure| failure.after(done, "deleted"))?;
        show(purged, false)?;
        if purged.count < wanted && self.time_limit.is_some_and(|limit| started.elapsed() >= limit) {
            eprintln!("the time limit was reached; run the command again for the rest");
        }
        Ok(())
    }
}
