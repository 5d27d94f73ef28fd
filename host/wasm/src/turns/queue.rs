//! A number of turns, and who waits for them: each plugin in a queue of its own, and the queues served in turn.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::oneshot;

/// The turns of this process, and the calls that wait for one.
pub(super) struct Turns {
    state: Mutex<State>,
}

struct State {
    /// Turns that nobody has; while there are any, nobody waits.
    free: usize,
    /// One queue for each plugin; the front one is served next.
    queues: VecDeque<PluginQueue>,
}

/// The calls of one plugin that wait; at least one.
struct PluginQueue {
    plugin: Box<str>,
    calls: VecDeque<oneshot::Sender<Turn>>,
}

/// A turn; the next in the queue has it when this is dropped.
pub(super) struct Turn {
    turns: &'static Turns,
}

/// A turn that was asked for.
pub(super) enum TurnAhead {
    /// It was free.
    Free(Option<Turn>),
    Waiting(oneshot::Receiver<Turn>),
}

impl Turns {
    pub(super) fn new(number: usize) -> Self {
        Self { state: Mutex::new(State { free: number, queues: VecDeque::new() }) }
    }

    /// Asks for a turn. What this returns keeps its place in the queue until it is dropped.
    pub(super) fn ask(&'static self, plugin: &str) -> TurnAhead {
        let mut state = self.lock();
        if state.free > 0 {
            state.free -= 1;
            return TurnAhead::Free(Some(Turn { turns: self }));
        }
        let (mine, ahead) = oneshot::channel();
        match state.queues.iter_mut().find(|queue| &*queue.plugin == plugin) {
            Some(queue) => queue.calls.push_back(mine),
            None => state.queues.push_back(PluginQueue { plugin: plugin.into(), calls: [mine].into() }),
        }
        TurnAhead::Waiting(ahead)
    }

    /// Gives a turn to the next in the queue that still waits.
    fn pass(&'static self) {
        let mut state = self.lock();
        while let Some(mut queue) = state.queues.pop_front() {
            while let Some(next) = queue.calls.pop_front() {
                match next.send(Turn { turns: self }) {
                    Ok(()) => {
                        if !queue.calls.is_empty() {
                            state.queues.push_back(queue);
                        }
                        return;
                    }
                    // Gone meanwhile. Its turn goes to the next one, not through this lock a second time.
                    Err(turn) => std::mem::forget(turn),
                }
            }
        }
        state.free += 1;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TurnAhead {
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Turn> {
        match self {
            Self::Free(turn) => Poll::Ready(turn.take().expect("not polled again once it was there")),
            Self::Waiting(ahead) => Pin::new(ahead).poll(context).map(|turn| turn.expect("only who waits in a place drops it")),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.pass();
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn comes(ahead: &mut TurnAhead) -> Option<Turn> {
        match ahead.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => Some(turn),
            Poll::Pending => None,
        }
    }

    #[test]
    fn plugins_take_turns_however_many_calls_they_have() {
        let turns: &'static Turns = Box::leak(Box::new(Turns::new(1)));
        let mut turn = comes(&mut turns.ask("first"));
        let order = ["many", "many", "many", "many", "few", "few"];
        let mut waiting: Vec<_> = order.iter().map(|plugin| (*plugin, turns.ask(plugin))).collect();
        let mut served = Vec::new();
        while turn.take().is_some() && !waiting.is_empty() {
            let (index, next) = waiting
                .iter_mut()
                .enumerate()
                .find_map(|(index, (_, ahead))| Some((index, comes(ahead)?)))
                .expect("somebody is next");
            served.push(waiting.remove(index).0);
            turn = Some(next);
        }
        assert_eq!(served, ["many", "few", "many", "few", "many", "many"]);
        assert_eq!(turns.lock().free, 1);
    }

    #[test]
    fn calls_that_have_gone_cost_their_plugin_no_turn() {
        let turns: &'static Turns = Box::leak(Box::new(Turns::new(1)));
        let turn = comes(&mut turns.ask("first"));
        let gone = [turns.ask("a"), turns.ask("a")];
        let (mut first, mut beside, mut last) = (turns.ask("a"), turns.ask("b"), turns.ask("a"));
        drop(gone);
        drop(turn);
        let turn = comes(&mut first).expect("the first live call of the first queue");
        drop(turn);
        let turn = comes(&mut beside).expect("the other queue");
        drop(turn);
        assert!(comes(&mut last).is_some());
    }

    #[test]
    fn a_turn_passes_by_those_who_have_gone_and_is_never_lost() {
        let turns: &'static Turns = Box::leak(Box::new(Turns::new(1)));
        let turn = comes(&mut turns.ask("first"));
        let (gone, granted, mut last) = (turns.ask("a"), turns.ask("a"), turns.ask("b"));
        drop(gone);
        drop(turn);
        assert!(comes(&mut last).is_none(), "it is the turn of `a`");
        // Gone after the turn was given and before it was taken.
        drop(granted);
        let turn = comes(&mut last);
        assert!(turn.is_some());
        drop(turn);
        assert_eq!(turns.lock().free, 1);
        assert!(turns.lock().queues.is_empty());
    }
}
