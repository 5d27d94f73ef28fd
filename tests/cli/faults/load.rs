//! An application that writes events of all routes until it is dropped.

use std::iter;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use servers::Database;
use tokio::runtime::{Builder, Runtime};

use super::ledger::{End, Ledger, Route, lock};
use super::session::Session;

/// The rest after a transaction.
const REST: Duration = Duration::from_millis(50);
/// One in this many transactions is rolled back.
const ROLLED_BACK: usize = 10;
const AGGREGATES: usize = 100;
/// One in this many transactions has a long call, if there are any.
const LONG_CALLS: usize = 160;
/// `BEGIN` has another meaning in the SQL mode ORACLE.
pub(super) const START: &str = "START TRANSACTION";
/// Below the deadline of the plugin.
pub(super) const LONG_CALL: Duration = Duration::from_secs(8);

pub(super) struct Load {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    is_over: AtomicBool,
    has_long_calls: AtomicBool,
    /// Locked during a transaction.
    turn: Mutex<()>,
}

struct Writer {
    database: Database,
    url: String,
    ledger: Arc<Ledger>,
    session: Option<Session>,
}

impl Load {
    pub(super) fn start(database: Database, url: String, ledger: Arc<Ledger>) -> Self {
        let state = Arc::new(State::default());
        let mut writer = Writer { database, url, ledger, session: None };
        let thread = thread::spawn({
            let state = state.clone();
            move || writer.write(&state)
        });
        Self { state, thread: Some(thread) }
    }

    /// Keeps it between two transactions until the guard is dropped.
    pub(super) fn quiet(&self) -> MutexGuard<'_, ()> {
        lock(&self.state.turn)
    }

    /// Whether some calls of the plugin take [`LONG_CALL`].
    pub(super) fn set_long_calls(&self, has_long_calls: bool) {
        self.state.has_long_calls.store(has_long_calls, Ordering::Relaxed);
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of it was printed.
            let _ = thread.join();
        }
    }
}

impl Writer {
    fn write(&mut self, state: &State) {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime can be made");
        let mut number = 0_usize;
        while !state.is_over.load(Ordering::Relaxed) {
            number += 1;
            let is_long = state.has_long_calls.load(Ordering::Relaxed) && number.is_multiple_of(LONG_CALLS);
            {
                let _turn = lock(&state.turn);
                self.write_transaction(&runtime, number, if is_long { LONG_CALL } else { Duration::ZERO });
            }
            thread::sleep(REST);
        }
    }

    /// Writes one event of each route in a transaction.
    fn write_transaction(&mut self, runtime: &Runtime, number: usize, takes: Duration) {
        let (aggregate_id, payload) = ((number % AGGREGATES).to_string(), payload(takes));
        let events = Route::ALL.map(|route| (route, format!("{}-{number}", route.aggregate_type().to_lowercase())));
        let inserts: Vec<String> =
            events.iter().map(|(route, id)| insert(self.database, *route, id, &aggregate_id, &payload, &[])).collect();
        for (route, id) in &events {
            self.ledger.begin(id, *route);
        }
        let end = runtime.block_on(self.end_of(&inserts, !number.is_multiple_of(ROLLED_BACK)));
        for (_, id) in &events {
            self.ledger.end(id, end);
        }
    }

    /// Runs the statements in a transaction. After an error the session is closed, which rolls back.
    async fn end_of(&mut self, statements: &[String], is_committed: bool) -> End {
        let connected = match self.session.take() {
            Some(session) => Ok(session),
            None => Session::connect(self.database, &self.url).await,
        };
        let Ok(mut session) = connected else { return End::RolledBack };
        for statement in iter::once(START).chain(statements.iter().map(String::as_str)) {
            if session.run(statement).await.is_err() {
                return End::RolledBack;
            }
        }
        let (last, end) = if is_committed { ("COMMIT", End::Committed) } else { ("ROLLBACK", End::RolledBack) };
        match session.run(last).await {
            Ok(()) => {
                self.session = Some(session);
                end
            }
            Err(_) if is_committed => End::Unknown,
            Err(_) => End::RolledBack,
        }
    }
}

/// A payload for the plugin `recorder`. Receivers ignore it.
pub(super) fn payload(takes: Duration) -> String {
    format!(r#"{{"succeeds_on":1,"takes_ms":{}}}"#, takes.as_millis())
}

/// The INSERT of one event, with `more` columns and their values as SQL.
pub(super) fn insert(
    database: Database,
    route: Route,
    id: &str,
    aggregate_id: &str,
    payload: &str,
    more: &[(&str, &str)],
) -> String {
    let payload = match database {
        Database::PostgreSql => format!("convert_to('{payload}', 'UTF8')"),
        Database::MariaDb => format!("'{payload}'"),
    };
    let columns: String = more.iter().map(|(column, _)| format!(", {column}")).collect();
    let values: String = more.iter().map(|(_, value)| format!(", {value}")).collect();
    format!(
        "INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload{columns})
         VALUES ('{id}', 'Changed', '{}', '{aggregate_id}', {payload}{values})",
        route.aggregate_type()
    )
}
