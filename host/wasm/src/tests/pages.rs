//! Cleaning memory with the kernel's help, and giving it up.

use std::sync::Arc;

use outbox_event::{Outcome, Route};
use outbox_listener::{Health, Listeners};

use super::reload::{answer, answering, config, one};
use super::{Guest, event, put, visit};
use crate::engine::machine::Machine;
use crate::engine::probe::{slots_come_back_clean, slots_come_back_clean_from};
use crate::{Engine, PagemapScan, Plugins};

const NO_SWAP: &str = "Filename\tType\tSize\tUsed\tPriority\n";

#[test]
fn every_pool_that_is_used_hands_out_clean_slots() {
    for pagemap_scan in [PagemapScan::Auto, PagemapScan::Off] {
        let engine = Engine::new(2, pagemap_scan).unwrap();
        assert_eq!(slots_come_back_clean(&engine.wasm), Ok(()), "{pagemap_scan:?}");
        let guest = r#"(module (memory (export "m") 192) (table (export "t") 512 funcref) (func (export "f"))
            (data (i32.const 65536) "outbox"))"#;
        let small = engine.for_small_tables();
        assert_eq!(small.scans_pages, engine.scans_pages);
        assert_eq!(slots_come_back_clean_from(&small.wasm, &wat::parse_str(guest).unwrap()), Ok(()), "{pagemap_scan:?}");
    }
}

#[tokio::test]
async fn a_guest_whose_tables_may_grow_large_has_room_for_that_and_moves_with_its_kind_when_it_is_loaded_again() {
    let dir = tempfile::tempdir().unwrap();
    let listeners = Arc::new(Listeners::default());
    let grows = |table: &str| {
        let grown =
            "(call $later (i64.mul (i64.const 1000) (i64.extend_i32_s (table.grow $t (ref.null func) (i32.const 9000)))))";
        Guest::new(grown).outside(&format!("(table $t {table} funcref)"))
    };
    grows("10").write(dir.path(), "mailer");
    let plugins = Plugins::start(config(dir.path()), 2, listeners.clone()).await.unwrap();
    let (main, small) = (plugins.engine().await, plugins.engine().await.for_small_tables());
    assert_eq!(answer(&listeners).await, Some(10_000), "so many elements it had before it grew");

    for (table, pool) in [("10 512", &small), ("600 600", &main), ("10 9010", &main), ("0 100", &small)] {
        grows(table).write(dir.path(), "mailer");
        plugins.rescan().await;
        assert_eq!(one(&plugins, "mailer").error, None, "{table}");
        assert!(Arc::ptr_eq(pool, &plugins.engine_of("mailer").await), "{table}");
    }
    plugins.stop().await;
}

#[test]
fn a_machine_with_swap_never_begins_to_scan() {
    let dir = tempfile::tempdir().unwrap();
    let swaps = put(dir.path(), "swaps", format!("{NO_SWAP}/dev/sda2 partition 1 0 -2\n").as_bytes());
    let engine = Engine::on(Machine::with_swaps(swaps), 1, PagemapScan::Auto).unwrap();
    assert!(!engine.scans_pages && engine.leaks().is_none());
}

#[tokio::test]
async fn when_swap_appears_everything_that_serves_moves_to_a_pool_that_leaks_nothing() {
    let (dir, proc) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let swaps = put(proc.path(), "swaps", NO_SWAP.as_bytes());
    answering(1_000).write(dir.path(), "mailer");
    let listeners = Arc::new(Listeners::default());
    let machine = Machine::with_swaps(swaps);
    let plugins = Plugins::start_on(machine, config(dir.path()), 2, listeners.clone(), None, &Health::default()).await.unwrap();
    let before = plugins.engine().await;
    // Serves on, though its file is broken now: it cannot be loaded again.
    put(dir.path(), "mailer.wasm", b"(component)");
    plugins.rescan().await;
    assert!(Arc::ptr_eq(&before, &plugins.engine().await));
    let in_flight = listeners.find(&Route::new("Order", "OrderPlaced").unwrap()).unwrap();
    let version = *listeners.changes().borrow();

    put(proc.path(), "swaps", format!("{NO_SWAP}/swapfile file 1 0 -2\n").as_bytes());
    plugins.rescan().await;

    let after = plugins.engine().await;
    assert_eq!(before.scans_pages, !Arc::ptr_eq(&before, &after), "moved, if this kernel let it scan");
    assert!(!after.scans_pages);
    assert!(*listeners.changes().borrow() - version <= 1, "in one step");
    assert_eq!(answer(&listeners).await, Some(1_000));
    assert!(one(&plugins, "mailer").error.is_some());
    let event = event(None);
    let old = in_flight.registration.listener.call(visit(&event, 0, 1)).await.outcome;
    assert!(matches!(old, Outcome::RetryAfter(_)), "an event in flight ends where it began: {old:?}");
    // And what is loaded from now on.
    answering(2_000).write(dir.path(), "mailer");
    plugins.rescan().await;
    assert_eq!((answer(&listeners).await, one(&plugins, "mailer").error), (Some(2_000), None));
    assert!(Arc::ptr_eq(&after, &plugins.engine().await), "once");
}
