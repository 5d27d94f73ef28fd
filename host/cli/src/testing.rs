//! `outbox testing`: what test suites need.

use clap::Subcommand;
use outbox::store::hide_password;

use crate::config::Config;
use crate::database::{self, Missing};
use crate::failure::Failure;
use crate::output;

#[derive(Subcommand, Debug)]
pub(crate) enum TestingCommand {
    /// Delete all events, routes, pauses, audit records and state of plugins; hosts may keep running
    #[command(after_help = "Examples:\n  outbox testing reset --yes\n  \
                            outbox testing reset --yes --database-url postgres://test@localhost/shop_test\n\n\
                            Only for test databases, between two tests: it cannot be undone, and leaves no record. Running \
                            hosts deliver the next event as usual. The numbering of events continues, so fixtures may \
                            use the same event IDs again.")]
    Reset {
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
    },
}

impl TestingCommand {
    pub(crate) async fn run(self, config: &Config) -> Result<(), Failure> {
        let Self::Reset { yes } = self;
        let store = database::open(config, Missing::Refuse).await?;
        store.check_schema().await?;
        let (shown, table) = (hide_password(&config.database.url), &config.database.table);
        output::confirm(
            &format!("delete all events, routes, pauses, audit records and plugin state of {table} from {shown}"),
            yes,
        )?;
        let deleted = output::busy("deleting all events", store.empty_tables()).await;
        store.close().await;
        let events = output::count(deleted?, "event");
        eprintln!("{events} of {table} deleted from {shown}, with all routes, pauses, audit records and state of plugins");
        Ok(())
    }
}
