//! How long calls stay away for which there was no slot of the pool, or no memory.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use outbox_event::Outcome;

/// The shortest wait, and by how much each one is longer than the one before.
const LEAST: Duration = Duration::from_millis(100);
const STEP: Duration = Duration::from_millis(10);
const NO_ROOM: &str = "its host has no room or no memory for another instance of its plugin";
/// With these, a call waits for about as long as others may take by default: 5 s.
const MOST_STEPS: u32 = 490;

/// How many calls of one listener found no room since one of them did. Each waits longer than the one before: they come back
/// one after another, and seldom while nothing has changed, since each return is written.
#[derive(Default)]
pub(super) struct NoRoom(AtomicU32);

impl NoRoom {
    /// What becomes of a call that found no room.
    pub(super) fn busy(&self) -> Outcome {
        let before = self.0.fetch_add(1, Ordering::Relaxed).min(MOST_STEPS);
        if before == MOST_STEPS {
            self.0.store(MOST_STEPS, Ordering::Relaxed);
        }
        Outcome::Busy { after: LEAST + STEP * before, reason: NO_ROOM.into() }
    }

    /// Notes that a call had room.
    pub(super) fn over(&self) {
        // Read first: while there is room, calls only read.
        if self.0.load(Ordering::Relaxed) > 0 {
            self.0.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_without_room_come_back_one_after_another_and_soon_again_once_there_is_some() {
        let no_room = NoRoom::default();
        let waits: Vec<_> = (0..1_000).map(|_| no_room.busy()).collect();
        let after = |millis| Outcome::Busy { after: Duration::from_millis(millis), reason: NO_ROOM.into() };
        assert_eq!(waits[..3], [after(100), after(110), after(120)]);
        assert_eq!(waits[999], after(5_000));
        no_room.over();
        assert_eq!(no_room.busy(), after(100));
    }
}
