//! A rolling deploy: hosts on one table that do not answer the same routes.

use outbox::{Mode, Outbox, OutboxBuilder, Registration, Route, Status, TransactionalStore};
use support::{Database, Recorder, eventually};

use crate::common::{ROUTE, commit, done, eager, orders, reaches, row, without_grace};

/// Written through the one host, through the other, and by a program that is neither.
const HOT_HERE: u32 = 400;
const HOT_THERE: u32 = 400;
const BY_SQL: u32 = 200;

fn host<S: TransactionalStore + Clone>(store: S) -> OutboxBuilder<S> {
    Outbox::single_node(store).mode(Mode::MultiNode).poller(eager())
}

async fn by_sql<D: Database>(db: &D) {
    for number in 0..BY_SQL {
        let values = format!("('OrderPlaced', 'Order', 'plain-{number}', '1')");
        db.execute(&format!("INSERT INTO outbox_event (event_type, aggregate_type, aggregate_id, payload) VALUES {values}"))
            .await;
    }
}

pub(crate) async fn an_older_host_kills_no_event_of_a_route_that_only_a_newer_one_answers<D: Database>(db: &D) {
    let older = host(db.another().await).listener("Other", Recorder::done().listener()).start().await.expect("starts");
    let recorder = Recorder::done();
    let newer = host(db.another().await).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    commit(&older, orders(HOT_HERE)).await;
    by_sql(db).await;
    commit(&newer, orders(HOT_THERE)).await;

    done(db, u64::from(HOT_HERE + HOT_THERE + BY_SQL)).await;
    assert_eq!(db.store().stats().await.expect("counts").dead, 0);
    assert_eq!(recorder.count(), (HOT_HERE + HOT_THERE + BY_SQL) as usize, "each once");
    older.shutdown().await;
    newer.shutdown().await;
}

pub(crate) async fn a_host_whose_plugin_did_not_load_kills_nothing_that_it_might_have_answered<D: Database>(db: &D) {
    let faulty = host(db.another().await).listener("Other", Recorder::done().listener()).start().await.expect("starts");
    faulty.listeners().set_incomplete(Some("the plugin orders did not load".to_owned()));
    let ids = commit(&faulty, orders(20)).await;
    eventually("all are parked", async || db.store().stats().await.expect("counts").parked == 20).await;
    let parked = row(db, ids[0]).await.parked.expect("a reason");
    assert!(parked.contains("the plugin orders did not load"), "{parked}");

    let recorder = Recorder::done();
    let whole = host(db.another().await).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    commit(&faulty, orders(20)).await;

    done(db, 40).await;
    assert_eq!((db.store().stats().await.expect("counts").dead, recorder.count()), (0, 40));
    faulty.shutdown().await;
    whole.shutdown().await;
}

pub(crate) async fn a_host_without_any_listener_parks_what_is_due<D: Database>(db: &D) {
    let empty = host(db.another().await).start().await.expect("starts");
    by_sql(db).await;
    eventually("all are parked", async || db.store().stats().await.expect("counts").parked == u64::from(BY_SQL)).await;

    let route: Route = ROUTE.try_into().expect("good names");
    empty.listeners().add("late", Registration::new(route, Recorder::done().listener())).expect("free");

    done(db, u64::from(BY_SQL)).await;
    empty.shutdown().await;
}

pub(crate) async fn a_route_is_noted_before_its_host_has_started<D: Database>(db: &D) {
    let host = host(db.another().await).listener(ROUTE, Recorder::done().listener()).start().await.expect("starts");

    let known = db.store().routes().await.expect("reads");

    assert_eq!(known.into_iter().map(|known| known.route).collect::<Vec<_>>(), [Route::try_from(ROUTE).expect("good names")]);
    host.shutdown().await;
}

pub(crate) async fn a_route_that_nobody_ever_answered_still_ends_dead<D: Database>(db: &D) {
    let host = host(db.another().await).dispatcher(without_grace()).listener("Other", Recorder::done().listener());
    let host = host.start().await.expect("starts");

    let ids = commit(&host, orders(3)).await;

    for id in ids {
        let record = reaches(db, id, Status::Dead).await;
        assert!(record.last_error.expect("a reason").starts_with("no listener answers Order/OrderPlaced"));
    }
    host.shutdown().await;
}
