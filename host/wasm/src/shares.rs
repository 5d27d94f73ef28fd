//! What plugins share, and how much of it each one has: the memory of all guests, and places for kept instances.
//!
//! One rule for both: beyond its first instance, a plugin must leave free as much as it has itself, and at least a quarter of
//! all. So one plugin has at most a half, two have at most a third each, and the last quarter is for first instances. A plugin
//! that is the only one may have everything.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use outbox_event::units::ByteSize;
use outbox_listener::Reminder;

/// What all guests of one sandbox may have together, in bytes.
#[derive(Debug)]
pub(super) struct MemoryBudget {
    max: AtomicUsize,
    used: AtomicUsize,
    /// How many shares there are.
    plugins: AtomicUsize,
    shares: Mutex<HashMap<String, Weak<PluginShare>>>,
}

/// What one plugin has, all its versions and instances together.
#[derive(Debug)]
pub(super) struct PluginShare {
    budget: Arc<MemoryBudget>,
    plugin: String,
    /// The bytes of its guests.
    used: AtomicUsize,
    /// The weight of its kept instances.
    kept: AtomicUsize,
    /// Whether one of its instances is the one that needs to leave nothing for others.
    has_first: AtomicBool,
    told: Mutex<Reminder>,
}

/// The part of one instance. Its memory and its privilege go back when this is dropped.
#[derive(Debug)]
pub(super) struct InstanceShare {
    share: Arc<PluginShare>,
    used: usize,
    is_first: bool,
}

/// Room for one kept instance, given back when dropped.
#[derive(Debug)]
pub(super) struct KeptPlace {
    all: Arc<AtomicUsize>,
    share: Arc<PluginShare>,
    weight: usize,
}

impl MemoryBudget {
    pub(super) fn new(max: usize) -> Arc<Self> {
        let (max, used) = (AtomicUsize::new(max), AtomicUsize::new(0));
        Arc::new(Self { max, used, plugins: AtomicUsize::new(0), shares: Mutex::default() })
    }

    pub(super) fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// The share of a plugin, the same one for all its versions.
    pub(super) fn share(self: &Arc<Self>, plugin: &str) -> Arc<PluginShare> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(plugin).and_then(Weak::upgrade) {
            return share;
        }
        shares.retain(|_, share| share.strong_count() > 0);
        self.plugins.fetch_add(1, Ordering::Relaxed);
        let share = Arc::new(PluginShare {
            budget: self.clone(),
            plugin: plugin.to_owned(),
            used: AtomicUsize::new(0),
            kept: AtomicUsize::new(0),
            has_first: AtomicBool::new(false),
            told: Mutex::default(),
        });
        shares.insert(plugin.to_owned(), Arc::downgrade(&share));
        share
    }

    fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn max(&self) -> usize {
        self.max.load(Ordering::Relaxed)
    }
}

impl PluginShare {
    /// Whether so little memory is left that nothing more is kept for later: a half, or a quarter for a plugin that has little.
    /// Beside others, a plugin keeps a quarter at most: as much must stay free, and its next instance must still fit.
    pub(super) fn is_short(&self) -> bool {
        let (max, own) = (self.budget.max(), self.used.load(Ordering::Relaxed));
        let has_quarter = !self.is_alone() && own > max / 4;
        has_quarter || self.budget.used() > if own < max / 8 { max / 4 * 3 } else { max / 2 }
    }

    /// The memory that all guests may have together.
    pub(super) fn max_memory(&self) -> ByteSize {
        ByteSize(self.budget.max() as u64)
    }

    fn is_alone(&self) -> bool {
        self.budget.plugins.load(Ordering::Relaxed) <= 1
    }

    /// The part of a new instance, which has nothing yet.
    pub(super) fn instance(self: &Arc<Self>) -> InstanceShare {
        InstanceShare { share: self.clone(), used: 0, is_first: !self.has_first.swap(true, Ordering::Relaxed) }
    }

    /// A place for a kept instance of this weight among `all`, which are at most `max`. The first need leave none for others.
    pub(super) fn keep(self: &Arc<Self>, all: &Arc<AtomicUsize>, max: usize, weight: usize) -> Option<KeptPlace> {
        let before = self.kept.fetch_add(weight, Ordering::Relaxed);
        if take(all, max, weight, self.must_leave(before == 0, before + weight, max)) {
            return Some(KeptPlace { all: all.clone(), share: self.clone(), weight });
        }
        self.kept.fetch_sub(weight, Ordering::Relaxed);
        None
    }

    /// What of `max` must stay free when the plugin has so much.
    fn must_leave(&self, is_first: bool, own: usize, max: usize) -> usize {
        if is_first || self.is_alone() { 0 } else { own.max(max / 4) }
    }

    /// Tells the operator, now and then, that the plugin was refused memory.
    fn tell(&self) {
        if self.told.lock().unwrap_or_else(PoisonError::into_inner).is_due(Instant::now().into()) {
            let mib = |bytes: usize| bytes >> 20;
            tracing::warn!(
                target: "outbox::wasm::shares",
                plugin = self.plugin,
                has_mib = mib(self.used.load(Ordering::Relaxed)),
                all_have_mib = mib(self.budget.used()),
                "the plugin is refused memory, and its events wait: all guests together may have {} MiB, of which one plugin leaves \
                 as much as it has for others; raise plugins.memory, or lower limits.memory or limits.concurrency of this one",
                mib(self.budget.max())
            );
        }
    }
}

/// Adds `more` to what is used of `max`, if `must_stay` are still free then.
fn take(used: &AtomicUsize, max: usize, more: usize, must_stay: usize) -> bool {
    let fits = |used: usize| used.checked_add(more).filter(|used| max.checked_sub(*used).is_some_and(|free| free >= must_stay));
    used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
}

impl InstanceShare {
    /// The bytes that the instance has.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Takes more bytes; false when that would leave too little for others.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let share = &self.share;
        let own = share.used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let budget = &share.budget;
        let max = budget.max();
        let took = take(&budget.used, max, bytes, share.must_leave(self.is_first, own, max));
        if took {
            self.used += bytes;
        } else {
            share.used.fetch_sub(bytes, Ordering::Relaxed);
        }
        took
    }

    /// Leaves the right of the first instance to another one, while this one waits for an event.
    pub(super) fn rest(&mut self) {
        if std::mem::take(&mut self.is_first) {
            self.share.has_first.store(false, Ordering::Relaxed);
        }
    }

    /// Takes that right again, if nobody has it.
    pub(super) fn resume(&mut self) {
        self.is_first = self.is_first || !self.share.has_first.swap(true, Ordering::Relaxed);
    }

    /// Tells the operator, now and then, that the plugin was refused memory.
    pub(super) fn tell(&self) {
        self.share.tell();
    }
}

impl Drop for InstanceShare {
    fn drop(&mut self) {
        self.share.budget.used.fetch_sub(self.used, Ordering::Relaxed);
        self.share.used.fetch_sub(self.used, Ordering::Relaxed);
        if self.is_first {
            self.share.has_first.store(false, Ordering::Relaxed);
        }
    }
}

impl Drop for KeptPlace {
    fn drop(&mut self) {
        self.all.fetch_sub(self.weight, Ordering::Relaxed);
        self.share.kept.fetch_sub(self.weight, Ordering::Relaxed);
    }
}

impl Drop for PluginShare {
    fn drop(&mut self) {
        self.budget.plugins.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Instances of 10 bytes, as many as the plugin gets.
    fn hoard(share: &Arc<PluginShare>) -> Vec<InstanceShare> {
        let one = || {
            let mut one = share.instance();
            one.take(10).then_some(one)
        };
        std::iter::from_fn(one).collect()
    }

    #[test]
    fn a_plugin_alone_has_everything_and_one_of_several_no_more_than_it_leaves_to_others() {
        let budget = MemoryBudget::new(1_000);
        let first = budget.share("first");
        assert_eq!(hoard(&first).len(), 100);
        let others: Vec<_> = (0..14).map(|number| budget.share(&format!("other-{number}"))).collect();
        let hoarded = hoard(&first);
        assert_eq!(hoarded.len(), 50);

        let all: Vec<_> = others.iter().map(hoard).collect();

        assert_eq!(all[0].len(), 25);
        assert!(all[1..].iter().all(|has| has.len() == 1), "there is a first instance for each");
        drop((hoarded, all));
        assert_eq!((budget.used(), first.used.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn one_instance_may_have_the_whole_budget_and_another_of_the_same_plugin_then_nothing() {
        let budget = MemoryBudget::new(1_000);
        let (large, small) = (budget.share("large"), budget.share("small"));
        let mut first = large.instance();
        assert!(first.take(400) && first.take(600));
        assert!(!large.instance().take(1) && !small.instance().take(1), "there is nothing left");
        drop(first);
        let mut next = large.instance();
        assert!(next.take(1_000), "the right went back with the instance");
    }

    #[test]
    fn an_instance_that_is_kept_leaves_the_right_of_the_first_to_one_that_works() {
        let budget = MemoryBudget::new(1_000);
        let (large, small) = (budget.share("large"), budget.share("small"));
        let mut kept = small.instance();
        assert!(kept.take(10));
        kept.rest();
        let mut others: Vec<_> = hoard(&large);
        others.extend(hoard(&budget.share("third")));
        assert!(!others.is_empty());
        let mut first = small.instance();
        assert!(first.take(200), "the last quarter is for first instances");
        kept.resume();
        assert!(!kept.take(40), "it is not the first any more");
        drop(first);
        kept.resume();
        assert!(kept.take(40));
    }

    #[test]
    fn versions_of_a_plugin_have_one_share_and_are_alone_together() {
        let budget = MemoryBudget::new(1_000);
        let (old, new) = (budget.share("one"), budget.share("one"));
        let of_old = hoard(&old);
        assert_eq!((of_old.len(), hoard(&new).len()), (100, 0));
        drop((old, new, of_old));
        assert_eq!(hoard(&budget.share("two")).len(), 100, "whoever has gone counts no more");
    }

    #[test]
    fn a_plugin_that_has_little_keeps_instances_beside_one_that_has_half() {
        let budget = MemoryBudget::new(1_000);
        let (large, small) = (budget.share("large"), budget.share("small"));
        let (hoarded, mut few) = (hoard(&large), small.instance());
        assert!(few.take(20) && large.is_short() && !small.is_short());
        drop(hoarded);
        let mut some = large.instance();
        assert!(some.take(260) && large.is_short(), "its next instance must still fit");
        assert!(few.take(240) && small.is_short());
    }

    #[test]
    fn one_plugin_keeps_half_of_the_places_and_others_find_some() {
        let (budget, all) = (MemoryBudget::new(1_000), Arc::default());
        let shares: Vec<_> = (0..5).map(|number| budget.share(&format!("p{number}"))).collect();
        let keep = |share: &Arc<PluginShare>| std::iter::from_fn(|| share.keep(&all, 64, 1)).collect::<Vec<_>>();
        let kept: Vec<_> = shares.iter().map(keep).collect();
        assert_eq!(kept.iter().map(Vec::len).collect::<Vec<_>>(), [32, 16, 1, 1, 1]);
        drop(kept);
        assert_eq!((all.load(Ordering::Relaxed), shares[0].kept.load(Ordering::Relaxed)), (0, 0));
        assert!(shares[0].keep(&all, 64, 60).is_some(), "a heavy one, while none is kept");
    }
}
