//! What a call of a plugin cost: with its event, and in the metrics.

use std::time::Duration;

use outbox::dispatcher::{DispatcherConfig, RecordedCosts};
use outbox::event::{Cost, GuestCost, ShortDigest};
use outbox::metrics::CallCounts;
use outbox::poller::PollerConfig;
use outbox::store::{AttemptEnd, InspectStore, Record};
use outbox::wasm::PluginState;
use outbox::{Envelope, EventId, Outbox, SqliteStore, Status};
use support::{Harness, Sqlite, eventually};

use crate::common::{Directory, commit, database, event, sample};

const FUEL: u64 = 200_000_000;
const MANIFEST: &str = r#"
emit = true
[limits]
fuel = 200_000_000
deadline = "2s"
memory = "16MiB"
[retry]
policy = "fixed"
base = "10ms"
max_attempts = 1
"#;

/// A host with one plugin.
struct Costs {
    db: Sqlite,
    store: SqliteStore,
    _directory: Directory,
    outbox: Outbox<SqliteStore>,
    digest: ShortDigest,
    plugin: &'static str,
}

impl Costs {
    async fn of(plugin: &'static str, manifest: &str, record: RecordedCosts) -> Self {
        let directory = Directory::new();
        directory.put(&format!("{plugin}.toml"), manifest.as_bytes());
        directory.put(&format!("{plugin}.wasm"), &sample(plugin));
        let (db, store) = database().await;
        let outbox = Outbox::single_node(store.clone())
            .poller(PollerConfig { interval: Duration::from_millis(20), ..PollerConfig::default() })
            .dispatcher(DispatcherConfig { record, ..DispatcherConfig::default() })
            .plugins_config(directory.config())
            .start()
            .await
            .expect("starts");
        let status = outbox.plugins().expect("it has plugins").list().remove(0);
        assert_eq!(status.state, PluginState::Serving, "{status:?}");
        let digest = status.digest.expect("it serves").parse().expect("it is hex");
        Self { db, store, _directory: directory, outbox, digest, plugin }
    }

    async fn commit(&self, envelopes: Vec<Envelope>) -> Vec<EventId> {
        commit(&self.outbox, envelopes).await
    }

    /// Waits until an event has ended.
    async fn ended(&self, id: EventId) -> Record {
        eventually("the event has ended", async || matches!(self.row(id).await.status, Status::Done | Status::Dead)).await;
        self.row(id).await
    }

    async fn row(&self, id: EventId) -> Record {
        self.store.get(id).await.expect("reads").expect("the row is there")
    }

    /// What a row says of an attempt that this plugin answered.
    fn guest(&self, row: &Record, outcome: AttemptEnd) -> (Cost, GuestCost) {
        let kept = row.last_cost.clone().unwrap_or_else(|| panic!("it has no cost: {row:?}"));
        let guest = kept.cost.guest.unwrap_or_else(|| panic!("nothing was counted: {kept:?}"));
        assert_eq!((kept.outcome, guest.digest), (outcome, self.digest), "{kept:?}");
        (kept.cost, guest)
    }

    fn counts(&self) -> CallCounts {
        self.outbox.metrics().calls.counts()[self.plugin]
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_breaks_at_a_limit_has_used_about_so_much() {
    let costs = Costs::of("trouble", MANIFEST, RecordedCosts::Failures).await;
    let trouble = |event_type| event("Trouble", event_type, "1");
    let types = ["Loop", "Sleep", "Memory", "LogFlood", "Dead", "Panic"];
    let ids = costs.commit(types.map(trouble).into()).await;
    let mut used = Vec::new();
    for id in ids {
        used.push(costs.guest(&costs.ended(id).await, AttemptEnd::Dead));
    }
    let [looped, slept, memory, flood, dead, panic] = used[..] else { panic!("one for each") };

    assert!((FUEL * 9 / 10..=FUEL).contains(&looped.1.fuel), "{looped:?}");
    assert!(slept.0.took >= Duration::from_secs(2) && slept.1.fuel < FUEL / 10, "{slept:?}");
    assert!((8 << 20..=16 << 20).contains(&memory.1.memory_bytes), "{memory:?}");
    assert!(flood.1.host_calls > 1_000 && flood.1.host_bytes > 1_000, "{flood:?}");
    for (cost, guest) in [dead, panic] {
        assert!((1..FUEL / 10).contains(&guest.fuel) && guest.memory_bytes >= 65_536, "{guest:?}");
        assert!(cost.took > Duration::ZERO && cost.events == 1, "{cost:?}");
    }
    costs.outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_success_has_its_cost_with_it_only_when_that_is_asked_for() {
    for (record, is_kept) in [(RecordedCosts::Failures, false), (RecordedCosts::All, true)] {
        let costs = Costs::of("order-mailer", "# as it is", record).await;
        let order = event("Order", "OrderPlaced", r#"{"order_id":1,"total":9.5}"#);
        let id = costs.commit(vec![order]).await[0];

        let row = costs.ended(id).await;

        assert_eq!((row.status, row.last_cost.is_some()), (Status::Done, is_kept), "{record:?}");
        if is_kept {
            let (_, guest) = costs.guest(&row, AttemptEnd::Done);
            assert!(guest.fuel > 1_000 && guest.host_calls > 0 && guest.host_bytes > 0, "{guest:?}");
        }
        assert_eq!(costs.counts().calls, 1, "the metrics count it in any case");
        costs.outbox.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_metrics_are_the_sum_of_the_calls_and_the_most_of_their_memory() {
    let costs = Costs::of("trouble", MANIFEST, RecordedCosts::All).await;
    let types = ["Done", "Dead", "Unrecoverable", "Retryable", "Panic", "LogFlood", "Memory"];
    let ids = costs.commit(types.iter().cycle().take(35).map(|event_type| event("Trouble", event_type, "1")).collect()).await;
    let mut sum = CallCounts::default();
    for id in ids {
        let row = costs.ended(id).await;
        let end = if row.status == Status::Done { AttemptEnd::Done } else { AttemptEnd::Dead };
        let (cost, guest) = costs.guest(&row, end);
        sum.calls += 1;
        sum.took += cost.took;
        sum.fuel_used += guest.fuel;
        sum.host_calls += u64::from(guest.host_calls);
        sum.host_bytes += guest.host_bytes;
        sum.memory_peak_bytes = sum.memory_peak_bytes.max(guest.memory_bytes);
        sum.fuel_peak = sum.fuel_peak.max(guest.fuel);
        sum.host_calls_peak = sum.host_calls_peak.max(guest.host_calls.into());
    }

    let counts = costs.counts();

    // Rows have whole microseconds, rounded up.
    assert!(counts.took <= sum.took && sum.took < counts.took + Duration::from_micros(35), "{counts:?} {sum:?}");
    assert!(counts.longest >= counts.took / 35 && counts.longest < counts.took, "{counts:?}");
    assert_eq!(CallCounts { took: sum.took, longest: sum.longest, ..counts }, sum);
    assert!(sum.fuel_used > 0 && sum.host_calls > 5_000 && sum.memory_peak_bytes > 8 << 20, "{sum:?}");
    costs.outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_event_of_a_call_for_several_has_its_share() {
    let costs = Costs::of("batches", &format!("isolation = \"batch\"\n{MANIFEST}"), RecordedCosts::All).await;
    let payloads = ["\"done\"", "\"fail\""].repeat(20);
    let ids = costs.commit(payloads.iter().map(|payload| event("Batches", "Do", payload)).collect()).await;
    let (mut fuel, mut together) = (0, 0);
    for (id, payload) in ids.into_iter().zip(&payloads) {
        let row = costs.ended(id).await;
        let failed = *payload == "\"fail\"";
        let (cost, guest) = costs.guest(&row, if failed { AttemptEnd::Dead } else { AttemptEnd::Done });
        assert!(guest.fuel > 0 && guest.memory_bytes >= 65_536, "{guest:?}");
        fuel += guest.fuel;
        together += u32::from(cost.events > 1);
    }

    assert!(together >= 2, "some went together");
    let counts = costs.counts();
    assert_eq!((counts.calls, counts.fuel_used), (40, fuel), "the shares are the whole");
    costs.outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_for_several_that_breaks_off_counts_for_the_plugin_and_not_for_its_events() {
    let costs = Costs::of("batches", &format!("isolation = \"batch\"\n{MANIFEST}"), RecordedCosts::All).await;
    let mut payloads = ["\"done\""; 30];
    // It breaks every call of `on-events`, and none that it has for itself.
    payloads[7] = "\"alone\"";
    let ids = costs.commit(payloads.iter().map(|payload| event("Batches", "Do", payload)).collect()).await;
    let mut fuel = 0;
    for id in ids {
        let row = costs.ended(id).await;
        fuel += costs.guest(&row, AttemptEnd::Done).1.fuel;
    }

    let counts = costs.counts();

    assert!(counts.calls > 30 && counts.fuel_used > fuel, "{counts:?}, {fuel} with the events");
    costs.outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_could_not_be_stored_has_its_cost_as_a_failure() {
    let costs = Costs::of("effects", "emit = true", RecordedCosts::Failures).await;
    costs
        .db
        .execute("CREATE TRIGGER no_emitted BEFORE INSERT ON outbox_event WHEN NEW.event_type = 'Refused' BEGIN SELECT RAISE(ABORT, 'no'); END")
        .await;
    let deeds = [r#"{"emit":1,"then":"done"}"#, r#"{"emit":1,"emit_type":"Refused","then":"done"}"#];
    let ids = costs.commit(deeds.map(|deed| event("Effects", "Do", deed)).into()).await;

    assert_eq!(costs.ended(ids[0]).await.last_cost, None, "effects or not, a success has none");
    eventually("the other is tried again", async || costs.row(ids[1]).await.status == Status::Retry).await;
    let (_, guest) = costs.guest(&costs.row(ids[1]).await, AttemptEnd::Retry);
    assert!(guest.fuel > 0 && guest.host_calls > 0, "{guest:?}");
    costs.outbox.shutdown().await;
}
