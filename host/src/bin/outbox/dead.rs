//! `outbox dead`: events that were given up.

use clap::{Args, Subcommand};
use outbox::EventId;
use outbox::dead::{DeadEvents, ReplayLimits};
use outbox::event::Status;
use outbox::store::{Audit, DeadFilter};
use serde::Serialize;

use crate::config::Config;
use crate::database;
use crate::event::{self, Fields, Paging};
use crate::failure::{Exit, Failure};
use crate::output::{self, Output, count};

#[derive(Subcommand, Debug)]
pub(crate) enum DeadCommand {
    /// Show dead events, oldest first
    #[command(after_help = "Example:\n  outbox dead list --error timeout --newest-first")]
    List {
        #[command(flatten)]
        fields: Fields,
        #[command(flatten)]
        paging: Paging,
        #[command(flatten)]
        output: Output,
    },
    /// Show one dead event whole, with its payload
    #[command(after_help = "Example:\n  outbox dead show 01JD8Q4T9W3Z6M1N5B7C2V8X0K")]
    Show {
        /// The event's id
        id: EventId,
        #[command(flatten)]
        output: Output,
    },
    /// Count dead events
    #[command(after_help = "Example:\n  outbox dead count --type OrderPlaced")]
    Count {
        #[command(flatten)]
        filter: DeadArgs,
        #[command(flatten)]
        output: Output,
    },
    /// Set dead events back to new, so that they are delivered again
    #[command(after_help = "Examples:\n  outbox dead replay 01JD8Q4T9W3Z6M1N5B7C2V8X0K\n  \
                            outbox dead replay --all --error timeout --dry-run")]
    Replay(Replay),
    /// Delete dead events for good
    #[command(after_help = "Example:\n  outbox dead discard 01JD8Q4T9W3Z6M1N5B7C2V8X0K --yes")]
    Discard {
        /// The events' ids
        #[arg(required = true)]
        ids: Vec<EventId>,
        /// Do it without a question
        #[arg(long, short)]
        yes: bool,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Replay {
    /// The events' ids
    #[arg(required_unless_present = "all", conflicts_with_all = ["all", "event_type", "aggregate_type", "tenant", "error"])]
    ids: Vec<EventId>,
    /// All that match, and are dead by now
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    filter: DeadArgs,
    /// Only say how many it would be
    #[arg(long)]
    dry_run: bool,
    /// Do it without a question
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    output: Output,
}

/// Which dead events.
#[derive(Args, Clone, Debug)]
pub(crate) struct DeadArgs {
    /// Only of this event type
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// Only of this aggregate type
    #[arg(long, value_name = "TYPE")]
    aggregate_type: Option<String>,
    /// Only of this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Only with this text in the last error
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
}

impl DeadArgs {
    fn filter(&self) -> DeadFilter {
        DeadFilter {
            event_type: self.event_type.clone(),
            aggregate_type: self.aggregate_type.clone(),
            tenant_id: self.tenant.clone(),
            error: self.error.clone(),
            ..DeadFilter::default()
        }
    }
}

#[derive(Serialize)]
struct Counted {
    count: u64,
}

/// What became of the named events.
#[derive(Serialize)]
struct Done {
    count: u64,
    /// Not there, or not dead.
    missing: Vec<EventId>,
    dry_run: bool,
}

impl DeadCommand {
    pub(crate) async fn run(self, config: &Config) -> Result<(), Failure> {
        match self {
            Self::List { fields, paging, output } => {
                event::list(fields.filter(Some(Status::Dead))?, &paging, output.output, config).await
            }
            Self::Show { id, output } => event::show(id, Some(Status::Dead), output.output, config).await,
            Self::Count { filter, output } => {
                let counted = Counted { count: dead(config).await?.count(&filter.filter()).await? };
                output::one(&counted, output.output, |counted| format!("{}\n", counted.count))
            }
            Self::Replay(replay) if replay.all => replay_all(replay, config).await,
            Self::Replay(Replay { ids, dry_run, output, .. }) => {
                let dead = dead(config).await?;
                let step = async |id| if dry_run { is_dead(config, id).await } else { Ok(dead.replay(id, &by_hand()).await?) };
                each("replayed", ids, dry_run, output, step).await
            }
            Self::Discard { ids, yes, output } => {
                let dead = dead(config).await?;
                let many = u64::try_from(ids.len()).unwrap_or(u64::MAX);
                output::confirm(&format!("delete {} for good", count(many, "dead event")), yes)?;
                each("discarded", ids, false, output, async |id| Ok(dead.discard(id, &by_hand()).await?)).await
            }
        }
    }
}

/// Who sits at this terminal, as far as the environment tells.
pub(crate) fn by_hand() -> Audit {
    Audit::by(crate::config::user_name())
}

async fn dead(config: &Config) -> Result<DeadEvents, Failure> {
    Ok(DeadEvents::new(database::ready(config).await?))
}

async fn is_dead(config: &Config, id: EventId) -> Result<bool, Failure> {
    let row = database::ready(config).await?.get(id).await?;
    Ok(row.is_some_and(|row| row.status == Status::Dead))
}

/// Does something to each event, and tells which were not there.
async fn each(
    verb: &str,
    ids: Vec<EventId>,
    dry_run: bool,
    output: Output,
    step: impl AsyncFn(EventId) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let mut done = Done { count: 0, missing: Vec::new(), dry_run };
    for id in ids {
        if step(id).await? {
            done.count += 1;
        } else {
            done.missing.push(id);
        }
    }
    output::one(&done, output.output, |done| told(verb, done.count, dry_run))?;
    if done.missing.is_empty() {
        return Ok(());
    }
    let ids: Vec<String> = done.missing.iter().map(EventId::to_string).collect();
    let exit = if done.count == 0 { Exit::NotFound } else { Exit::Partly };
    Err(Failure::new(exit, format!("not there, or not dead: {}", ids.join(", "))))
}

fn told(verb: &str, events: u64, dry_run: bool) -> String {
    let would = if dry_run { "would be " } else { "" };
    format!("{} {would}{verb}\n", count(events, "event"))
}

async fn replay_all(replay: Replay, config: &Config) -> Result<(), Failure> {
    let Replay { filter, dry_run, yes, output, .. } = replay;
    let filter = filter.filter();
    let dead = dead(config).await?;
    let matching = dead.count(&filter).await?;
    let show = |events: u64| {
        let done = Done { count: events, missing: Vec::new(), dry_run };
        output::one(&done, output.output, |done| told("replayed", done.count, dry_run))
    };
    if dry_run || matching == 0 {
        return show(matching);
    }
    output::confirm(&format!("set {} back to new and deliver them again", count(matching, "dead event")), yes)?;
    let bar = output::progress("replaying", Some(matching));
    let replayed = dead.replay_all(&filter, &ReplayLimits::default(), &by_hand(), |so_far| bar.set_position(so_far)).await;
    bar.finish_and_clear();
    show(replayed?)
}
