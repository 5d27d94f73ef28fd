//! Who may see what an earlier event left in the guest's memory.

use std::time::Duration;

use outbox_event::{Cause, Outcome};
use wasmtime::component::Component;

use super::{COUNT, Engine, Guest, PagemapScan, event, of_route};

#[tokio::test]
async fn by_default_and_in_strict_isolation_no_event_sees_an_earlier_one() {
    for manifest in ["", "isolation = \"strict\""] {
        let guest = Guest::new(COUNT).load(manifest).await;
        for _ in 0..3 {
            assert_eq!(guest.count(&event(None), 0, 1).await, 1, "{manifest}");
        }
    }
}

#[tokio::test]
async fn a_strict_guest_runs_without_a_pool_and_within_its_limits() {
    let engine = Engine::new(2, PagemapScan::Off).unwrap();
    let strict = engine.strict().unwrap();
    assert!(std::sync::Arc::ptr_eq(&strict, &engine.strict().unwrap()), "one for all plugins");
    assert!(!wasmtime::Engine::same(&strict.wasm, &engine.wasm) && strict.keep(&engine.memory.share("p"), 1).is_none());
    let guest = Guest::new("(loop (br 0)) (unreachable)").load("isolation = \"strict\"\nlimits.fuel = 1_000_000").await;
    let outcome = guest.call(&event(None), 0, 1).await;
    assert!(matches!(&outcome, Outcome::Failed(failure) if failure.cause == Cause::Fuel), "{outcome:?}");
}

#[tokio::test]
async fn a_batch_shares_an_instance_for_each_tenant() {
    let guest = Guest::new(COUNT).load("isolation = \"batch\"").await;
    let (none, acme) = (event(None), event(Some("acme")));
    assert_eq!(guest.count(&none, 0, 1).await, 1);
    assert_eq!(guest.count(&none, 0, 1).await, 2);
    assert_eq!(guest.count(&none, 1, 1).await, 3, "whichever worker comes");
    assert_eq!(guest.count(&acme, 0, 1).await, 1, "another tenant");
    assert_eq!(guest.count(&acme, 0, 1).await, 2);
    assert_eq!(guest.count(&none, 0, 2).await, 1, "another batch");
    assert_eq!(guest.count(&none, 0, 1).await, 4, "two batches at once");
}

#[tokio::test]
async fn an_instance_is_kept_across_batches_but_not_across_routes_and_tenants() {
    let routes = [("Order", "OrderPlaced"), ("Order", "OrderPaid")];
    let guest = Guest::new(COUNT).routes(&routes).load("isolation = { worker = { max_calls = 3 } }").await;
    let placed = event(None);
    let paid = of_route("Order", "OrderPaid", None, 1);
    assert_eq!(guest.count(&placed, 0, 1).await, 1);
    assert_eq!(guest.count(&placed, 0, 2).await, 2);
    assert_eq!(guest.count(&paid, 0, 2).await, 1, "another route");
    assert_eq!(guest.count(&placed, 1, 3).await, 3, "whichever worker comes");
    assert_eq!(guest.count(&placed, 0, 4).await, 1, "after so many calls, a new one");
    assert_eq!(guest.count(&event(Some("acme")), 0, 4).await, 1, "another tenant");
}

#[tokio::test]
async fn two_events_at_once_never_share_an_instance() {
    let guest =
        counting_unless("(loop (br 0))").load("isolation = { worker = { max_calls = 100 } }\nlimits.fuel = 100_000_000").await;
    assert_eq!(guest.count(&event(None), 0, 1).await, 1);
    let long = of_route("Order", "OrderPlaced", None, 99);
    let placed = event(None);
    let (cut, beside) = tokio::join!(guest.call(&long, 0, 1), guest.count(&placed, 1, 1));
    assert!(matches!(&cut, Outcome::Failed(failure) if failure.cause == Cause::Fuel), "{cut:?}");
    assert_eq!(beside, 1, "the kept one is taken");
    assert_eq!(guest.count(&placed, 0, 1).await, 2, "the one that was cut off is gone, the other is kept");
}

#[tokio::test]
async fn an_instance_of_another_tenant_makes_room_when_there_is_none() {
    // Six are kept for two workers, and seven tenants come in turn.
    let guest = Guest::new(COUNT).load("isolation = { worker = { max_calls = 100 } }").await;
    for tenant in ["a", "b", "c", "d", "e", "f", "g"] {
        assert_eq!(guest.count(&event(Some(tenant)), 0, 1).await, 1);
    }
    assert_eq!(guest.count(&event(Some("g")), 0, 1).await, 2, "the latest is kept");
    assert_eq!(guest.count(&event(Some("a")), 0, 1).await, 1, "the oldest made room");
}

/// Counts, and does something else on the attempt 99.
fn counting_unless(special: &str) -> Guest {
    Guest::new(&format!("(if (i32.eq (i32.load offset=72 (local.get $event)) (i32.const 99)) (then {special})) {COUNT}"))
}

#[tokio::test]
async fn after_a_trap_an_instance_is_not_used_again() {
    let guest = counting_unless("unreachable").load("isolation = { worker = { max_calls = 100 } }").await;
    assert_eq!(guest.count(&event(None), 0, 1).await, 1);
    assert_eq!(guest.count(&event(None), 0, 1).await, 2);
    let outcome = guest.call(&of_route("Order", "OrderPlaced", None, 99), 0, 1).await;
    assert!(matches!(&outcome, Outcome::Failed(failure) if failure.cause == Cause::Trap), "{outcome:?}");
    assert_eq!(guest.count(&event(None), 0, 1).await, 1);
}

#[tokio::test]
async fn a_call_that_is_dropped_takes_its_instance_with_it() {
    let manifest = "isolation = { worker = { max_calls = 100 } }\nlimits.fuel = 1_000_000_000_000";
    let guest = counting_unless("(loop (br 0))").load(manifest).await;
    assert_eq!(guest.count(&event(None), 0, 1).await, 1);
    let endless = of_route("Order", "OrderPlaced", None, 99);
    let cut = tokio::time::timeout(Duration::from_millis(30), guest.call(&endless, 0, 1)).await;
    assert!(cut.is_err());
    assert_eq!(guest.count(&event(None), 0, 1).await, 1);
}

#[tokio::test]
async fn an_instance_that_has_grown_large_is_not_kept() {
    let guest = counting_unless("(drop (memory.grow (i32.const 100)))");
    let guest = guest.load("isolation = { worker = { max_calls = 100 } }\nlimits.memory = \"8MiB\"").await;
    assert_eq!(guest.count(&event(None), 0, 1).await, 1);
    assert_eq!(guest.count(&of_route("Order", "OrderPlaced", None, 99), 0, 1).await, 2);
    assert_eq!(guest.count(&event(None), 0, 1).await, 1);
}

#[tokio::test]
async fn kept_instances_never_take_the_last_slots() {
    // Seven routes with an instance each: more than the six that are kept for two workers.
    let names: Vec<String> = (0..7).map(|number| format!("E{number}")).collect();
    let routes: Vec<_> = names.iter().map(|name| ("Order", name.as_str())).collect();
    let guest = Guest::new(COUNT).routes(&routes).load("isolation = { worker = { max_calls = 100 } }").await;
    let mut kept = 0;
    for round in 1..=2 {
        for name in &names {
            let count = guest.count(&of_route("Order", name, None, 1), 0, 1).await;
            kept += usize::from(round == 2 && count == 2);
        }
    }
    assert_eq!(kept, 6);
}

#[tokio::test]
async fn a_slot_shows_nothing_of_who_had_it_before() {
    let guest = Guest::new(
        "(local $at i32)
        (if (i32.eq (i32.load offset=72 (local.get $event)) (i32.const 99)) (then
            (memory.fill (i32.const 65536) (i32.const 0x5a) (i32.const 131072))
            (return (call $done))))
        (local.set $at (i32.const 98304))
        (loop
            (if (i32.load8_u (local.get $at)) (then (return (call $dead (local.get $at) (i32.const 8)))))
            (br_if 0 (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 1))) (i32.const 262144))))
        (call $done)",
    );
    let guest = guest.load("").await;
    for _ in 0..200 {
        assert_eq!(guest.call(&of_route("Order", "OrderPlaced", None, 99), 0, 1).await, Outcome::Done);
        assert_eq!(guest.call(&event(None), 0, 1).await, Outcome::Done, "zeroes only");
    }
}

#[tokio::test]
async fn an_instance_that_is_kept_counts_for_the_memories_and_tables_that_it_has() {
    let engine = Engine::new(2, PagemapScan::Off).unwrap();
    let weight = |module: &str, times: usize| {
        let instances = "(core instance (instantiate $m))".repeat(times);
        let text = format!("(component (core module $m {module}) {instances})");
        crate::engine::weight(&Component::new(&engine.wasm, wat::parse_str(text).unwrap()).unwrap())
    };
    assert_eq!([1, 2, 3, 8].map(|memories| weight("(memory 1)", memories)), [1, 1, 2, 4]);
    assert_eq!([4, 5, 16].map(|tables| weight("(table 1 funcref)", tables)), [1, 2, 4]);
    assert_eq!(weight("", 1), 1);

    // Three for each of two workers.
    let share = engine.memory.share("p");
    let heavy = engine.keep(&share, 4);
    let light = [engine.keep(&share, 1), engine.keep(&share, 1)];
    assert!(heavy.is_some() && light.iter().all(Option::is_some) && engine.keep(&share, 1).is_none());
    drop(heavy);
    assert!(engine.keep(&share, 4).is_some());
}
