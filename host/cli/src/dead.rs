//! `outbox dead`: lists, replays, skips and discards dead events.

mod filter;

use clap::{Args, Subcommand};
use indicatif::ProgressBar;
use outbox::EventId;
use outbox::dead::ReplayLimits;
use outbox::event::Status;
use outbox::store::Record;
use serde::Serialize;

use crate::audit::{ManyArgs, Reason};
use crate::config::Config;
use crate::database;
use crate::dry_run::{self, Candidate};
use crate::event::{self, Fields, Paging, stands};
use crate::failure::{Exit, Failure};
use crate::flags::at_least_one;
use crate::names::Names;
use crate::output::{self, Output, count};
use crate::place::{self, Change, Place, Progress, ReplayedDead};
use crate::refused;
use filter::{DeadArgs, Death, Limits};

#[derive(Subcommand, Debug)]
pub(crate) enum DeadCommand {
    /// List dead events, oldest first
    #[command(after_help = "Example:\n  outbox dead list --error deadline --since 2h --newest-first")]
    List {
        #[command(flatten)]
        fields: Fields,
        #[command(flatten)]
        death: Death,
        #[command(flatten)]
        paging: Paging,
        #[command(flatten)]
        output: Output,
    },
    /// Show one dead event with its payload
    #[command(after_help = "Example:\n  outbox dead show 01JD8Q4T9W3Z6M1N5B7C2V8X0K")]
    Show {
        /// The event's ID
        id: EventId,
        #[command(flatten)]
        output: Output,
    },
    /// Count dead events
    #[command(after_help = "Example:\n  outbox dead count --type OrderPlaced --since 2h")]
    Count {
        #[command(flatten)]
        names: Names,
        #[command(flatten)]
        filter: DeadArgs,
        #[command(flatten)]
        death: Death,
        #[command(flatten)]
        output: Output,
    },
    /// Replay dead events: set them back to new, so that they are delivered again
    #[command(after_help = "Examples:\n  outbox dead replay 01JD8Q4T9W3Z6M1N5B7C2V8X0K\n  \
                            outbox dead replay --all --error deadline --dry-run\n  \
                            outbox dead replay --all --since 2h --rate 50/s --reason 'the mail server is back'")]
    Replay(Box<Replay>),
    /// Run a component file against dead events and show what would happen to each; exits with 8 unless all would be delivered
    ///
    /// Tests only events of the routes that the component answers, unless --route names another. Others that match are counted.
    ///
    /// Nothing is written: events that the plugin emits and state that it changes are discarded. HTTP requests are answered
    /// with 200 and an empty body, and messages are confirmed, but neither is sent, so a failing endpoint does not show here.
    /// The plugin can read the state that it has in the database.
    #[command(after_help = "Example:\n  outbox dead test --plugin build/order-mailer.wasm --type OrderPlaced --since 2h")]
    Test(Box<Test>),
    /// Stop dead events from blocking later events of their aggregates; they stay dead
    #[command(after_help = "Example:\n  outbox dead skip 01JD8Q4T9W3Z6M1N5B7C2V8X0K --reason 'sent by hand'")]
    Skip {
        /// The events' IDs
        #[arg(required = true)]
        ids: Vec<EventId>,
        #[command(flatten)]
        reason: Reason,
        #[command(flatten)]
        output: Output,
    },
    /// Delete dead events permanently
    #[command(after_help = "Example:\n  outbox dead discard 01JD8Q4T9W3Z6M1N5B7C2V8X0K --yes")]
    Discard {
        /// The events' IDs
        #[arg(required = true)]
        ids: Vec<EventId>,
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
        #[command(flatten)]
        reason: Reason,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Test {
    #[command(flatten)]
    candidate: Candidate,
    #[command(flatten)]
    fields: Fields,
    #[command(flatten)]
    death: Death,
    /// Test at most this many events, oldest first
    #[arg(long, default_value_t = 1_000, value_name = "N", value_parser = at_least_one::<u32>)]
    limit: u32,
    #[command(flatten)]
    output: Output,
}

#[derive(Args, Debug)]
pub(crate) struct Replay {
    /// The events' IDs
    #[arg(conflicts_with_all = ["all", "names", "filter", "death", "limit", "time_limit", "rate"])]
    ids: Vec<EventId>,
    /// Replay all events that match and are dead now
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    names: Names,
    #[command(flatten)]
    filter: DeadArgs,
    #[command(flatten)]
    death: Death,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    many: ManyArgs,
}

#[derive(Serialize)]
struct Counted {
    count: u64,
}

/// The result of a change of named events.
#[derive(Serialize)]
struct Done {
    count: u64,
    /// Events that do not exist, or whose state does not allow the change.
    missing: Vec<EventId>,
    dry_run: bool,
}

impl DeadCommand {
    pub(crate) async fn run(self, config: &Config) -> Result<(), Failure> {
        match self {
            Self::List { fields, death, paging, output } => {
                let filter = fields.filter(Some(Status::Dead))?;
                let place = place::open(config).await?;
                event::list(&*place, death.narrow(filter, place.now().await?), &paging, output.output).await
            }
            Self::Show { id, output } => event::show(id, Some(Status::Dead), output.output, config).await,
            Self::Count { names, filter, death, output } => {
                let place = place::open(config).await?;
                let counted = Counted { count: place.count_dead(&filter.filter(&names, death, place.now().await?)).await? };
                output::one(&counted, output.output, |counted| format!("{}\n", counted.count))
            }
            Self::Test(test) => {
                let Test { candidate, fields, death, limit, output } = *test;
                let filter = fields.filter(Some(Status::Dead))?;
                let store = database::ready(config).await?;
                let filter = death.narrow(filter, store.now().await?);
                dry_run::dead(store, filter, limit, &candidate, output, config).await
            }
            Self::Replay(replay) if replay.all => replay_all(*replay, config).await,
            Self::Replay(replay) if replay.ids.is_empty() => {
                let what = "no event is named; give event IDs, or --all with filters like --error, --since or --route";
                Err(Failure::new(Exit::Usage, what)
                    .details(vec![format!("to list them first: {}", config.flags.command("outbox dead list"))]))
            }
            Self::Replay(replay) => {
                let Replay { ids, many: ManyArgs { dry_run, reason, output, .. }, .. } = *replay;
                let verbs = Verbs { doing: "replaying", done: "replayed" };
                each(Change::Replay, &verbs, ids, dry_run, &reason, output, config).await
            }
            Self::Skip { ids, reason, output } => {
                let verbs = Verbs { doing: "skipping", done: "skipped" };
                each(Change::Skip, &verbs, ids, false, &reason, output, config).await
            }
            Self::Discard { ids, yes, reason, output } => {
                let many = u64::try_from(ids.len()).unwrap_or(u64::MAX);
                output::confirm(&format!("permanently delete {}", count(many, "dead event")), yes)?;
                let verbs = Verbs { doing: "discarding", done: "discarded" };
                each(Change::Discard, &verbs, ids, false, &reason, output, config).await
            }
        }
    }
}

/// The words for a change.
struct Verbs {
    doing: &'static str,
    done: &'static str,
}

/// Changes each event, and reports those that could not be changed.
async fn each(
    change: Change,
    verbs: &Verbs,
    ids: Vec<EventId>,
    dry_run: bool,
    reason: &Reason,
    output: Output,
    config: &Config,
) -> Result<(), Failure> {
    let place = place::open(config).await?;
    let bar = output::progress(verbs.doing, u64::try_from(ids.len()).ok().filter(|many| *many > 1));
    let mut done = Done { count: 0, missing: Vec::new(), dry_run };
    let ended = change_all(&*place, change, ids, &mut done, reason, &bar).await;
    bar.finish_and_clear();
    // Hosts are told of the changed events, even if changing the others failed.
    if done.count > 0 && !dry_run {
        place.tell_hosts().await;
    }
    ended?;
    output::one(&done, output.output, |done| told(verbs.done, done.count, dry_run))?;
    if done.missing.is_empty() {
        return Ok(());
    }
    let (mut reasons, mut all_found) = (Vec::with_capacity(done.missing.len()), true);
    for id in done.missing {
        let found = place.get(id).await?;
        all_found &= found.is_some();
        reasons.push(match found {
            None => format!("event {id} was not found; it may already have been discarded or purged"),
            Some(found) => refusal(change, &id, &found.record),
        });
    }
    let exit = match (done.count, all_found) {
        (0, false) => Exit::NotFound,
        (0, true) => Exit::Conflict,
        _ => Exit::Partly,
    };
    match reasons.as_slice() {
        [reason] => Err(Failure::new(exit, reason.clone())),
        _ => {
            let many = u64::try_from(reasons.len()).unwrap_or(u64::MAX);
            Err(Failure::new(exit, format!("{} were not {}", count(many, "event"), verbs.done)).details(reasons))
        }
    }
}

/// Why an event that exists was not changed.
fn refusal(change: Change, id: &EventId, record: &Record) -> String {
    match (change, record.status) {
        (Change::Skip, Status::Dead) => format!("event {id} blocks no event, so there is nothing to skip"),
        (_, Status::Dead) => format!("event {id} was not dead a moment ago, but is now; repeat the command"),
        _ => format!("event {id} is {}, not DEAD; see `outbox event why {id}`", stands(record)),
    }
}

async fn change_all(
    place: &dyn Place,
    change: Change,
    ids: Vec<EventId>,
    done: &mut Done,
    reason: &Reason,
    bar: &ProgressBar,
) -> Result<(), Failure> {
    let audit = reason.audit();
    for id in ids {
        let is_changed = if done.dry_run {
            place.get(id).await?.is_some_and(|found| found.record.status == Status::Dead)
        } else {
            place.change(change, id, &audit).await?
        };
        if is_changed {
            done.count += 1;
        } else {
            done.missing.push(id);
        }
        bar.inc(1);
    }
    Ok(())
}

fn told(verb: &str, events: u64, dry_run: bool) -> String {
    let would = if dry_run { "would be " } else { "" };
    format!("{} {would}{verb}\n", count(events, "event"))
}

async fn replay_all(replay: Replay, config: &Config) -> Result<(), Failure> {
    let Replay { names, filter, death, limits, many: ManyArgs { dry_run, yes, reason, output }, .. } = replay;
    let place = place::open(config).await?;
    let filter = filter.up_to(&names, death, place.now().await?);
    let wanted = limits.of(place.count_dead(&filter).await?);
    let show = |events: u64| {
        let done = Done { count: events, missing: Vec::new(), dry_run };
        output::one(&done, output.output, |done| told("replayed", done.count, dry_run))
    };
    if dry_run || wanted == 0 {
        return show(wanted);
    }
    let them = if wanted == 1 { "it" } else { "them" };
    output::confirm(&format!("set {} back to new and deliver {them} again", count(wanted, "dead event")), yes)?;
    let (limits, audit) = (ReplayLimits { events: Some(wanted), ..limits.replay() }, reason.audit());
    let replay = async |so_far: Progress<'_>| place.replay_all(&filter, &limits, &audit, so_far).await;
    let replayed = output::counting("replaying", "replayed", wanted, replay).await?;
    let ReplayedDead { count: done, refused } = replayed;
    show(done)?;
    if done < wanted {
        // Another user may have replayed or discarded the others.
        let left = place.count_dead(&filter).await?.min(wanted - done);
        if left > refused.count {
            eprintln!("{} still dead; run the command again for the rest", count(left, "matching event"));
        }
    }
    refused::check(&refused, done, "replayed")
}
