//! `outbox purge`: deletes old finished events, now.

use std::time::{Duration, Instant};

use clap::Args;
use outbox::event::Status;
use outbox::purge::PurgeLimits;
use outbox::store::Purged;
use outbox::units::duration;
use serde::Serialize;

use crate::audit::ManyArgs;
use crate::config::Config;
use crate::failure::Failure;
use crate::flags::at_least_one;
use crate::output::{self, count, span};
use crate::place::{self, Confirmed, Progress, Purging, WouldPurge};
use crate::refused;

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
        refused::check(&purged.undeletable, purged.count, "deleted")
    }
}
