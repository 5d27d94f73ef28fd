//! `outbox event`: writes, lists, shows and explains events.

mod tail;

use std::borrow::Cow;

use clap::{Args, Subcommand, ValueEnum};
use outbox::event::Status;
use outbox::store::{Filter, Record, SetAside, Whole};
use outbox::why::attempt;
use outbox::{EventId, Route};
use serde::Serialize;

use crate::config::Config;
use crate::database;
use crate::dry_run::{self, Candidate};
use crate::emit::Emit;
use crate::failure::{Exit, Failure};
use crate::flags::at_least_one;
use crate::names::Names;
use crate::output::{self, Format, Output, or_dash, relative, short, shown};
use crate::place::{self, Found, Place};
use crate::route::near;
use crate::why::{stands_as, why};

#[derive(Subcommand, Debug)]
pub(crate) enum EventCommand {
    Emit(Box<Emit>),
    /// List events, oldest first
    #[command(after_help = "Examples:\n  outbox event list --status parked\n  \
                            outbox event list --status claimed --output json\n  \
                            outbox event list --status dead --route Order/OrderPlaced --newest-first --limit 20\n\n\
                            FAILURES (`failures` in JSON) counts every failed attempt. `attempts` is the table's own column, which leaves out \
                            the failure at which a listener gave the event up.")]
    List {
        #[command(flatten)]
        filter: FilterArgs,
        #[command(flatten)]
        output: Output,
    },
    /// Show one event with its payload
    #[command(after_help = "Example:\n  outbox event show 01JD8Q4T9W3Z6M1N5B7C2V8X0K --output json")]
    Show {
        /// The event's ID
        id: EventId,
        #[command(flatten)]
        output: Output,
    },
    /// Explain the state of an event: what happened to it, which host holds it, and what happens next
    #[command(after_help = "Examples:\n  outbox event why 01JD8Q4T9W3Z6M1N5B7C2V8X0K\n  \
                            outbox event why 01JD8Q4T9W3Z6M1N5B7C2V8X0K --url https://outbox.example.com")]
    Why {
        /// The event's ID
        id: EventId,
        #[command(flatten)]
        output: Output,
    },
    /// Run a component file against events and show what would happen to each; exits with 8 unless all would be delivered
    ///
    /// Nothing is written. HTTP requests are answered with 200 and an empty body, and messages are confirmed, but neither is
    /// sent, so a failing endpoint does not show here.
    #[command(after_help = "Example:\n  outbox event test --plugin build/order-mailer.wasm 01JD8Q4T9W3Z6M1N5B7C2V8X0K")]
    Test {
        #[command(flatten)]
        candidate: Candidate,
        /// The events' IDs
        #[arg(required = true)]
        ids: Vec<EventId>,
        #[command(flatten)]
        output: Output,
    },
    /// Follow new events as they are written, until Ctrl-C
    #[command(after_help = "Example:\n  outbox event tail --aggregate-type Order --output jsonl")]
    Tail(tail::Tail),
}

/// Which rows.
#[derive(Args, Clone, Debug)]
pub(crate) struct Matching {
    /// Only events in this state
    #[arg(long, value_enum, ignore_case = true)]
    status: Option<StatusArg>,
    #[command(flatten)]
    fields: Fields,
}

/// Which rows, whatever their state.
#[derive(Args, Clone, Debug)]
pub(crate) struct Fields {
    #[command(flatten)]
    names: Names,
    /// Only events of this aggregate
    #[arg(long, value_name = "ID")]
    aggregate_id: Option<String>,
    /// Only events of this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Only events with this header
    #[arg(long, value_name = "KEY=VALUE")]
    header: Option<String>,
    /// Only events whose last error contains this text
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
}

/// How many rows, and from where.
#[derive(Args, Clone, Debug)]
pub(crate) struct Paging {
    /// Show at most this many
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = at_least_one::<u32>)]
    limit: u32,
    /// Only rows after this one (before it, with --newest-first)
    #[arg(long, value_name = "SEQ")]
    after: Option<u64>,
    /// List the newest events first
    #[arg(long)]
    newest_first: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct FilterArgs {
    #[command(flatten)]
    matching: Matching,
    #[command(flatten)]
    paging: Paging,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum StatusArg {
    /// Not delivered yet
    New,
    /// Failed, and waiting for another attempt
    Retry,
    /// Delivered
    Done,
    /// Given up
    Dead,
    /// New or retry, and waiting for a listener or for the end of a pause
    Parked,
    /// New or retry, and waiting behind an earlier event of the same aggregate
    Blocked,
    /// New or retry, and not due yet
    Delayed,
    /// New or retry, and claimed by a host now
    #[value(aliases = ["in_flight", "in-flight"])]
    Claimed,
}

impl StatusArg {
    /// With these rows alone.
    fn narrow(self, filter: Filter) -> Filter {
        let status = |status| Filter { status: Some(status), ..filter.clone() };
        match self {
            Self::New => status(Status::New),
            Self::Retry => status(Status::Retry),
            Self::Done => status(Status::Done),
            Self::Dead => status(Status::Dead),
            Self::Parked => Filter { set_aside: Some(SetAside::Parked), ..filter },
            Self::Blocked => Filter { set_aside: Some(SetAside::Blocked), ..filter },
            Self::Delayed => Filter { set_aside: Some(SetAside::Delayed), ..filter },
            Self::Claimed => Filter { set_aside: Some(SetAside::Claimed), ..filter },
        }
    }
}

impl Matching {
    fn filter(&self) -> Result<Filter, Failure> {
        let filter = self.fields.filter(None)?;
        Ok(match self.status {
            Some(status) => status.narrow(filter),
            None => filter,
        })
    }
}

impl Fields {
    pub(crate) fn filter(&self, status: Option<Status>) -> Result<Filter, Failure> {
        let header = self.header.as_deref().map(|header| {
            let pair = header.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
            pair.ok_or_else(|| Failure::new(Exit::Usage, format!("--header is `{header}`; write it like source=shop")))
        });
        Ok(Filter {
            status,
            event_type: self.names.event_type(),
            aggregate_type: self.names.aggregate_type(),
            aggregate_id: self.aggregate_id.clone(),
            tenant_id: self.tenant.clone(),
            header: header.transpose()?,
            error: self.error.clone(),
            ..Filter::default()
        })
    }
}

impl EventCommand {
    pub(crate) async fn run(self, config: &Config) -> Result<(), Failure> {
        match self {
            Self::Emit(emit) => emit.run(config).await,
            Self::List { filter, output } => {
                let (paging, filter) = (filter.paging, filter.matching.filter()?);
                list(&*place::open(config).await?, filter, &paging, output.output).await
            }
            Self::Show { id, output } => show(id, None, output.output, config).await,
            Self::Why { id, output } => why(id, output.output, config).await,
            Self::Test { candidate, ids, output } => {
                dry_run::named(database::ready(config).await?, &ids, &candidate, output, config).await
            }
            Self::Tail(tail) => tail.run(config).await,
        }
    }
}

/// Prints a page of rows, and says when there is another.
pub(crate) async fn list(place: &dyn Place, filter: Filter, paging: &Paging, format: Format) -> Result<(), Failure> {
    let (after, before) = if paging.newest_first { (None, paging.after) } else { (paging.after, None) };
    let filter = Filter { after, before, newest_first: paging.newest_first, ..filter };
    let mut rows = place.list(&filter, paging.limit.saturating_add(1)).await?;
    let more = rows.len() > usize::try_from(paging.limit).unwrap_or(usize::MAX);
    if more {
        rows.pop();
    }
    let is_of_dead = filter.status == Some(Status::Dead);
    let people = |rows: &[Record]| if is_of_dead { dead_table(rows) } else { rows_table(rows) };
    let listed: Vec<Listed> = rows.iter().map(|record| Listed { record, failures: record.failures() }).collect();
    output::many(&listed, format, |_| if rows.is_empty() { String::new() } else { people(&rows) })?;
    if rows.is_empty() && format == Format::Table {
        eprintln!("no events match{}", unknown_route(place, &filter).await);
    }
    if let (true, Some(last)) = (more, rows.last()) {
        eprintln!("more events match; continue with --after {}, or raise --limit", last.seq);
    }
    Ok(())
}

/// Which route was probably meant, where a filter names one that is not known; as the end of a sentence.
async fn unknown_route(place: &dyn Place, filter: &Filter) -> String {
    let (Some(aggregate_type), Some(event_type)) = (&filter.aggregate_type, &filter.event_type) else { return String::new() };
    let Ok(route) = Route::new(aggregate_type.as_str(), event_type.as_str()) else { return String::new() };
    // Nothing but a hint: the list itself was read.
    let Ok(routes) = place.routes().await else { return String::new() };
    if routes.iter().any(|known| known.route == route) {
        return String::new();
    }
    format!("; no route is called {}{}", shown(&route.to_string()), near(&route, &routes))
}

/// A row without its payload.
#[derive(Serialize)]
struct Listed<'r> {
    #[serde(flatten)]
    record: &'r Record,
    /// As the tables show it: `attempts` leaves out the failure at which a listener gave the event up.
    failures: u32,
}

fn rows_table(rows: &[Record]) -> String {
    let header = [">seq", "event_id", "status", "~route", "?aggregate_id", "?>failures", "?created", "~last error"];
    let rows = rows.iter().map(|row| {
        [
            row.seq.to_string(),
            row.event_id.to_string(),
            stands(row),
            route(row),
            aggregate_id(row),
            row.failures().to_string(),
            relative(row.created_at),
            or_dash(trouble(row).as_deref().or(row.parked.as_deref())),
        ]
    });
    output::table(&header, rows)
}

/// Dead events, whose status is known and whose time of death matters.
fn dead_table(rows: &[Record]) -> String {
    let header = [">seq", "event_id", "~route", "?aggregate_id", "?>failures", "?created", "died", "~last error"];
    let rows = rows.iter().map(|row| {
        [
            row.seq.to_string(),
            row.event_id.to_string(),
            route(row),
            aggregate_id(row),
            row.failures().to_string(),
            relative(row.created_at),
            row.done_at.map_or_else(|| "-".to_owned(), relative),
            or_dash(trouble(row).as_deref()),
        ]
    });
    output::table(&header, rows)
}

/// The columns that cannot be read, or why it waits, or its last error.
fn trouble(row: &Record) -> Option<Cow<'_, str>> {
    let unreadable = row.unreadable.as_ref().map(|why| format!("this row cannot be read: {why}").into());
    unreadable.or_else(|| row.waits_for().or(row.last_error.as_deref()).map(Into::into))
}

fn aggregate_id(row: &Record) -> String {
    short(row.aggregate_id.as_deref().unwrap_or("-"), 24)
}

/// Its status, and what it waits for without a time.
pub(crate) fn stands(row: &Record) -> String {
    stands_as(row.status, row.parked.is_some(), row.behind.is_some())
}

fn route(row: &Record) -> String {
    short(&format!("{}/{}", row.aggregate_type, row.event_type), 48)
}

/// A row with its payload, or with the word that it is hidden.
#[derive(Serialize)]
struct Shown<'r> {
    #[serde(flatten)]
    whole: Whole<'r>,
    failures: u32,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    payload_hidden: bool,
}

/// Prints one row; only one in this state, if one is given.
pub(crate) async fn show(id: EventId, status: Option<Status>, format: Format, config: &Config) -> Result<(), Failure> {
    let Some(Found { record: row, payload_hidden }) = place::open(config).await?.get(id).await? else {
        return Err(Failure::no_such_event(id, "see `outbox event list`"));
    };
    if status.is_some_and(|status| status != row.status) {
        let what =
            format!("the event {id} is {}, not {}; see `outbox event show {id}`", row.status, status.unwrap_or(row.status));
        return Err(Failure::new(Exit::NotFound, what));
    }
    if payload_hidden {
        eprintln!("note: the role of this token does not show payloads; an operator's token does");
    }
    output::one(&Shown { whole: row.whole(), failures: row.failures(), payload_hidden }, format, |_| {
        let time = |time: Option<outbox::time::Timestamp>| {
            time.map_or_else(|| "-".to_owned(), |time| format!("{time} ({})", relative(time)))
        };
        let mut pairs = vec![
            ("event_id", row.event_id.to_string()),
            ("seq", row.seq.to_string()),
            ("route", shown(&format!("{}/{}", row.aggregate_type, row.event_type)).into_owned()),
            ("aggregate_id", or_dash(row.aggregate_id.as_deref())),
            ("tenant_id", or_dash(row.tenant_id.as_deref())),
            ("status", stands(&row)),
            ("failures", row.failures().to_string()),
            ("deferrals", row.deferrals.to_string()),
            ("replays", row.replays.to_string()),
            ("occurred_at", time(Some(row.occurred_at))),
            ("created_at", time(Some(row.created_at))),
            ("available_at", time(Some(row.available_at))),
            ("due_at", time(row.due_at)),
            ("expires_at", time(row.expires_at)),
            ("done_at", time(row.done_at)),
            ("parked", or_dash(row.parked.as_deref())),
            ("behind", row.behind.map_or_else(|| "-".to_owned(), |seq| format!("seq {seq}"))),
            ("blocks", if row.blocks { "later events of its aggregate" } else { "-" }.to_owned()),
            ("locked_by", or_dash(row.locked_by.as_deref())),
            ("lease_end", time(row.lease_end)),
            ("last_error", or_dash(row.last_error.as_deref())),
            ("last_cost", row.last_cost.as_ref().map_or_else(|| "-".to_owned(), |cost| attempt(cost, None))),
        ];
        if let Some(why) = row.waits_for() {
            pairs.push(("wait_reason", shown(why).into_owned()));
            pairs.push(("wait_since", time(row.wait_since)));
        }
        if let Some(why) = &row.unreadable {
            pairs.push(("unreadable", shown(why).into_owned()));
        }
        let headers: Vec<String> = row.headers.iter().map(|(key, value)| format!("{}={}", shown(key), shown(value))).collect();
        pairs.push(("headers", if headers.is_empty() { "-".to_owned() } else { headers.join(", ") }));
        pairs.push(("content_type", shown(&row.content_type).into_owned()));
        let hidden = match &row.payload {
            _ if payload_hidden => ", hidden",
            None => ", too large to be shown",
            Some(_) => "",
        };
        pairs.push(("payload", format!("{}{hidden}", output::count(row.payload_bytes, "byte"))));
        format!("{}\n{}", output::pairs(&pairs), output::bytes_text(row.payload.as_deref().unwrap_or_default()))
    })
}
