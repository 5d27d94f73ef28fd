//! What the operator grants a plugin and asks of it: `NAME.toml` beside `NAME.wasm`, or `[plugins.NAME]` of the host's file.

pub(super) mod advice;
mod emit;
mod http;
mod placed;
pub(super) mod references;
mod revoked;

pub use self::references::{Resolve, Source};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::emit::Emit;
pub use self::http::{Http, Network, Origin};
use outbox_event::units::{ByteSize, duration};
use outbox_listener::{Exponential, Fixed, Jittered, RetryPolicy};

/// The largest memory that a manifest may give.
pub(super) const MAX_MEMORY: ByteSize = ByteSize::mib(256);

/// One plugin's manifest. Everything has a default, so a plugin needs none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawManifest")]
pub struct Manifest {
    /// SHA-256 of the component, 64 hex digits in lower case: another component is held back until file and manifest match.
    /// `None` for whichever lies there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// How long one instance of the guest lives. Default: one event.
    pub isolation: Isolation,
    /// What one call may use.
    pub limits: Limits,
    /// When a failed event is tried again; `None` for the host's policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// Which follow-up events the guest may emit; `None` for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emit: Option<Emit>,
    /// Whether the guest may keep values in the outbox's database, and how much; `None` when it may not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// Where the guest may publish to; `None` for nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish: Option<Publish>,
    /// Which HTTP requests the guest may make; `None` for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<Http>,
    /// What the guest reads by `settings.get`. Values may hold `${env:NAME}` and `${file:PATH}`.
    pub config: BTreeMap<String, String>,
    /// What the guest reads by `settings.secret`: as `config`, but blanked out in log lines and failures.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
}

/// Where a plugin may publish to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Publish {
    /// Names of sinks of the host, such as `orders` for its `[sinks.orders]`.
    pub sinks: BTreeSet<String>,
}

/// How much a plugin may keep. Written `state = true` for the defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct State {
    /// Keys. Default 1000; at least 1.
    pub max_keys: u64,
    /// Bytes of keys and values together. Default 1 MiB; above zero.
    pub max_bytes: ByteSize,
}

impl Default for State {
    fn default() -> Self {
        Self { max_keys: 1_000, max_bytes: ByteSize::mib(1) }
    }
}

/// How long one instance of the guest lives. It answers one event at a time, and never those of two routes or two tenants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Isolation {
    /// One event: nothing of an earlier event can be seen. The default.
    #[default]
    Event,
    /// The events of one claim; or one call for events that are there together, where the component exports `on-events`.
    Batch,
    /// Any number of events of one tenant, until something goes wrong or nobody needs it for a while.
    Worker {
        /// After this many calls a new instance begins, since some guests never give memory back. Default 1000; at least 1.
        #[serde(default = "max_calls")]
        max_calls: u32,
    },
    /// One event, in memory that no guest had before and none has afterwards. A small guest costs twice as much.
    Strict,
}

/// What one call may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Instructions, roughly. Default 200,000,000: 10 to 20 ms of computing. At least 1.
    pub fuel: u64,
    /// Time on the wall, instantiation included. Default 5 s; above zero.
    #[serde(with = "duration")]
    pub deadline: Duration,
    /// The sum of all memories and tables. Default 64 MiB; at most 256 MiB.
    pub memory: ByteSize,
    /// Calls of the host in one call of the guest. Default 10,000; at least 1.
    pub host_calls: u32,
    /// Calls at once, of all its routes together; `None` for half of the workers. At least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<usize>,
}

impl Default for Limits {
    fn default() -> Self {
        let (fuel, deadline, memory) = (200_000_000, Duration::from_secs(5), ByteSize::mib(64));
        Self { fuel, deadline, memory, host_calls: 10_000, concurrency: None }
    }
}

/// When a failed event is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retry {
    /// The shape of the rests. Default exponential.
    pub policy: RetryKind,
    /// The rest after the first failure. Default 200 ms.
    #[serde(with = "duration")]
    pub base: Duration,
    /// The longest rest; for `exponential`. Default 60 s.
    #[serde(with = "duration")]
    pub max: Duration,
    /// Counted attempts before an event is dead; `None` for the host's bound. At least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
}

impl Default for Retry {
    fn default() -> Self {
        let Exponential { base, max } = Exponential::default();
        Self { policy: RetryKind::Exponential, base, max, max_attempts: None }
    }
}

impl Retry {
    /// What does not go together, as [`Exponential::fault`]. Not found by reading a manifest: the host reads each key by
    /// itself.
    #[must_use]
    pub fn fault(&self) -> Option<&'static str> {
        let Self { policy, base, max, .. } = *self;
        (policy == RetryKind::Exponential).then_some(Exponential { base, max }).and_then(|rests| rests.fault())
    }

    /// The policy that this describes.
    #[must_use]
    pub fn policy(&self) -> Arc<dyn RetryPolicy> {
        match self.policy {
            RetryKind::Exponential => Arc::new(Exponential { base: self.base, max: self.max }),
            RetryKind::Fixed => Arc::new(Fixed(self.base)),
            RetryKind::Jittered => Arc::new(Jittered(Fixed(self.base))),
        }
    }
}

/// The shape of the rests between attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryKind {
    /// Doubling from `base` up to `max`, varied by half either way.
    #[default]
    Exponential,
    /// Always `base`.
    Fixed,
    /// `base`, varied by half either way.
    Jittered,
}

fn max_calls() -> u32 {
    1_000
}

/// The manifest as it is written.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
struct RawManifest {
    digest: Option<String>,
    isolation: Isolation,
    #[serde(deserialize_with = "placed::limits")]
    limits: Limits,
    #[serde(deserialize_with = "placed::retry")]
    retry: Option<Retry>,
    #[serde(deserialize_with = "placed::config")]
    config: BTreeMap<String, String>,
    #[serde(deserialize_with = "placed::secrets")]
    secrets: BTreeMap<String, String>,
    #[serde(deserialize_with = "placed::emit")]
    emit: Option<Emit>,
    #[serde(deserialize_with = "placed::state")]
    state: Option<State>,
    #[serde(deserialize_with = "placed::http")]
    http: Option<Http>,
    #[serde(deserialize_with = "placed::publish")]
    publish: Option<Publish>,
}

impl TryFrom<RawManifest> for Manifest {
    type Error = String;

    /// Checks everything and reports all faults together.
    fn try_from(written: RawManifest) -> Result<Self, String> {
        let RawManifest { digest, isolation, limits, retry, config, secrets, emit, state, http, publish } = written;
        let mut faults = Vec::new();
        faults.extend(emit.iter().flat_map(Emit::faults));
        if state.is_some_and(|state| state.max_keys == 0 || state.max_bytes == ByteSize(0)) {
            faults.push("state.max_keys and state.max_bytes must be above zero (state = false grants nothing)".to_owned());
        }
        faults.extend(http.iter().flat_map(Http::faults));
        let digest = digest.map(|digest| digest.to_ascii_lowercase());
        if let Some(digest) = &digest
            && (digest.len() != 64 || !digest.bytes().all(|byte| byte.is_ascii_hexdigit()))
        {
            faults.push(format!("digest is `{digest}`; it must be the SHA-256 of the component in 64 hex digits"));
        }
        if matches!(isolation, Isolation::Worker { max_calls: 0 }) {
            faults.push("isolation.worker.max_calls is 0; it must be at least 1".to_owned());
        }
        if limits.fuel == 0 {
            faults.push("limits.fuel is 0; it must be at least 1".to_owned());
        }
        if limits.deadline.is_zero() {
            faults.push("limits.deadline is 0s; it must be above zero".to_owned());
        }
        if limits.memory > MAX_MEMORY || limits.memory == ByteSize(0) {
            faults.push(format!("limits.memory is {}; it must be above zero and at most {MAX_MEMORY}", limits.memory));
        }
        if limits.host_calls == 0 {
            faults.push("limits.host_calls is 0; it must be at least 1".to_owned());
        }
        if limits.concurrency == Some(0) {
            faults.push("limits.concurrency is 0; it must be at least 1 (leave it out for half of the workers)".to_owned());
        }
        if retry.is_some_and(|retry| retry.max_attempts == Some(0)) {
            faults.push("retry.max_attempts is 0; it must be at least 1".to_owned());
        }
        let manifest = Self { digest, isolation, limits, retry, emit, state, publish, http, config, secrets };
        if faults.is_empty() { Ok(manifest) } else { Err(faults.join("; ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_can_be_said_is_read() {
        let manifest: Manifest = toml::from_str(
            r#"
            isolation = { worker = { max_calls = 50 } }
            [limits]
            fuel = 1_000
            deadline = "250ms"
            memory = "16MiB"
            concurrency = 4
            host_calls = 50
            [state]
            max_keys = 10
            [http]
            allow = ["https://api.example.com/"]
            allow_private = ["10.0.0.0/8"]
            [publish]
            sinks = ["orders"]
            [retry]
            policy = "jittered"
            base = "1s"
            max_attempts = 3
            [config]
            endpoint = "https://api.example.com"
            [secrets]
            token = "t"
            "#,
        )
        .unwrap();
        assert_eq!(manifest.isolation, Isolation::Worker { max_calls: 50 });
        assert_eq!(manifest.limits.memory, ByteSize::mib(16));
        assert_eq!((manifest.limits.concurrency, manifest.limits.host_calls, &manifest.emit), (Some(4), 50, &None));
        assert_eq!(manifest.state, Some(State { max_keys: 10, max_bytes: ByteSize::mib(1) }));
        assert_eq!(toml::from_str::<Manifest>("emit = true").unwrap().emit, Some(Emit::default()));
        let emit = toml::from_str::<Manifest>("emit.routes = ['Payment/*', '*/Noted']\nemit.ids = true").unwrap().emit.unwrap();
        let allows = |a: &str, b: &str| emit.allows(&outbox_event::Route::new(a, b).unwrap());
        assert!(allows("Payment", "Paid") && allows("X", "Noted") && !allows("Order", "Paid") && emit.ids);
        assert_eq!(toml::from_str::<Manifest>("state = true").unwrap().state, Some(State::default()));
        assert_eq!(toml::from_str::<Manifest>("state = false").unwrap().state, None);
        let http = manifest.http.as_ref().unwrap();
        assert_eq!((http.allow[0].to_string(), http.concurrency), ("https://api.example.com".to_owned(), 128));
        assert!(manifest.publish.as_ref().is_some_and(|publish| publish.sinks.contains("orders")));
        let retry = manifest.retry.unwrap();
        assert_eq!((retry.policy, retry.max, retry.max_attempts), (RetryKind::Jittered, Duration::from_secs(60), Some(3)));
        let written = toml::to_string(&manifest).unwrap();
        assert_eq!(toml::from_str::<Manifest>(&written).unwrap(), manifest, "and written back");
        assert_eq!(toml::from_str::<Manifest>("isolation = \"batch\"").unwrap().isolation, Isolation::Batch);
        assert_eq!(toml::from_str::<Manifest>("isolation = \"strict\"").unwrap().isolation, Isolation::Strict);
        assert_eq!(toml::from_str::<Manifest>("").unwrap(), Manifest::default());
    }

    #[test]
    fn faults_are_told_together_and_unknown_keys_with_what_is_allowed() {
        let fault = |text: &str| toml::from_str::<Manifest>(text).unwrap_err().to_string();
        let both = fault("http.timeout = \"0s\"\n[limits]\nfuel = 0\nmemory = \"1GiB\"");
        for part in ["http.timeout is 0s", "limits.fuel is 0", "limits.memory is 1GiB"] {
            assert!(both.contains(part), "{both}");
        }
        assert!(fault("[http]\nallow = [\"example.com\"]").contains("`example.com` is not an origin"));
        assert!(fault("[http]\nallow_private = [\"lan\"]").contains("`lan` is not a network"));
        assert!(fault("state = { max_keys = 0 }").contains("must be above zero"));
        assert!(fault("emit = 'all'").contains("`emit` as true, false, or a table"));
        assert!(fault("emit.per_second = 0\nemit.routes = []").contains("emit.routes is empty"));
        assert!(fault("emit.bytes_per_second = 0").contains("emit.bytes_per_second is 0"));
        assert!(fault("emit.routes = ['Payment']").contains("`Payment` is not a route such as Order/*: it has no `/`"));
        assert!(fault("state = 3").contains("`state` as true, false, or a table"));
        let unknown = fault("[limits]\nfule = 3");
        assert!(unknown.contains("fule") && unknown.contains("`fuel`"), "{unknown}");
        assert!(fault("isolation = \"thread\"").contains("`event`"));
        assert!(fault("digest = \"abc\"").contains("digest is `abc`; it must be the SHA-256"));
        let upper = format!("digest = \"{}\"", "AB".repeat(32));
        assert_eq!(toml::from_str::<Manifest>(&upper).unwrap().digest, Some("ab".repeat(32)));
    }

    #[test]
    fn the_longest_rest_of_doubling_ones_is_no_shorter_than_the_first() {
        let fault = |retry: &str| toml::from_str::<Manifest>(retry).unwrap().retry.unwrap().fault();
        for bad in ["base = '5s'\nmax = '1s'", "base = '2m'", "max = '0s'"] {
            assert!(
                fault(&format!("[retry]\n{bad}")).is_some_and(|why| why.starts_with("retry.max is below retry.base")),
                "{bad}"
            );
        }
        for good in ["base = '5m'\nmax = '10m'", "base = '1s'\nmax = '1s'", "policy = 'fixed'\nbase = '2m'"] {
            assert_eq!(fault(&format!("[retry]\n{good}")), None, "{good}");
        }
    }
}
