//! `outbox replay`: retries failed events and replays dead ones.

use std::time::Duration;

use clap::Args;
use outbox::dead::{FailedEvents, ReplayLimits};
use outbox::units::duration;
use serde::Serialize;

use crate::audit::ManyArgs;
use crate::config::Config;
use crate::failure::Failure;
use crate::flags::at_least_one;
use crate::output::{self, count};
use crate::place::{self, Failed, Progress, ReplayedFailed};
use crate::refused;

/// Deliver everything that failed again now: events waiting for another attempt, events deferred by their listener, and dead events
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  outbox replay --retry-count-threshold 20 --event-limit 10000 --time-limit 1h --yes\n  \
                        outbox replay --dry-run\n\n\
                        To replay only some dead events, use `outbox dead replay --all` with filters.")]
pub(crate) struct ReplayCommand {
    /// Skip events with more failed attempts than this
    #[arg(long, value_name = "N")]
    retry_count_threshold: Option<u32>,
    /// Stop after this long, like 10m
    #[arg(long, value_name = "SPAN", value_parser = duration::parse)]
    time_limit: Option<Duration>,
    /// Stop after this many events; waiting events go before dead ones
    #[arg(long, value_name = "N", value_parser = at_least_one::<u64>)]
    event_limit: Option<u64>,
    #[command(flatten)]
    many: ManyArgs,
}

/// The result of a replay of failed events.
#[derive(Serialize)]
struct Report {
    /// Events that waited for another attempt or were deferred, and are due now.
    retried_now: u64,
    /// Dead events that were set back to new.
    replayed: u64,
    /// Events that are still dead: they failed too often, or a limit was reached.
    left_dead: u64,
    dry_run: bool,
}

impl ReplayCommand {
    pub(crate) async fn run(self, config: &Config) -> Result<(), Failure> {
        let place = place::open(config).await?;
        let Failed { waiting, matching, dead, dead_before } = place.count_failed(self.retry_count_threshold).await?;
        let most = self.event_limit.unwrap_or(u64::MAX);
        let retried_now = waiting.min(most);
        let replayed = matching.min(most - retried_now);
        let wanted = retried_now.saturating_add(replayed);
        if self.many.dry_run || wanted == 0 {
            if !self.many.dry_run {
                eprintln!("no event to deliver again; nothing was done");
            }
            let left_dead = dead.saturating_sub(replayed);
            return self.show(&Report { retried_now, replayed, left_dead, dry_run: self.many.dry_run });
        }
        let parts = [(retried_now, "waiting event"), (replayed, "dead event")];
        let parts: Vec<String> = parts.iter().filter(|(many, _)| *many > 0).map(|(many, noun)| count(*many, noun)).collect();
        output::confirm(&format!("deliver {} again", parts.join(" and ")), self.many.yes)?;
        let limits = ReplayLimits { time: self.time_limit, events: Some(wanted), ..ReplayLimits::default() };
        let failed = FailedEvents {
            max_attempts: self.retry_count_threshold,
            max_waiting: Some(retried_now),
            max_dead: Some(replayed),
            dead_before: Some(dead_before),
            ..FailedEvents::default()
        };
        let audit = self.many.reason.audit();
        let replay = async |so_far: Progress<'_>| place.replay_failed(&failed, &limits, &audit, so_far).await;
        let ReplayedFailed { retried_now, replayed, refused } =
            output::counting("replaying", "brought back", wanted, replay).await?;
        self.show(&Report { retried_now, replayed, left_dead: dead.saturating_sub(replayed), dry_run: false })?;
        refused::check(&refused, retried_now.saturating_add(replayed), "changed")
    }

    fn show(&self, report: &Report) -> Result<(), Failure> {
        output::one(report, self.many.output.output, |report| {
            let Report { retried_now, replayed, left_dead, dry_run } = report;
            let is = |many: u64| match (dry_run, many) {
                (true, _) => "would be",
                (false, 1) => "is",
                (false, _) => "are",
            };
            let stay = match (dry_run, left_dead) {
                (true, _) => "would stay",
                (false, 1) => "stays",
                (false, _) => "stay",
            };
            format!(
                "{} {} due now\n{} {} new again\n{} {stay} dead\n",
                count(*retried_now, "waiting event"),
                is(*retried_now),
                count(*replayed, "dead event"),
                is(*replayed),
                count(*left_dead, "dead event")
            )
        })
    }
}
