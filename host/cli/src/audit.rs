//! `outbox audit`: the changes by people and by hosts, with their reasons.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use outbox::EventId;
use outbox::deceptive::shown;
use outbox::store::{Audit, AuditFilter, AuditRecord};
use outbox::units::When;
use outbox::why::{Change, changes, selector};

use crate::config::{Config, user_name};
use crate::failure::Failure;
use crate::flags::at_least_one;
use crate::output::{self, Format, Output, or_dash, relative, short};
use crate::{place, terminal};

/// `--reason`, for every command that changes something.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Reason {
    /// The reason, which `outbox audit list` shows
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl Reason {
    /// The user of this terminal, as far as the environment says, and the reason.
    pub(crate) fn audit(&self) -> Audit {
        Audit { reason: self.reason.clone(), ..Audit::by(user_name()) }
    }
}

/// The flags of every command that changes many events.
#[derive(Args, Debug)]
pub(crate) struct ManyArgs {
    /// Print how many events would be affected, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) reason: Reason,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Subcommand, Debug)]
pub(crate) enum AuditCommand {
    /// List changes, newest first: by people, such as replay, discard or pause, and by hosts, such as start or swap of a plugin
    #[command(after_help = "Examples:\n  outbox audit list --since 2h\n  outbox audit list --limit 20 --output json\n  \
                            outbox audit list --action discard --since 24h\n  \
                            outbox audit list --event 01JD8Q4T9W3Z6M1N5B7C2V8X0K\n\n\
                            The table shows the batches of one replay or purge, and the same change of several hosts within a minute, as \
                            one change. JSON has each record.")]
    List(Box<List>),
}

#[derive(Args, Debug)]
pub(crate) struct List {
    /// Only changes by this user, token or host, like anna@shop; a host with or without its process number
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// Only this action
    #[arg(long, value_name = "ACTION", value_parser = PossibleValuesParser::new(AuditFilter::ACTIONS))]
    action: Option<String>,
    /// Only changes to the event with this ID
    #[arg(long, value_name = "ID")]
    event: Option<EventId>,
    /// Only changes after this: a span like 2h (two hours ago), or a time like 2026-11-21T08:30:00Z
    #[arg(long, value_name = "WHEN")]
    since: Option<When>,
    /// Only changes before this
    #[arg(long, value_name = "WHEN")]
    until: Option<When>,
    /// Show at most this many
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = at_least_one::<u32>)]
    limit: u32,
    /// Only records before the one with this number
    #[arg(long, value_name = "NUMBER")]
    before: Option<u64>,
    #[command(flatten)]
    output: Output,
}

impl AuditCommand {
    pub(crate) async fn run(self, config: &Config) -> Result<(), Failure> {
        let Self::List(list) = self;
        let List { actor, action, event, since, until, limit, before, output } = *list;
        let place = place::open(config).await?;
        let now = place.now().await?;
        let at = |when: Option<When>| when.map(|when| when.from(now));
        let filter = AuditFilter {
            actor,
            action,
            event_id: event,
            since: at(since),
            until: at(until),
            before,
            ..AuditFilter::default()
        };
        let mut records = place.audit(&filter, limit.saturating_add(1)).await?;
        let more = records.len() > usize::try_from(limit).unwrap_or(usize::MAX);
        if more {
            records.pop();
        }
        output::many(&records, output.output, |records| if records.is_empty() { String::new() } else { table(records, more) })?;
        if records.is_empty() && output.output == Format::Table {
            let is_all = filter == AuditFilter::default();
            eprintln!("{}", if is_all { "no change has been recorded yet" } else { "no change matches" });
        }
        if let (true, Some(last)) = (more, records.last()) {
            eprintln!("more records match; continue with --before {}, or raise --limit", last.id);
        }
        Ok(())
    }
}

/// `is_cut` says that there are earlier records, some of which may belong to the same change as the oldest of these.
fn table(records: &[AuditRecord], is_cut: bool) -> String {
    // Only a terminal has a width to keep to; what is read by a program or kept in a file is whole.
    let cut = |text: &str, most: usize| short(text, if terminal::width().is_some() { most } else { usize::MAX });
    let oldest = records.last().map(|record| record.id);
    let changes = changes(records.iter().cloned());
    let rows = changes.iter().map(|change| {
        let Change { record, last_at, records, .. } = change;
        let least = if is_cut && *records > 1 && oldest == Some(record.id) { "at least " } else { "" };
        [
            relative(*last_at),
            cut(&change.who(), 48),
            shown(&record.action).into_owned(),
            format!("{least}{}", record.count),
            cut(&selector(&record.selector), 60),
            or_dash(record.reason.as_deref()),
        ]
    });
    output::table(&["when", "who", "what", ">count", "which", "~why"], rows)
}
