//! `outbox replay`: everything that failed goes again, now.

use std::time::{Duration, Instant};

use clap::Args;
use outbox::dead::{DeadEvents, ReplayLimits};
use outbox::store::DeadFilter;
use serde::Serialize;

use crate::audit::Reason;
use crate::config::Config;
use crate::database;
use crate::failure::Failure;
use crate::output::{self, Output, count};

/// Deliver everything that failed again now: events waiting for another attempt, events put off by their listener, and dead events
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  outbox replay --retry-count-threshold 20 --event-limit 10000 --time-limit 1h --yes\n  \
                        outbox replay --dry-run\n\n\
                        To replay only some dead events, use `outbox dead replay --all` with filters.")]
pub(crate) struct ReplayCommand {
    /// Skip events with more failed attempts than this
    #[arg(long, value_name = "N")]
    retry_count_threshold: Option<u32>,
    /// Stop after this long, like 10m
    #[arg(long, value_name = "SPAN", value_parser = humantime::parse_duration)]
    time_limit: Option<Duration>,
    /// Stop after this many events; waiting events go before dead ones
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    event_limit: Option<u64>,
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

/// What became of the events that failed.
#[derive(Serialize)]
struct Report {
    /// Waited for another attempt, or were put off by their listener, and are due now.
    retried_now: u64,
    /// Were dead, and are new again.
    replayed: u64,
    /// Are dead still: they failed too often, or a limit was reached.
    left_dead: u64,
    dry_run: bool,
}

impl ReplayCommand {
    pub(crate) async fn run(self, config: &Config) -> Result<(), Failure> {
        let store = database::ready(config).await?;
        let dead = DeadEvents::new(store.clone());
        let filter = DeadFilter { max_attempts: self.retry_count_threshold, ..DeadFilter::default() };
        let waiting = store.count_waiting(self.retry_count_threshold).await?;
        let all = dead.count(&DeadFilter::default()).await?;
        let matching = dead.count(&filter).await?;
        if self.dry_run {
            let most = self.event_limit.unwrap_or(u64::MAX);
            let retried_now = waiting.min(most);
            let replayed = matching.min(most - retried_now);
            return self.show(&Report { retried_now, replayed, left_dead: all.saturating_sub(replayed), dry_run: true });
        }
        let parts = [(waiting, "waiting event"), (matching, "dead event")];
        let parts: Vec<String> = parts.iter().filter(|(many, _)| *many > 0).map(|(many, noun)| count(*many, noun)).collect();
        let what = format!("deliver {} again", parts.join(" and "));
        if waiting + matching > 0 {
            output::confirm(&what, self.yes)?;
        }
        let started = Instant::now();
        let limits = |gone: u64| ReplayLimits {
            time: self.time_limit.map(|limit| limit.saturating_sub(started.elapsed())),
            events: self.event_limit.map(|most| most.saturating_sub(gone)),
            ..ReplayLimits::default()
        };
        let audit = self.reason.audit();
        let bar = output::progress("replaying", None);
        let retried_now =
            dead.retry_all_now(self.retry_count_threshold, &limits(0), &audit, |so_far| bar.set_position(so_far)).await?;
        let replayed =
            dead.replay_all(&filter, &limits(retried_now), &audit, |so_far| bar.set_position(retried_now + so_far)).await?;
        bar.finish_and_clear();
        database::tell_hosts(&*store).await;
        self.show(&Report { retried_now, replayed, left_dead: all.saturating_sub(replayed), dry_run: false })
    }

    fn show(&self, report: &Report) -> Result<(), Failure> {
        output::one(report, self.output.output, |report| {
            let Report { retried_now, replayed, left_dead, dry_run } = report;
            if *dry_run {
                format!(
                    "{retried_now} waiting events would be due now\n{replayed} dead events would be new again\n{left_dead} dead events would stay dead\n"
                )
            } else {
                format!(
                    "{retried_now} waiting events are due now\n{replayed} dead events are new again\n{left_dead} dead events stay dead\n"
                )
            }
        })
    }
}
