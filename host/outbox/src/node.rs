//! This host among the others: says that it is alive, and keeps its partitions.

mod availability;
mod change_log;
mod clock;
mod down_sinks;
mod host_name;
mod hosts;
mod open_breakers;
mod others;
mod report;
mod session;
mod sinks;
mod stalls;
mod trial;
mod vanished;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::metrics::Metrics;
use crate::partition::Partitions;
use crate::readiness::Pulse;
use crate::recurring::Outage;
use crate::store::{ListenerReport, Node, NodeRecord, StalledRoute, Store, StoreError};
use crate::time::{Timestamp, system_clock};
use crate::wake::Wake;
use availability::{Availability, Change, Peers, has_all};
pub(crate) use change_log::ChangeLog;
use clock::{ClockOffset, MeasuredAt};
use others::{Notice, Others};
use report::{has_same_states, throttle_successes};
pub(crate) use session::SessionKeeper;
pub(crate) use stalls::Stalls;
pub(crate) use vanished::machine;

// For the library itself and our own program.
pub use down_sinks::DownSink;
#[doc(hidden)]
pub use host_name::host_name;
pub use hosts::hosts;
pub use open_breakers::{HostBreaker, OpenBreakers, RouteBreaker};
#[doc(inline)]
pub use outbox_event::{
    HostReport, PluginCapability, PluginDetails, PluginLimits, PluginState, PluginStatus, PluginSwap, SinkOutage, SinkState,
    SinkStatus,
};
pub use report::{clock_difference, plugins, sinks};
pub use sinks::{HostSink, Relays, delivering_sinks, live_sinks, names_sink, sinks_by_host};
pub use vanished::vanished;

/// This many times in a lease a host says that it is alive and keeps its partitions: some failures are no loss, and a host
/// that comes soon has its part of them.
pub(crate) const HEARTBEATS: u32 = 10;
/// How long the first beat waits for this host's session.
const FIRST_SESSION: Duration = Duration::from_secs(1);
/// The least rest between two beats when one is asked for.
const LEAST_REST: Duration = Duration::from_millis(250);
/// How many stalls the log names.
const LOGGED: usize = 5;
/// How long a host whose reads fail, or that cannot store outcomes, waits for its events in flight before it lets its lease and claims end.
const LEASE_ENDS_AFTER: Duration = Duration::from_secs(10);
/// The longest rest after a beat that reported a new stall.
const SOON: Duration = Duration::from_secs(2);
/// How often a host looks whether its report changed, so that a change is written before the next beat is due.
const REPORT_CHECK: Duration = Duration::from_secs(1);

/// A read of the database in a task of its own, since it may have to wait for a connection: no heartbeat may be late for that.
type Lookup<T> = JoinHandle<Result<T, StoreError>>;
/// All hosts, and the database's time.
type HostsLookup = Lookup<(Vec<NodeRecord>, Timestamp)>;

/// Lists the plugins of this host.
pub(crate) type PluginLister = Box<dyn Fn() -> Vec<PluginStatus> + Send + Sync>;

/// Reports the state of each sink of this host, with its routes.
pub(crate) type SinkReport = Arc<dyn Fn() -> Vec<SinkStatus> + Send + Sync>;

/// Says that this host is alive, until it stops.
pub(crate) struct Heartbeat {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) node: Node,
    pub(crate) lease: Duration,
    /// Whether the rows of events that are done are deleted at once.
    pub(crate) erase_done: bool,
    /// `None` without plugins.
    pub(crate) plugins: Option<PluginLister>,
    pub(crate) sinks: SinkReport,
    pub(crate) partitions: Arc<Partitions>,
    pub(crate) wake: Arc<Wake>,
    pub(crate) metrics: Arc<Metrics>,
    /// Beats at each heartbeat that was written, with the partitions kept.
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) stalls: Stalls,
}

impl Heartbeat {
    /// Sends heartbeats until the host stops, then signs the host off. Partitions without events in flight are free at once, the others when
    /// other hosts notice that this host is gone.
    pub(crate) async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        let (outage, restore_outage, trial_outage) = (Outage::default(), Outage::default(), Outage::default());
        let mut others = Others::new(self.node.owner.as_str(), self.node.mode, self.lease);
        let (mut last, mut unkept, mut availability) = (self.node.clone(), None, Availability::new(self.lease));
        let mut last_report = HostReport::default();
        let mut look: Option<HostsLookup> = None;
        let (mut clock, mut measured_at, mut measurement) =
            (ClockOffset::default(), None::<MeasuredAt>, None::<Lookup<Option<i64>>>);
        let mut trial: Option<Lookup<()>> = None;
        // How many hosts of this mode work, this host included, as the last heartbeat counted them; `None` if it failed.
        let mut live: Option<u32> = None;
        self.partitions.session().wait_until_known(FIRST_SESSION).await;
        'alive: loop {
            self.restore_partitions(&restore_outage).await;
            if let Some(ended) = trial.take_if(|trial| trial.is_finished()) {
                let succeeded = ended.await.is_ok_and(|tried| self.note_trial(tried, &trial_outage));
                availability.note_trial(succeeded);
            }
            self.decide(&mut availability, &last.listeners.stalled, live).await;
            if trial.is_none() && availability.needs_trial() {
                trial = Some(self.try_database());
            }
            let offset = clock;
            let (node, report) = (self.current(&availability, offset), self.report(offset, &last_report));
            live = if self.partitions.lets_lease_end() && self.partitions.holds_any() {
                None
            } else {
                outage.note(
                    self.run_once(&node, &report, &mut unkept).await.inspect_err(|error| {
                        self.metrics.db_error(error);
                        self.pulse.failed_with(error);
                    }),
                    |error| tracing::error!(%error, "this host cannot write its heartbeat; trying again"),
                    || tracing::info!("this host is seen by the others again"),
                )
            };
            let mut longest = self.lease / HEARTBEATS;
            if let Some(live) = live {
                self.pulse.beat();
                if !is_same(&node.listeners, &last.listeners) {
                    longest = longest.min(SOON);
                }
                (last, last_report) = (node, report);
                if look.is_none() && others.should_look(live) {
                    look = Some(self.look());
                }
                if measurement.is_none() && measured_at.is_none_or(MeasuredAt::is_old) {
                    measured_at = Some(MeasuredAt::now());
                    measurement = Some(self.measure_clock());
                }
            }
            let asked_for = async {
                self.partitions.beat_requested().await;
                tokio::time::sleep(LEAST_REST).await;
            };
            let news = async {
                // Checked every second, so that a change is published before the next regular beat.
                loop {
                    tokio::time::sleep(REPORT_CHECK).await;
                    let now = self.current(&availability, offset);
                    let is_old = now.stuck == last.stuck && has_same_states(&self.report(offset, &last_report), &last_report);
                    if !is_old || !is_same(&now.listeners, &last.listeners) {
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
                    measured = looked(&mut measurement) => {
                        if clock.update(measured) {
                            break;
                        }
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
    async fn run_once(&mut self, node: &Node, report: &HostReport, unkept: &mut Option<u32>) -> Result<u32, StoreError> {
        let mut is_news = false;
        if let Some(hosts) = *unkept {
            // A host that cannot keep its partitions must not look alive: no other host could take them over.
            is_news |= self.keep_partitions(hosts).await?;
        }
        // From here on others may rely on the session, as they may until they are told that there is none.
        let session = self.partitions.session().begin_announcing();
        // A host that stops or stands aside takes nothing: the others share the partitions without it.
        let room = if self.partitions.takes_any() { self.node.room } else { 0 };
        let report = report.to_json();
        let node = Node { report, session, room, is_registered: self.node.is_registered, ..node.clone() };
        let beat = self.partitions.begin_beat();
        let hosts = self.beat(node).await?;
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

    /// Writes a heartbeat. Only the first one inserts the row of this host, or one that finds the row deleted by another program: a
    /// heartbeat that the database executes after this host has left must find no row.
    async fn beat(&mut self, node: Node) -> Result<u32, StoreError> {
        let mut hosts = self.store.heartbeat(&node, self.lease).await?;
        if hosts == 0 {
            hosts = self.store.heartbeat(&Node { is_registered: false, ..node }, self.lease).await?;
        }
        self.node.is_registered = true;
        Ok(hosts)
    }

    /// Returns whether the poller is to look.
    async fn keep_partitions(&self, hosts: u32) -> Result<bool, StoreError> {
        self.partitions.keep(&*self.store, &self.node.owner, hosts).await
    }

    /// The plugins and sinks of this host. `last` is the report that was written last.
    fn report(&self, clock: ClockOffset, last: &HostReport) -> HostReport {
        let plugins = self.plugins.as_ref().map(|list| list()).unwrap_or_default();
        let report = clock.convert_report(HostReport::new(plugins, (self.sinks)()));
        throttle_successes(report, last, clock.database_time(system_clock().now()))
    }

    /// This host with its current stuck events and listeners. Publishes its stalls for the metrics, too.
    fn current(&self, availability: &Availability, clock: ClockOffset) -> Node {
        let stalled = availability.reported(&self.stalls.current(Instant::now()));
        self.metrics.stalls.set(availability.is_aside(), stalled.clone());
        let listeners =
            ListenerReport::new(self.stalls.listeners.digest(), stalled).with_open_breakers(self.stalls.open_breakers());
        let mut stuck = self.metrics.outcomes_apart.stuck();
        let is_lost = |(number, epoch)| self.partitions.is_held(number, epoch) == Some(false);
        stuck.extend(self.metrics.stuck_claims.stuck(Instant::now(), is_lost));
        clock.convert_node(Node { stuck, listeners, ..self.node.clone() })
    }

    /// Decides whether this host works or stands aside. `last_reported` are the stalls that its row reports; `live` is the count of the last
    /// heartbeat.
    async fn decide(&self, availability: &mut Availability, last_reported: &[StalledRoute], live: Option<u32>) {
        let stalls = self.stalls.current(Instant::now());
        let peers = if availability.needs_peers(&stalls) { self.peers(live).await } else { Peers::Unknown };
        let digest = self.stalls.listeners.digest();
        let has_passed_trial = availability.has_passed_trial();
        match availability.decide(Instant::now(), &stalls, last_reported, &digest, &peers) {
            Some(Change::Aside { other, rest }) => {
                let stalled = availability.reported(&stalls);
                let reasons: Vec<String> =
                    stalled.iter().take(LOGGED).map(|stalled| format!("{stalled}: {}", stalled.reason)).collect();
                tracing::warn!(
                    stalls = stalled.len(),
                    reasons = reasons.join("; "),
                    other,
                    rest_s = rest.as_secs(),
                    "another host can probably deliver more than this one; this host gives its partitions to the others, and retries after \
                     a rest"
                );
            }
            Some(Change::Back) => {
                if has_passed_trial {
                    // No outcome may be left to show that.
                    self.metrics.storing.succeeded(None);
                }
                tracing::info!("this host takes partitions again");
            }
            None => {}
        }
        // The outcomes of its events in flight may never be stored, and no host reads their partitions.
        let lets_lease_end =
            availability.has_been_aside_for(LEASE_ENDS_AFTER) && self.stalls.lets_lease_end(self.lease, Instant::now());
        self.partitions.set_aside(availability.is_aside(), lets_lease_end, has_all(&stalls));
    }

    /// Tries to read the table and to store outcomes.
    fn try_database(&self) -> Lookup<()> {
        let (store, erase_done) = (self.store.clone(), self.erase_done);
        tokio::spawn(async move { trial::read_and_store(&*store, erase_done).await })
    }

    /// Notes how a trial ended, and returns whether it succeeded.
    fn note_trial(&self, tried: Result<(), StoreError>, outage: &Outage) -> bool {
        let succeeded = outage.note(
            tried.inspect_err(|error| self.metrics.db_error(error)),
            |error| tracing::warn!(%error, "this host stands aside, and still cannot read the table or store outcomes; trying again"),
            || tracing::info!("this host can read the table and store outcomes again"),
        );
        succeeded.is_some()
    }

    /// The other hosts. If a standby answers the reads of this host, only the count of its last heartbeat is current.
    async fn peers(&self, live: Option<u32>) -> Peers {
        match self.store.peers(&self.node).await.inspect_err(|error| self.metrics.db_error(error)) {
            Ok(peers) => Peers::Read(peers),
            Err(StoreError::StaleRead { .. }) => Peers::Counted(live.unwrap_or(0).saturating_sub(1)),
            // A heartbeat, which follows, says whether the database answers.
            Err(_) => Peers::Unknown,
        }
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
    fn look(&self) -> HostsLookup {
        let store = self.store.clone();
        tokio::spawn(async move { Ok((store.nodes().await?, store.now().await?)) })
    }

    fn measure_clock(&self) -> Lookup<Option<i64>> {
        let store = self.store.clone();
        tokio::spawn(async move { clock::measure(&*store).await })
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
                         last heard from {heard} s ago; if it was killed, do nothing: this host takes over within seconds, at the \
                         latest in {forgotten} s; if it is running, the next warning says what to do"
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

/// Whether both report the same listeners, stalled routes and open breakers, whatever the reasons and the next tries.
fn is_same(one: &ListenerReport, other: &ListenerReport) -> bool {
    let mut routes = one.stalled.iter().zip(&other.stalled);
    let mut breakers = one.open_breakers.iter().zip(&other.open_breakers);
    one.digest == other.digest
        && one.stalled.len() == other.stalled.len()
        && one.open_breakers.len() == other.open_breakers.len()
        && one.more_open_breakers == other.more_open_breakers
        && routes.all(|(one, other)| one.has_same_route(other))
        && breakers.all(|(one, other)| one.is_same_opening(other))
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

/// The result of a lookup. Waits for ever if none is under way, or if it failed: a later heartbeat begins another.
async fn looked<T>(look: &mut Option<Lookup<T>>) -> T {
    if let Some(under_way) = look {
        let seen = under_way.await;
        *look = None;
        if let Ok(Ok(seen)) = seen {
            return seen;
        }
    }
    std::future::pending().await
}
