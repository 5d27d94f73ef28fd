//! The fourth step: decides what is written of an answer.

use super::answer::Answered;
use super::{Attempt, Target};
use crate::listener::{Registration, Reply};
use crate::settlement::Policy;
use crate::settler::{Conclusion, IfNotTaken};
use crate::store::AttemptCost;

impl Attempt<'_> {
    /// Turns an answer into what is written.
    pub(super) fn conclude(&self, answered: Answered) -> Conclusion {
        let Self { shared, delivery, .. } = self;
        let Answered { reply: Reply { outcome, effects, cost, .. }, awaits_listener, .. } = answered;
        let effects = effects.filter(|_| outcome.is_answer());
        let retry = self.registration().and_then(|own| own.retry.as_deref()).unwrap_or(&*shared.retry);
        let policy = Policy { retry, max_attempts: self.max_attempts(), awaits_listener };
        let settlement = shared.rules.settle(outcome, delivery.attempts(), delivery.deferrals, &policy);
        let is_recorded = shared.rules.records_cost(&settlement);
        // An answer with effects becomes a failure if the database does not take them.
        let cost = cost.filter(|_| is_recorded || effects.is_some());
        let cost = cost.and_then(|cost| AttemptCost::new(delivery.event.attempt(), &settlement, cost)).map(Box::new);
        let (cost, spare) = if is_recorded { (cost, None) } else { (None, cost) };
        let if_not_taken = IfNotTaken { is_last: policy.is_last(delivery.attempts()), cost: spare };
        Conclusion { settlement, effects, cost, if_not_taken }
    }

    /// After how many counted failures the event is dead.
    pub(super) fn max_attempts(&self) -> u32 {
        // In one order of all events each event has one attempt, whatever its listener allows.
        if self.shared.order.as_ref().is_some_and(|order| order.is_one_for_all()) {
            return 1;
        }
        self.registration().and_then(|own| own.max_attempts).unwrap_or(self.shared.config.max_attempts)
    }

    fn registration(&self) -> Option<&Registration> {
        match &self.target {
            Target::Listener(entry) => Some(&entry.registration),
            Target::Paused(_) | Target::Missing => None,
        }
    }
}
