//! `outbox audit`: what was done by hand, by whom, and why.

use clap::{Args, Subcommand};
use outbox::store::{Audit, AuditRecord};
use serde_json::Value;

use crate::config::{Config, user_name};
use crate::database;
use crate::failure::Failure;
use crate::output::{self, Format, Output, or_dash, relative, short};

/// `--reason`, for every command that changes something.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Reason {
    /// The reason, which `outbox audit list` shows
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl Reason {
    /// Whoever sits at this terminal, as far as the environment tells, and the reason.
    pub(crate) fn audit(&self) -> Audit {
        Audit { reason: self.reason.clone(), ..Audit::by(user_name()) }
    }
}

#[derive(Subcommand, Debug)]
pub(crate) enum AuditCommand {
    /// List manual operations, newest first: replays, skips, discards, pauses, forgotten routes, purges, deleted state
    #[command(after_help = "Example:\n  outbox audit list --limit 20 --output json")]
    List {
        /// Show at most this many
        #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
        #[command(flatten)]
        output: Output,
    },
}

impl AuditCommand {
    pub(crate) async fn run(self, config: &Config) -> Result<(), Failure> {
        let Self::List { limit, output } = self;
        let records = database::ready(config).await?.audit(limit).await?;
        output::many(&records, output.output, |records| if records.is_empty() { String::new() } else { table(records) })?;
        if records.is_empty() && output.output == Format::Table {
            eprintln!("no manual operation has been recorded yet");
        }
        Ok(())
    }
}

fn table(records: &[AuditRecord]) -> String {
    let rows = records.iter().map(|record| {
        [
            relative(record.at),
            short(&record.actor, 32),
            record.action.clone(),
            record.count.to_string(),
            short(&selector(&record.selector), 60),
            or_dash(record.reason.as_deref()),
        ]
    });
    output::table(&["when", "who", "what", ">count", "which", "why"], rows)
}

/// What something was done to, as one line: `event_type=OrderPlaced error=timeout`.
pub(crate) fn selector(selector: &Value) -> String {
    let Some(fields) = selector.as_object() else { return selector.to_string() };
    let fields: Vec<String> = fields
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| format!("{name}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
        .collect();
    if fields.is_empty() { "all".to_owned() } else { fields.join(" ") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_selector_is_said_on_one_line() {
        let filter = json!({ "event_type": "OrderPlaced", "max_attempts": 3, "tenant_id": null });
        assert_eq!(selector(&filter), "event_type=OrderPlaced max_attempts=3");
        assert_eq!(selector(&json!({})), "all");
    }
}
