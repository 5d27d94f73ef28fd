//! Transactions that the database has taken back, all or in part, before they are committed.

use std::sync::{Arc, Mutex, PoisonError};

use outbox::writer::{HookError, WriterHook};
use outbox::{Envelope, Event, EventId, Outbox, WriteError};

use support::{Database, MySql, Postgres, Recorder, Sqlite};

use crate::common::{ROUTE, done, nothing_else_is_delivered, order, outbox, rows};

/// Remembers which aggregates were committed and rolled back.
#[derive(Clone, Default)]
struct Ends(Arc<Mutex<Vec<String>>>);

impl Ends {
    fn note(&self, end: &str, events: &[&Envelope]) -> Result<(), HookError> {
        let numbers: Vec<&str> = events.iter().filter_map(|event| event.aggregate_id()).collect();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{} {end}", numbers.join(" ")));
        Ok(())
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl WriterHook for Ends {
    fn after_commit(&self, events: &[&Envelope]) -> Result<(), HookError> {
        self.note("committed", events)
    }
    fn after_rollback(&self, events: &[&Envelope]) -> Result<(), HookError> {
        self.note("rolled back", events)
    }
}

async fn start<D: Database>(db: &D, recorder: &Recorder, ends: &Ends) -> Outbox<D::Store> {
    outbox(db).hook(ends.clone()).listener(ROUTE, recorder.listener()).start().await.expect("starts")
}

fn numbers(events: &[Arc<Event>]) -> Vec<&str> {
    events
        .iter()
        .filter(|event| event.event_type().as_str() == "OrderPlaced")
        .filter_map(|event| event.aggregate_id())
        .collect()
}

macro_rules! savepoints {
    ($name:ident, $database:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let db = $database::fresh().await;
            let (recorder, ends) = (Recorder::done(), Ends::default());
            let outbox = start(&db, &recorder, &ends).await;

            let mut transaction = outbox.begin().await.expect("begins");
            transaction.write(order(1)).await.expect("writes");
            sqlx::raw_sql("SAVEPOINT mine").execute(transaction.as_mut()).await.expect("saves");
            transaction.write(order(2)).await.expect("writes");
            sqlx::raw_sql("ROLLBACK TO SAVEPOINT mine").execute(transaction.as_mut()).await.expect("takes back");
            transaction.commit().await.expect("commits");

            done(&db, 1).await;
            nothing_else_is_delivered(&db, &outbox).await;
            assert_eq!(numbers(&recorder.calls()), ["1"]);
            let mut ends = ends.lines();
            ends.sort();
            assert_eq!(ends, ["1 committed", "2 rolled back"]);
            outbox.shutdown().await;
        }
    };
}

savepoints!(what_a_savepoint_took_back_is_not_delivered_on_mysql, MySql);
savepoints!(what_a_savepoint_took_back_is_not_delivered_on_postgres, Postgres);
savepoints!(what_a_savepoint_took_back_is_not_delivered_on_sqlite, Sqlite);

macro_rules! written_again {
    ($name:ident, $database:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let db = $database::fresh().await;
            let (recorder, ends) = (Recorder::done(), Ends::default());
            let outbox = start(&db, &recorder, &ends).await;
            let key: EventId = "order-42-placed".parse().expect("an id");
            let keyed = |number: &str| {
                Envelope::new("OrderPlaced").aggregate("Order", number).id(key).json(&1).expect("a good envelope")
            };

            let mut transaction = outbox.begin().await.expect("begins");
            sqlx::raw_sql("SAVEPOINT mine").execute(transaction.as_mut()).await.expect("saves");
            transaction.write_all(vec![keyed("1"), order(2)]).await.expect("writes");
            sqlx::raw_sql("ROLLBACK TO SAVEPOINT mine").execute(transaction.as_mut()).await.expect("takes back");
            transaction.write(keyed("3")).await.expect("writes");
            transaction.commit().await.expect("commits");

            done(&db, 1).await;
            nothing_else_is_delivered(&db, &outbox).await;
            assert_eq!(numbers(&recorder.calls()), ["3"]);
            let mut ends = ends.lines();
            ends.sort();
            assert_eq!(ends, ["1 2 rolled back", "3 committed"]);
            outbox.shutdown().await;
        }
    };
}

written_again!(an_id_that_is_written_again_after_a_savepoint_took_it_back_is_delivered_as_it_was_committed_on_mysql, MySql);
written_again!(
    an_id_that_is_written_again_after_a_savepoint_took_it_back_is_delivered_as_it_was_committed_on_postgres,
    Postgres
);
written_again!(an_id_that_is_written_again_after_a_savepoint_took_it_back_is_delivered_as_it_was_committed_on_sqlite, Sqlite);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commit_of_a_transaction_that_postgres_has_ended_is_an_error_and_delivers_nothing() {
    let db = Postgres::fresh().await;
    let (recorder, ends) = (Recorder::done(), Ends::default());
    let outbox = start(&db, &recorder, &ends).await;

    let mut transaction = outbox.begin().await.expect("begins");
    transaction.write(order(1)).await.expect("writes");
    // The driver reports this error, and then a COMMIT that the server answers by rolling back as a success.
    sqlx::raw_sql("SELECT 1 / 0").execute(transaction.as_mut()).await.expect_err("fails");
    let error = transaction.commit().await.expect_err("it was rolled back");

    assert!(matches!(error, WriteError::Store(_)), "{error:?}");
    nothing_else_is_delivered(&db, &outbox).await;
    assert_eq!((numbers(&recorder.calls()), rows(&db).await), (Vec::<&str>::new(), 1), "one row: the sentinel");
    assert_eq!(ends.lines(), ["1 rolled back"]);
    outbox.shutdown().await;
}
