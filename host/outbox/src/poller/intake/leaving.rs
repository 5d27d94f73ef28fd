//! Gives back the events of partitions that go to another host.

use super::Intake;
use crate::queue::Delivery;
use crate::settlement::given_back;

impl Intake {
    /// Gives back the events of partitions that are to go to another host, as far as they wait for a worker or for their listener:
    /// none of them has begun, and neither host reads these partitions before the events are back.
    pub(crate) async fn give_back_leaving(&self) {
        if !self.partitions.is_leaving() {
            return;
        }
        // First the events that wait for others: given back later, they would be set aside in the table when the others end.
        let is_leaving = |delivery: &Delivery| delivery.mark.is_leaving();
        let mut leaving = self.order.as_ref().map_or_else(Vec::new, |order| order.key_queues().take_out(is_leaving));
        leaving.extend(self.queue.take_out(is_leaving));
        for delivery in leaving {
            self.settler.send(delivery, given_back()).await;
        }
    }
}
