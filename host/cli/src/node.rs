//! `outbox node`: the hosts that work on the table.

use clap::Subcommand;
use outbox::deceptive::shown;
use outbox::store::{NodeRecord, StalledRoute};
use outbox::time::Timestamp;

use crate::config::Config;
use crate::failure::Failure;
use crate::output::{self, Format, Output, relative_to, short};
use crate::place;

#[derive(Subcommand, Debug)]
pub(crate) enum NodeCommand {
    /// List the hosts that share the table, and those that have been gone for less than a day
    #[command(after_help = "Example:\n  outbox node list --output json")]
    List {
        #[command(flatten)]
        output: Output,
    },
}

impl NodeCommand {
    pub(crate) async fn run(self, config: &Config) -> Result<(), Failure> {
        let Self::List { output } = self;
        let place = place::open(config).await?;
        let (nodes, now) = (place.nodes().await?, place.now().await?);
        output::many(&nodes, output.output, |nodes| if nodes.is_empty() { String::new() } else { table(nodes, now) })?;
        if nodes.is_empty() && output.output == Format::Table {
            eprintln!("no host is running on this table; start one with `outbox run`");
        }
        Ok(())
    }
}

/// The hosts, and below them what they cannot deliver. Times are by the database's clock, and so is `now`.
fn table(nodes: &[NodeRecord], now: Timestamp) -> String {
    let rows = nodes.iter().map(|node| {
        [
            short(&node.label, 40),
            node.state().to_owned(),
            shown(&node.mode).into_owned(),
            shown(&node.version).into_owned(),
            relative_to(node.started_at, now),
            relative_to(node.alive_until, now),
            node.partitions.to_string(),
            shown(&node.owner).into_owned(),
        ]
    });
    let columns = ["host", "state", "mode", "version", "started", "alive until", ">partitions", "locked_by"];
    let hosts = output::table(&columns, rows);
    let line = |node: &NodeRecord, stalled: &StalledRoute| {
        let (label, what, reason) = (short(&node.label, 40), short(&stalled.to_string(), 100), shown(&stalled.reason));
        format!("{label}: cannot deliver {what}: {reason} (began {})\n", relative_to(stalled.since, now))
    };
    let lines: String =
        nodes.iter().flat_map(|node| node.listeners.stalled.iter().map(move |stalled| line(node, stalled))).collect();
    if lines.is_empty() { hosts } else { format!("{hosts}\n{lines}") }
}
