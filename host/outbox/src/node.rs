//! This host among the others: says that it is alive, and keeps its partitions.

mod others;
mod plugins;
mod session;
mod standing;

use std::sync::Arc;
use std::time::Duration;

use outbox_listener::Stall;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::event::Route;
use crate::listener::{Listeners, Owner};
use crate::metrics::Metrics;
use crate::partition::Partitions;
use crate::readiness::Pulse;
use crate::recurring::Outage;
use crate::store::{Node, NodeRecord, RefusedOutcomes, StalledRoute, Store, StoreError};
use crate::time::{Timestamp, system_clock};
use crate::wake::Wake;
use others::{Notice, Others};
pub(crate) use session::SessionKeeper;
use standing::{Change, STALLED_AFTER, Stalled, Standing};

#[doc(inline)]
pub use outbox_event::{PluginCapability, PluginDetails, PluginLimits, PluginState, PluginStatus, PluginSwap};
pub use plugins::plugins;

/// This many times in a lease a host says that it is alive and keeps its partitions: some failures are no loss, and a host
/// that comes soon has its part of them.
pub(crate) const HEARTBEATS: u32 = 10;
/// How long the first beat waits for this host's session.
const FIRST_SESSION: Duration = Duration::from_secs(1);
/// The least rest between two beats when one is asked for.
const LEAST_REST: Duration = Duration::from_millis(250);
/// How long a turn of the poller may take, beside the rest before it, before this host says that it cannot read the table.
const LONGEST_TURN: Duration = Duration::from_secs(10);
/// How long a host that cannot use its connections waits for what it has in hand before it lets its lease end.
const LETS_GO_AFTER: Duration = Duration::from_secs(10);
/// The longest rest after a beat that told of a new stall.
const SOON: Duration = Duration::from_secs(2);
/// How often a host looks whether what it tells the others changed, so that a change is written before the next beat is due.
const LOOK: Duration = Duration::from_secs(1);

/// A look at all hosts on its way: what they are, and the database's time. In a task of its own, since it may have to wait for a
/// connection: no heartbeat may be late for that.
type Look = JoinHandle<Result<(Vec<NodeRecord>, Timestamp), StoreError>>;

/// Tells of the plugins of this host, as one JSON list.
pub(crate) type Report = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// Says that this host is alive, until it stops.
pub(crate) struct Heartbeat {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) node: Node,
    pub(crate) lease: Duration,
    /// `None` without plugins.
    pub(crate) report: Option<Report>,
    pub(crate) partitions: Arc<Partitions>,
    pub(crate) wake: Arc<Wake>,
    pub(crate) metrics: Arc<Metrics>,
    /// Beats at each heartbeat that was written, with the partitions kept.
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) listeners: Arc<Listeners>,
    /// Beats at each turn of the poller, which come at least once in `poll_interval`.
    pub(crate) poller_pulse: Arc<Pulse>,
    pub(crate) poll_interval: Duration,
}

/// What a host tells the others of itself.
#[derive(Default)]
struct Told {
    plugins: Option<String>,
    refused: RefusedOutcomes,
    stalled: Vec<StalledRoute>,
}

impl Heartbeat {
    /// Sends heartbeats until the host stops, then signs the host off. Partitions without events in flight are free at once, the others when
    /// other hosts notice that this host is gone.
    pub(crate) async fn run(self, mut stopped: watch::Receiver<bool>) {
        let (outage, restore_outage) = (Outage::default(), Outage::default());
        let mut others = Others::new(self.node.owner.as_str(), self.node.mode, self.lease);
        let (mut told, mut unkept, mut standing) = (Told::default(), None, Standing::new());
        let mut look: Option<Look> = None;
        self.partitions.session().wait_until_known(FIRST_SESSION).await;
        'alive: loop {
            self.restore_partitions(&restore_outage).await;
            self.decide(&mut standing, &told.stalled).await;
            let to_tell = self.to_tell(&standing);
            let live = if self.lets_go(&standing, &to_tell.stalled) {
                None
            } else {
                outage.note(
                    self.run_once(&to_tell, &mut unkept).await.inspect_err(|error| self.metrics.db_error(error)),
                    |error| tracing::error!(%error, "this host cannot write its heartbeat; trying again"),
                    || tracing::info!("this host is seen by the others again"),
                )
            };
            let mut longest = self.lease / HEARTBEATS;
            if let Some(live) = live {
                self.pulse.beat();
                if !is_same(&to_tell.stalled, &told.stalled) {
                    longest = longest.min(SOON);
                }
                told = to_tell;
                if look.is_none() && others.should_look(live) {
                    look = Some(self.look());
                }
            }
            let asked_for = async {
                self.partitions.beat_requested().await;
                tokio::time::sleep(LEAST_REST).await;
            };
            let news = async {
                // Looked at often: who asks for them wants to see them as they are.
                loop {
                    tokio::time::sleep(LOOK).await;
                    let now = self.to_tell(&standing);
                    if now.plugins != told.plugins || now.refused != told.refused || !is_same(&now.stalled, &told.stalled) {
                        return;
                    }
                }
            };
            let rest = tokio::time::sleep(longest);
            let (mut news, mut rest, mut asked_for) = (std::pin::pin!(news), std::pin::pin!(rest), std::pin::pin!(asked_for));
            loop {
                tokio::select! {
                    _ = stopped.wait_for(|stopped| *stopped) => break 'alive,
                    () = &mut rest => break,
                    () = &mut news => break,
                    () = &mut asked_for => break,
                    (nodes, now) = looked(&mut look) => {
                        others.look(&nodes, now).iter().for_each(|notice| self.tell(notice));
                    }
                }
            }
        }
        if let Err(error) = self.partitions.leave(&*self.store, &self.node.owner).await {
            tracing::warn!(error = %crate::chain(&error), "this host could not sign off; the others notice when its lease ends");
        }
    }

    /// Writes a heartbeat, then keeps the partitions. Returns how many live hosts have this one's mode. `unkept` is that number if the
    /// last heartbeat was written, and the partitions could not be kept.
    async fn run_once(&self, to_tell: &Told, unkept: &mut Option<u32>) -> Result<u32, StoreError> {
        let mut is_news = false;
        if let Some(hosts) = *unkept {
            // A host that cannot keep its partitions must not look alive: no other host could take them over.
            is_news |= self.keep_partitions(hosts).await?;
        }
        // From here on others may rely on the session, as they may until they are told that there is none.
        let session = self.partitions.session().begin_announcing();
        // A host that stops or stands aside takes nothing: the others share the partitions without it.
        let room = if self.partitions.takes_any() { self.node.room } else { 0 };
        let Told { plugins, refused, stalled } = to_tell;
        let (plugins, refused, stalled) = (plugins.clone(), refused.clone(), stalled.clone());
        let node = Node { plugins, refused, stalled, session, room, ..self.node.clone() };
        let beat = self.partitions.begin_beat();
        let hosts = self.store.heartbeat(&node, self.lease).await?;
        *unkept = Some(hosts);
        is_news |= self.keep_partitions(hosts).await?;
        *unkept = None;
        self.partitions.renew(&beat, self.lease);
        if is_news {
            self.wake.now();
        }
        // Only now: others may have taken everything while they relied on a session that was lost.
        self.partitions.session().set_announced(session);
        Ok(hosts)
    }

    /// Returns whether the poller is to look.
    async fn keep_partitions(&self, hosts: u32) -> Result<bool, StoreError> {
        self.partitions.keep(&*self.store, &self.node.owner, hosts).await
    }

    fn to_tell(&self, standing: &Standing) -> Told {
        let plugins = self.report.as_ref().and_then(|report| report());
        let stalled = standing.to_tell(&self.stalls(Instant::now()));
        self.metrics.standing.set(standing.is_aside(), stalled.clone());
        Told { plugins, refused: self.metrics.outcomes_apart.refused(), stalled }
    }

    /// What this host cannot deliver now.
    fn stalls(&self, now: Instant) -> Vec<Stalled> {
        let of_listener = |(route, owner, stall): (Route, Owner, Stall)| {
            let (route, listener) = (route.to_string(), owner.to_string());
            let is_lasting = now.saturating_duration_since(stall.since) >= STALLED_AFTER;
            let route = StalledRoute { route, listener, reason: stall.reason, since: stall.since_time };
            Stalled { route, last: stall.last, is_lasting }
        };
        let (silence, stillness) = (self.poller_pulse.silence(now), self.poller_pulse.stillness(now));
        // A turn that fails says more than one that takes long.
        let patience = if stillness < silence { STALLED_AFTER } else { LONGEST_TURN };
        let of_poller = (silence > self.poll_interval.saturating_add(patience)).then(|| {
            let reason = "this host cannot read the table".to_owned();
            let since = system_clock().now().minus(silence);
            let route = StalledRoute { route: String::new(), listener: String::new(), reason, since };
            Stalled { route, last: now, is_lasting: true }
        });
        of_poller.into_iter().chain(self.listeners.stalls(now).into_iter().map(of_listener)).collect()
    }

    /// Decides whether this host works or stands aside. `told` is what its row says of its stalls.
    async fn decide(&self, standing: &mut Standing, told: &[StalledRoute]) {
        let stalls = self.stalls(Instant::now());
        let others = if standing.asks_for_others(&stalls) { self.store.nodes_beside_heartbeat().await } else { Ok(Vec::new()) };
        // A heartbeat says whether the database answers; nothing is decided without the others.
        let Ok(mut others) = others else { return };
        others.retain(|node| node.owner != self.node.owner.as_str() && node.mode == self.node.mode);
        match standing.decide(Instant::now(), &stalls, told, &others) {
            Some(Change::Aside { other, rest }) => {
                for StalledRoute { route, listener, reason, .. } in standing.to_tell(&stalls) {
                    tracing::warn!(
                        route,
                        listener,
                        reason,
                        other,
                        rest_s = rest.as_secs(),
                        "this host cannot deliver events that another host can; it gives its partitions to the others, and tries again \
                         after a rest"
                    );
                }
            }
            Some(Change::Back) => tracing::info!("this host takes partitions again"),
            None => {}
        }
        self.partitions.set_aside(standing.is_aside());
    }

    /// Whether this host lets its lease end: it stands aside since it cannot use its connections, so the outcomes of what it has in
    /// hand may never be stored, and nobody reads the partitions of those events.
    fn lets_go(&self, standing: &Standing, stalled: &[StalledRoute]) -> bool {
        let cannot_read = stalled.iter().any(StalledRoute::is_all);
        cannot_read && standing.has_been_aside_for(LETS_GO_AFTER) && self.partitions.holds_any()
    }

    /// Restores missing rows of the partition table: no host reads the events of a partition without a row. A failure that may pass is
    /// retried with the next beat.
    async fn restore_partitions(&self, outage: &Outage) {
        let restored = self.store.restore_partitions().await.inspect_err(|error| self.metrics.db_error(error));
        if restored.as_ref().is_err_and(StoreError::is_transient) {
            return;
        }
        let found = outage.note(
            restored,
            |error| {
                tracing::error!(
                    %error,
                    "the partition table cannot be restored, and events of its partitions may wait for ever; see `outbox doctor`, and \
                     run `outbox migrate up` as the user that owns the table"
                )
            },
            || tracing::info!("the partition table is complete again"),
        );
        if let Some(found) = found.filter(|found| !found.is_empty()) {
            tracing::error!(
                missing = found.missing,
                surplus = found.surplus,
                "the partition table was changed by hand: {found}. Its rows were restored; events in flight may be delivered again"
            );
        }
    }

    /// Modes that do not go together on one table are a mistake that nobody would see otherwise.
    fn look(&self) -> Look {
        let store = self.store.clone();
        tokio::spawn(async move { Ok((store.nodes().await?, store.now().await?)) })
    }

    fn tell(&self, notice: &Notice) {
        let mode = self.node.mode;
        match notice {
            Notice::NotAlone { label, mode: other_mode, is_certain, heard, forgotten } => {
                let (heard, forgotten) = (heard.as_secs(), forgotten.as_secs());
                let told = if *is_certain {
                    let advice = advice(mode, other_mode);
                    format!(
                        "another host works on this table, and single_node is for one host alone: {label} ({other_mode}) was last heard \
                         from {heard} s ago; {advice}"
                    )
                } else {
                    format!(
                        "another host may be working on this table, and single_node is for one host alone: {label} ({other_mode}) was \
                         last heard from {heard} s ago; if it was killed, do nothing: it is forgotten in {forgotten} s; if it is \
                         running, the next warning says what to do"
                    )
                };
                tracing::warn!(mode, other = label, other_mode, heard_s = heard, "{told}");
            }
            Notice::OtherMode { label, mode: other_mode } => tracing::warn!(
                mode,
                other = label,
                other_mode,
                "{label} works on the same table in the mode {other_mode}, and this host in {mode}: events may be delivered out of order; \
                 set the same mode for all hosts of the table"
            ),
            Notice::Gone => tracing::info!(mode, "every host that was reported is gone"),
        }
    }
}

/// Whether both name the same routes, for whatever reasons.
fn is_same(one: &[StalledRoute], other: &[StalledRoute]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.is_same(other))
}

/// What to do about two hosts of which at least one has the table for itself.
fn advice(mode: &str, other_mode: &str) -> String {
    const ALONE: &str = "single_node";
    match [mode, other_mode].into_iter().find(|mode| *mode != ALONE) {
        None => "stop one of them, or set mode = \"multi_node\" for both (each event is still delivered by one host only)"
            .to_owned(),
        Some(shared) => format!(
            "hosts of one table must have the same mode: stop the host in single_node, or set mode = \"{shared}\" for it, too"
        ),
    }
}

/// What a look has seen; waits for ever where none is under way, or where it failed: the next heartbeat begins another.
async fn looked(look: &mut Option<Look>) -> (Vec<NodeRecord>, Timestamp) {
    if let Some(under_way) = look {
        let seen = under_way.await;
        *look = None;
        if let Ok(Ok(seen)) = seen {
            return seen;
        }
    }
    std::future::pending().await
}
