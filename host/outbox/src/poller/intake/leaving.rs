//! Gives back the events of partitions that move to another host.

use super::Intake;
use crate::queue::Delivery;
use crate::settlement::given_back;

impl Intake {
    /// Gives back the events of leaving partitions that wait for a worker or for their listener. No delivery of them has begun, and no host
    /// reads these partitions before the events are back.
    pub(crate) fn give_back_leaving(&self) {
        if !self.partitions.is_leaving() {
            return;
        }
        // First the events in key queues: if they were given back later, they would be blocked in the table when the events before them
        // end.
        let is_leaving = |delivery: &Delivery| delivery.mark.is_leaving();
        let mut leaving = self.order.as_ref().map_or_else(Vec::new, |order| order.key_queues().take_out(is_leaving));
        leaving.extend(self.queue.take_out(is_leaving));
        for delivery in leaving {
            self.settler.send(delivery, given_back());
        }
    }
}
