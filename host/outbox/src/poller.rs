//! Reads due rows into the cold queue.
//!
//! The poller reads due rows of the partitions that this host holds. A read writes nothing, because the partition secures the events. Rows
//! that the partition does not secure are claimed after the read. The poll is the truth; every wake-up is a hint. The poller never rests
//! while there is work and free capacity.
//!
//! ```text
//! Schedule: when to read, from where, how much ─┐
//!                                               ├─ Reader: one read at a time ─ turn ─ Poller: turns and rests
//! Intake: rows that were read into deliveries ──┘  (and one at a slow front)
//! ```

mod chore;
mod config;
mod intake;
mod reader;
mod schedule;
mod turn;
mod unparking;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use self::chore::Chores;
pub use self::config::PollerConfig;
pub(crate) use self::intake::{Busy, Headroom, Intake};
use self::reader::Reader;
use self::schedule::Schedule;
use self::unparking::Unparking;
use crate::order::Sweep;
use crate::readiness::Pulse;
use crate::recurring::Outage;
use crate::settler::BufferedHandle;

/// Reads due rows into the queue.
pub(crate) struct Poller {
    reader: Reader,
    /// Unblocks events in modes other than order by aggregate.
    sweep: Sweep,
    unparking: Unparking,
    /// How unparking, unblocking, the claims of read and of dropped events, and careful reads go.
    chores: Chores,
    /// Beats after each turn that succeeded while no chore fails. Notes each other turn as failed.
    pulse: Arc<Pulse>,
    /// Beats after each turn that could take events, whatever else failed in it.
    reads: Arc<Pulse>,
    /// Fails while the poller waits for the settler between two turns.
    flushes: Arc<Pulse>,
}

/// How a turn of the poller begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begins {
    /// At once, or once capacity is free again: the previous turn left events in the table.
    Again,
    /// A wake-up ended the rest: there may be new events.
    Woken,
    /// The rest has ended, or a read of the front has.
    AfterTime,
}

/// The result of one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Polled {
    /// There may be more to take at once.
    Full,
    /// Everything due was taken, or the rest cannot be taken now.
    Drained,
    /// The queue has no free capacity.
    NoRoom,
}

/// An event that this many hosts held when they died may have stopped them: it is delivered alone from then on. One host is not enough:
/// after every `kill -9`, every event in flight would have to be delivered alone.
pub(crate) const HOSTS_GONE: u32 = 2;
/// The delay after the first failure of the database, and the longest one. The delay doubles at each failure.
const OUTAGE_FIRST_REST: Duration = Duration::from_millis(100);
const OUTAGE_LONGEST_REST: Duration = Duration::from_secs(2);
/// In the one queue of all events: the rest of the poller, and the delay of an event behind the front, while the front cannot be taken.
const STOPPED_FRONT_REST: Duration = Duration::from_millis(500);
/// The most bytes of payload that one statement returns: its result is in memory twice while it is read.
const BATCH_BYTES: usize = 4 << 20;
/// How often to check for free capacity that no task reports, while events wait for slow listeners.
const LOOK_FOR_ROOM_EVERY: Duration = Duration::from_millis(100);
/// How soon the key queues may have free capacity.
const KEY_QUEUES_MOVE_WITHIN: Duration = Duration::from_millis(2);

impl Poller {
    pub(crate) fn new(config: PollerConfig, intake: Intake, pulse: Arc<Pulse>, reads: Arc<Pulse>, flushes: Arc<Pulse>) -> Self {
        let reader = Reader::new(Schedule::new(config), intake);
        let (sweep, unparking, chores) = (Sweep::default(), Unparking::default(), Chores::default());
        Self { reader, sweep, unparking, chores, pulse, reads, flushes }
    }

    /// Polls until it is stopped. A stop ends a rest early, never a statement.
    pub(crate) async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        let mut changes = self.reader.intake.listeners.changes();
        changes.mark_changed();
        let mut begins = Begins::Woken;
        let (outage, mut rest) = (Outage::default(), OUTAGE_FIRST_REST);
        while !*stopped.borrow() {
            let polled = self.turn(begins, &mut changes).await;
            self.reader.intake.check_refused();
            let polled = outage.note(
                polled.inspect_err(|error| self.reader.intake.metrics.db_error(error)),
                |error| tracing::error!(%error, "the poller cannot take events; trying again until it can"),
                || tracing::info!("the database answers the poller again"),
            );
            let Some(turn) = polled else {
                self.pulse.failed();
                self.flush().await;
                let _ = tokio::time::timeout(rest, stopped.wait_for(|stopped| *stopped)).await;
                rest = (rest * 2).min(OUTAGE_LONGEST_REST);
                continue;
            };
            if self.chores.is_one_failing() {
                // Otherwise a database that takes no writes would seem healthy.
                self.pulse.failed();
            } else {
                self.pulse.beat();
                self.reads.beat();
            }
            self.flush().await;
            rest = OUTAGE_FIRST_REST;
            tokio::select! {
                next = self.rest(turn) => begins = next,
                _ = stopped.wait_for(|stopped| *stopped) => return,
                Ok(()) = changes.changed(), if turn != Polled::Full => {
                    changes.mark_changed();
                    begins = if turn == Polled::Drained { Begins::Woken } else { Begins::Again };
                }
            }
        }
    }

    /// Waits until the settler has taken the outcomes of the last turn. A stop does not end the wait: the settler gives up in time.
    async fn flush(&mut self) {
        flush(&self.reader.intake.settler, &self.flushes, [&self.pulse, &self.reads]).await;
    }

    /// Rests after a turn. Returns how the next one begins.
    async fn rest(&mut self, turn: Polled) -> Begins {
        let Reader { intake, schedule, front, .. } = &mut self.reader;
        match turn {
            // Most of the events that were taken go back to the table, and only the few of other listeners are delivered: no need to hurry.
            Polled::Full if !intake.busy.are_left_out() && intake.queue.one_is_full() => {
                tokio::time::sleep(LOOK_FOR_ROOM_EVERY).await;
            }
            Polled::Full => tokio::task::yield_now().await,
            Polled::NoRoom => {
                // Once a listener turns out to be slow, its events no longer take capacity from others, and no task reports that.
                let _ = tokio::time::timeout(LOOK_FOR_ROOM_EVERY, intake.queue.cold_half_empty()).await;
                if intake.order.is_some() {
                    // Events that wait in key queues, which the queue does not count, may take the capacity.
                    tokio::time::sleep(KEY_QUEUES_MOVE_WITHIN).await;
                }
            }
            Polled::Drained => {
                return tokio::select! {
                    was_woken = intake.wake.rest(Instant::now() + schedule.interval()) => {
                        if was_woken { Begins::Woken } else { Begins::AfterTime }
                    }
                    () = front.answered(schedule.cursor.front_hangs_after()) => Begins::AfterTime,
                    () = intake.in_flight.one_dropped() => Begins::Woken,
                    () = intake.queue.one_is_free(intake.busy.slots()) => Begins::Woken,
                };
            }
        }
        Begins::Again
    }
}

/// Waits until the settler has taken the outcomes of the last turn. `flushes` fails meanwhile. The pulses of the turns repeat the last turn:
/// the poller does not hang, and the wait shows nothing about its reads.
async fn flush(settler: &BufferedHandle, flushes: &Pulse, of_turns: [&Pulse; 2]) {
    flushes.beat();
    // One future: a dropped one loses its place in the queue for the settler.
    let mut flushed = std::pin::pin!(settler.flush());
    while tokio::time::timeout(LOOK_FOR_ROOM_EVERY, flushed.as_mut()).await.is_err() {
        flushes.failed();
        of_turns.into_iter().for_each(Pulse::repeat);
    }
    flushes.beat();
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::event::Fence;
    use crate::metrics::Metrics;
    use crate::queue::{Queue, QueueLimits};
    use crate::settlement::given_back;
    use crate::settler::channels;

    #[tokio::test]
    async fn poller_that_waits_for_the_settler_neither_hangs_nor_fails_to_read() {
        let (handle, inbox) = channels(Arc::new(Queue::new(QueueLimits::default())), Arc::new(Metrics::default()));
        let settler = BufferedHandle::new(handle);
        while settler.flush().now_or_never().is_some() {
            settler.send_claim(Fence::new(1, 2, 3), given_back());
        }
        let [flushes, pulse, reads] = [(); 3].map(|()| Pulse::new());
        let waits = async {
            while !flushes.is_failing() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };

        tokio::select! {
            () = flush(&settler, &flushes, [&pulse, &reads]) => panic!("the settler takes nothing"),
            waits = tokio::time::timeout(Duration::from_secs(60), waits) => waits.expect("the wait is noted"),
        }

        let now = Instant::now();
        for of_turns in [&pulse, &reads] {
            assert!(of_turns.silence(now) < flushes.silence(now) && !of_turns.is_failing(), "{of_turns:?}, {flushes:?}");
        }
        drop(inbox);
        flush(&settler, &flushes, [&pulse, &reads]).await;
        assert!(!flushes.is_failing());
    }
}
