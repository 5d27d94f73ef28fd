//! The offset of this host's clock to the database's. Times in the row of a host are by the database's clock, so that readers compare
//! times of one clock.

use std::time::Duration;

use outbox_event::HostReport;
use tokio::time::Instant;

use crate::store::{Node, Store, StoreError};
use crate::time::{Timestamp, micros, system_clock};

/// The interval between two measurements.
const MEASURE_EVERY: Duration = Duration::from_secs(60);
/// A smaller offset is ignored, and so is a smaller change: a change alters all times of the row.
const TOLERANCE: Duration = Duration::from_secs(1);
/// After a longer wait for the answer, the offset is not known well enough.
const LONGEST_ANSWER: Duration = Duration::from_secs(1);

/// The offset of this host's clock, as last measured.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClockOffset {
    /// Positive if the host's clock is ahead of the database's.
    ahead_micros: i64,
}

impl ClockOffset {
    /// Takes a measured offset. Returns whether it changes the times of the row.
    pub(super) fn update(&mut self, measured: Option<i64>) -> bool {
        let tolerance = micros(TOLERANCE).unsigned_abs();
        let Some(measured) = measured.filter(|measured| measured.abs_diff(self.ahead_micros) > tolerance) else { return false };
        self.ahead_micros = if measured.unsigned_abs() > tolerance { measured } else { 0 };
        true
    }

    /// Converts the times of plugins and sinks, and reports the offset.
    pub(super) fn convert_report(self, mut report: HostReport) -> HostReport {
        let swaps = report.plugins.iter_mut().flat_map(|plugin| &mut plugin.details.swaps);
        self.convert(swaps.map(|swap| &mut swap.at));
        for sink in &mut report.sinks {
            self.convert(&mut sink.last_success);
            if let Some(outage) = &mut sink.outage {
                self.convert([&mut outage.since, &mut outage.next_try]);
            }
        }
        HostReport { clock_ahead_ms: self.ahead_micros / 1_000, ..report }
    }

    /// Converts the times of stuck events, stalled routes and open breakers.
    pub(super) fn convert_node(self, mut node: Node) -> Node {
        let stuck = node.stuck.iter_mut().flat_map(|stuck| &mut stuck.first);
        self.convert(stuck.map(|event| &mut event.since));
        self.convert(node.listeners.stalled.iter_mut().map(|stalled| &mut stalled.since));
        for breaker in &mut node.listeners.open_breakers {
            self.convert([&mut breaker.since, &mut breaker.next_try]);
        }
        node
    }

    fn convert<'t>(self, times: impl IntoIterator<Item = &'t mut Timestamp>) {
        for time in times {
            *time = self.database_time(*time);
        }
    }

    /// The time of the database's clock when the host's clock shows `time`.
    pub(super) fn database_time(self, time: Timestamp) -> Timestamp {
        Timestamp::from_micros(time.as_micros().saturating_sub(self.ahead_micros))
    }
}

/// When the offset was last measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct MeasuredAt {
    moment: Instant,
    /// The time that the host's clock showed.
    time: Timestamp,
}

impl MeasuredAt {
    /// A measurement that begins now.
    pub(super) fn now() -> Self {
        Self { moment: Instant::now(), time: system_clock().now() }
    }

    /// Whether the offset must be measured again: because that was long ago, or because the host's clock was set since.
    pub(super) fn is_old(self) -> bool {
        self.is_old_at(Instant::now(), system_clock().now())
    }

    fn is_old_at(self, moment: Instant, time: Timestamp) -> bool {
        let elapsed = moment.saturating_duration_since(self.moment);
        let expected = self.time.plus(elapsed);
        elapsed >= MEASURE_EVERY || time.as_micros().abs_diff(expected.as_micros()) > micros(TOLERANCE).unsigned_abs()
    }
}

/// Measures the offset of this host's clock, in microseconds. `None` if the answer took too long.
///
/// # Errors
/// If the database cannot be asked for its time.
pub(super) async fn measure(store: &dyn Store) -> Result<Option<i64>, StoreError> {
    let (before, started) = (system_clock().now(), Instant::now());
    let database = store.now().await?;
    let took = started.elapsed();
    let here = before.plus(took / 2);
    Ok((took <= LONGEST_ANSWER).then(|| here.as_micros().saturating_sub(database.as_micros())))
}

#[cfg(test)]
mod tests {
    use outbox_event::{SinkOutage, SinkState, SinkStatus};

    use super::*;
    use crate::event::OwnerId;
    use crate::store::{ListenerReport, StalledRoute};

    const SECOND: i64 = 1_000_000;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_micros(second * SECOND)
    }

    #[test]
    fn small_offsets_and_small_changes_are_ignored() {
        let mut clock = ClockOffset::default();

        assert!(!clock.update(None) && !clock.update(Some(SECOND)), "within the tolerance");
        assert!(clock.update(Some(-300 * SECOND)));
        assert!(!clock.update(Some(-300 * SECOND + SECOND / 2)), "every change alters all times of the row");
        assert!(clock.update(Some(SECOND / 2)));
        assert_eq!(clock.ahead_micros, 0);
    }

    #[test]
    fn clock_is_measured_again_after_a_minute_and_as_soon_as_it_was_set() {
        let measured = MeasuredAt { moment: Instant::now(), time: at(1_000) };
        let is_old = |seconds: u64, shown| measured.is_old_at(measured.moment + Duration::from_secs(seconds), at(shown));

        assert!(!is_old(30, 1_030) && !is_old(30, 1_031), "within the tolerance");
        assert!(is_old(60, 1_060));
        assert!(is_old(3, 1_003 - 7_200) && is_old(3, 1_003 + 7_200), "it was set");
    }

    #[test]
    fn times_of_a_row_are_by_the_database_clock() {
        let clock = ClockOffset { ahead_micros: 300 * SECOND };
        let outage = SinkOutage { since: at(1_000), reason: "refused".to_owned(), next_try: at(1_005) };
        let sink = SinkStatus {
            name: "orders".to_owned(),
            kind: "nats".to_owned(),
            target: String::new(),
            state: SinkState::Down,
            outage: Some(outage),
            last_success: Some(at(900)),
            unavailable_receivers: 0,
            first_unavailable: Vec::new(),
            routes: Vec::new(),
            more_routes: 0,
        };
        let stalled = StalledRoute::all("this host cannot read the table".to_owned(), at(1_000));
        let listeners = ListenerReport::new(String::new(), [stalled]);
        let node = Node { listeners, ..Node::new(OwnerId::generate("web-1"), "web-1", "multi_node", "0.1.0") };

        let report = clock.convert_report(HostReport::new(Vec::new(), vec![sink]));
        let node = clock.convert_node(node);

        let [sink] = &report.sinks[..] else { panic!("one sink: {report:?}") };
        let outage = sink.outage.as_ref().unwrap();
        assert_eq!((outage.since, outage.next_try, sink.last_success), (at(700), at(705), Some(at(600))));
        assert_eq!(node.listeners.stalled[0].since, at(700));
        assert_eq!(report.clock_ahead_ms, 300_000);
    }
}
