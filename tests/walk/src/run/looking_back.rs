//! What must hold in the end.

use outbox::{Mode, Status};

use crate::calls::{Call, End};
use crate::world::World;

impl World {
    /// What must hold in the end.
    pub(super) fn look_back(&mut self) {
        let mut faults = Vec::new();
        for row in self.table.rows.values().chain(self.purged.values()) {
            let counted = self.calls.counted.get(&row.seq).copied().unwrap_or(0);
            if row.attempts != counted {
                faults.push(format!("row {} counts {} attempts, and {counted} failures were stored", row.seq, row.attempts));
            }
            if !matches!(row.status, Status::Done | Status::Dead) && self.violation.is_none() {
                faults.push(format!("row {} is {:?} in the end", row.seq, row.status));
            }
        }
        let is_gone = |seq: &&u64| !self.table.rows.contains_key(*seq) && !self.purged.contains_key(*seq);
        faults.extend(self.seen_since.keys().filter(is_gone).map(|seq| format!("row {seq} was committed and is gone")));
        // Where nothing fails, each call has an outcome.
        if self.plan.is_quiet() {
            // Some of those that the deploy came to were cut off by it.
            let goes_on = |call: &&Call| self.plan.mode == Mode::MultiNode || !self.lives[call.life].lacks_route;
            for call in self.calls.all.iter().filter(goes_on).filter(|call| !call.stored) {
                faults.push(format!("nothing failed, and the call for {:?} has no outcome: {:?}", call.fence, call.end));
            }
            let cut_off = |call: &&Call| matches!(call.end, Some(End::CutOff { deadline_over: false }));
            faults.extend(
                self.calls
                    .all
                    .iter()
                    .filter(goes_on)
                    .filter(cut_off)
                    .map(|call| format!("nothing failed, and {:?} was cut off", call.fence)),
            );
        }
        for fault in faults {
            self.violated(fault);
        }
    }
}
