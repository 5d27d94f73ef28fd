//! Databases on the servers of the tests.

use std::future::Future;

use support::{Harness, MySql, Postgres};
use tokio::runtime::Runtime;

/// A database on a server, gone with this value.
pub(crate) struct Home {
    /// Keeps it; dropped before the threads that its connections live on.
    database: Box<dyn Harness>,
    runtime: Runtime,
    url: String,
}

impl Home {
    /// A migrated schema on the server of `OUTBOX_TEST_POSTGRES_URL`.
    pub(crate) fn on_postgres() -> Self {
        Self::of(Postgres::fresh(), |database| database.url().to_owned())
    }

    /// A migrated database on the server of `OUTBOX_TEST_MYSQL_URL`.
    pub(crate) fn on_mysql() -> Self {
        Self::of(MySql::fresh(), MySql::url)
    }

    fn of<D: Harness + 'static>(making: impl Future<Output = D>, url: impl Fn(&D) -> String) -> Self {
        let runtime = Runtime::new().expect("threads can be started");
        let database = runtime.block_on(making);
        Self { url: url(&database), database: Box::new(database), runtime }
    }

    /// Runs a statement as another program would.
    pub(crate) fn execute(&self, sql: &str) {
        self.runtime.block_on(self.database.execute(sql));
    }

    /// Its address.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}
