//! `outbox event tail`: new events as they are written.

use std::time::Duration;

use clap::Args;
use outbox::store::Filter;

use super::{Matching, aggregate_id, route, stands};
use crate::config::Config;
use crate::failure::Failure;
use crate::output::{self, Format, Output};
use crate::place;
use crate::stop::Stop;

/// How many rows one statement brings while following.
const PAGE: u32 = 500;
/// How long to rest before new rows are asked for.
const INTERVAL: Duration = Duration::from_millis(200);

#[derive(Args, Debug)]
pub(crate) struct Tail {
    #[command(flatten)]
    matching: Matching,
    /// Start after this row instead of at the newest one
    #[arg(long, value_name = "SEQ")]
    after: Option<u64>,
    #[command(flatten)]
    output: Output,
}

impl Tail {
    /// Follows what is inserted. By `seq`: what another program commits late under an earlier number is not shown.
    pub(super) async fn run(self, config: &Config) -> Result<(), Failure> {
        let mut stop = Stop::listen()?;
        tokio::select! {
            ended = self.follow(config) => ended,
            () = stop.wait() => Ok(()),
        }
    }

    async fn follow(self, config: &Config) -> Result<(), Failure> {
        let place = place::open(config).await?;
        let filter = self.matching.filter()?;
        let newest = Filter { newest_first: true, ..Filter::default() };
        let mut after = match self.after {
            Some(after) => after,
            None => place.list(&newest, 1).await?.first().map_or(0, |row| row.seq),
        };
        if self.output.output == Format::Table {
            eprintln!("following new events; press Ctrl-C to stop");
        }
        loop {
            let rows = place.list(&Filter { after: Some(after), ..filter.clone() }, PAGE).await?;
            match self.output.output {
                Format::Table => {
                    for row in &rows {
                        let (seq, id, status, route, aggregate_id) =
                            (row.seq, row.event_id, stands(row), route(row), aggregate_id(row));
                        output::print(&format!("{}  {seq:>6}  {id}  {status:5}  {route}  {aggregate_id}\n", row.created_at))?;
                    }
                }
                // An array without an end would be no document: `json` follows as `jsonl` does.
                Format::Json | Format::Jsonl => output::many(&rows, Format::Jsonl, |_| String::new())?,
            }
            if let Some(last) = rows.last() {
                after = last.seq;
            }
            if rows.len() < usize::try_from(PAGE).unwrap_or(usize::MAX) {
                tokio::time::sleep(INTERVAL).await;
            }
        }
    }
}
