//! The checks, module by module.

mod at_work;
mod calls;
mod key_queues;
mod marks;
mod partitions;
mod queue;

use crate::play::Check;

/// All of them.
pub(crate) const ALL: &[&[Check]] = &[queue::ALL, calls::ALL, at_work::ALL, marks::ALL, key_queues::ALL, partitions::ALL];
