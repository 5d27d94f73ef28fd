//! All sinks of a host, by name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::batching::Batching;
use super::common::TIMEOUT;
use super::monitor::{Source, Watched};
use super::observed::Observed;
use super::{CommonConfig, Sink, SinkConfig, SinkMonitor};

/// Why there are no sinks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinksError {
    /// Values that make no sense, all of them.
    #[error("the sinks have {} faults: {}", .0.len(), .0.join("; "))]
    Config(Vec<String>),
}

/// All sinks of a host, by name. Cheap to clone; the connections are closed with the last clone.
///
/// ```
/// # mod outbox { pub use outbox_sink as sink; }
/// use std::collections::BTreeMap;
///
/// use outbox::sink::{SinkConfig, Sinks, StdoutConfig};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), outbox::sink::SinksError> {
/// let console = SinkConfig::Stdout(StdoutConfig { source: "shop".to_owned() });
/// let sinks = Sinks::connect(&BTreeMap::from([("console".to_owned(), console)]))?;
///
/// assert!(sinks.get("console").is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Sinks(BTreeMap<Arc<str>, Entry>);

#[derive(Clone)]
struct Entry {
    sink: MadeBy,
    kind: &'static str,
    timeout: Duration,
    max_age: Option<Duration>,
}

/// Who made a sink.
#[derive(Clone)]
enum MadeBy {
    Config(Arc<Batching>),
    Application(Arc<Observed>),
}

/// The longest name of a sink, in characters.
const MAX_NAME_CHARS: usize = 64;

impl Sinks {
    /// Checks all configurations together, then starts the sinks. Each connects with its first message, so that a host starts even
    /// while a broker is down. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// Everything that is wrong with the names and values.
    pub fn connect(configs: &BTreeMap<String, SinkConfig>) -> Result<Self, SinksError> {
        let faults = Self::faults(configs);
        if !faults.is_empty() {
            return Err(SinksError::Config(faults));
        }
        let mut sinks = Self::default();
        let mut faults = Vec::new();
        for (name, config) in configs {
            match config.start(name) {
                Ok(sink) => {
                    let CommonConfig { timeout, max_age, .. } = config.common();
                    let (sink, kind) = (MadeBy::Config(Arc::new(sink)), config.kind());
                    sinks.0.insert(Arc::from(name.as_str()), Entry { sink, kind, timeout, max_age });
                }
                Err(fault) => faults.push(format!("sinks.{name}: {fault}")),
            }
        }
        if faults.is_empty() { Ok(sinks) } else { Err(SinksError::Config(faults)) }
    }

    /// Lets a sink of a configuration connect anew with other settings, such as a changed password. Waits until the messages on their
    /// way have been answered by the old connection, for about the timeout of the sink at most; later ones wait for the new connection,
    /// so that they overtake none. Its timeout, subjects and limits stay as they were. All clones have the new connection. Must be
    /// called within a tokio runtime.
    ///
    /// # Errors
    /// Everything that is wrong with the values, or if there is no such sink of this kind; the sink keeps its connection then.
    pub async fn update(&self, name: &str, config: &SinkConfig) -> Result<(), SinksError> {
        let sink = match self.0.get(name) {
            Some(Entry { sink: MadeBy::Config(sink), kind, .. }) if *kind == config.kind() => sink,
            _ => return Err(SinksError::Config(vec![format!("there is no sink {name} of the kind {}", config.kind())])),
        };
        let faults = config.faults(&format!("sinks.{name}"));
        if !faults.is_empty() {
            return Err(SinksError::Config(faults));
        }
        let link =
            config.link(name, sink.rests()).map_err(|fault| SinksError::Config(vec![format!("sinks.{name}: {fault}")]))?;
        sink.replace(link, config.target()).await;
        Ok(())
    }

    /// Everything that is wrong with the names and values, one text each; names begin with `sinks.`.
    #[must_use]
    pub fn faults(configs: &BTreeMap<String, SinkConfig>) -> Vec<String> {
        let names = configs.keys().filter(|name| !is_name(name)).map(|name| {
            format!(
                "sinks.{name:?} is not a valid name of a sink; use 1 to {MAX_NAME_CHARS} lower-case letters, digits, - and _"
            )
        });
        names.chain(configs.iter().flat_map(|(name, config)| config.faults(&format!("sinks.{name}")))).collect()
    }

    /// Adds a sink of the application's own, with a timeout of 10 s; it replaces one of the same name.
    #[must_use]
    pub fn with(mut self, name: &str, sink: Arc<dyn Sink>) -> Self {
        let sink = MadeBy::Application(Arc::new(Observed::new(sink)));
        self.0.insert(Arc::from(name), Entry { sink, kind: "application", timeout: TIMEOUT, max_age: None });
        self
    }

    /// The same sinks for one more user among several, who gets at most half of the places of each. A sink of the application's own
    /// has no places.
    #[doc(hidden)] // for the host
    #[must_use]
    pub fn with_own_share(&self) -> Self {
        let shared = |(name, entry): (&Arc<str>, &Entry)| {
            let sink = match &entry.sink {
                MadeBy::Config(sink) => MadeBy::Config(Arc::new(sink.with_own_share())),
                MadeBy::Application(sink) => MadeBy::Application(sink.clone()),
            };
            (name.clone(), Entry { sink, ..entry.clone() })
        };
        Self(self.0.iter().map(shared).collect())
    }

    /// The time within which a sink must confirm a message; 10 s for an unknown name.
    #[must_use]
    pub fn timeout(&self, name: &str) -> Duration {
        self.0.get(name).map_or(TIMEOUT, |entry| entry.timeout)
    }

    /// How long an event may wait for a receiver of this sink that is unavailable; `None` for as long as it takes.
    #[must_use]
    pub fn max_age(&self, name: &str) -> Option<Duration> {
        self.0.get(name).and_then(|entry| entry.max_age)
    }

    /// The sink of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<dyn Sink>> {
        self.0.get(name).map(|entry| match &entry.sink {
            MadeBy::Config(sink) => sink.clone() as Arc<dyn Sink>,
            MadeBy::Application(sink) => sink.clone() as Arc<dyn Sink>,
        })
    }

    /// Reports the state of these sinks, and of all that share their connections.
    #[must_use]
    pub fn monitor(&self) -> SinkMonitor {
        let watched = |(name, entry): (&Arc<str>, &Entry)| {
            let source = match &entry.sink {
                MadeBy::Config(sink) => {
                    let (breaker, unavailable, link, target) = sink.watched();
                    Source::Config { breaker, unavailable, link, target, panicked: sink.panicked() }
                }
                MadeBy::Application(sink) => Source::Application(sink.answers()),
            };
            Watched { name: name.clone(), kind: entry.kind, source }
        };
        SinkMonitor(self.0.iter().map(watched).collect())
    }

    /// All names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(AsRef::as_ref)
    }
}

impl fmt::Debug for Sinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Whether a name can be used in a configuration key, an environment variable and a log line.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    (1..=MAX_NAME_CHARS).contains(&name.len()) && name.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_faults_of_all_sinks_are_told_together() {
        let stdout = |source: &str| SinkConfig::Stdout(crate::StdoutConfig { source: source.to_owned() });
        let configs = [("a.b", stdout("x")), ("orders", stdout(""))].map(|(name, config)| (name.to_owned(), config));
        let SinksError::Config(faults) = Sinks::connect(&configs.into()).expect_err("two faults");
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[0].starts_with("sinks.\"a.b\" is not a valid name"));
        assert!(faults[1].starts_with("sinks.orders.source is empty"));
    }

    #[tokio::test]
    async fn only_a_sink_of_a_configuration_can_be_updated_and_with_good_settings_alone() {
        let stdout = |source: &str| SinkConfig::Stdout(crate::StdoutConfig { source: source.to_owned() });
        let sinks = Sinks::connect(&[("console".to_owned(), stdout("shop"))].into()).expect("no faults");
        let own = sinks.get("console").expect("it is there");
        let sinks = sinks.with("own", own);

        assert!(sinks.update("console", &stdout("store")).await.is_ok());

        for (name, source, fault) in
            [("orders", "x", "no sink orders"), ("own", "x", "no sink own"), ("console", "", "is empty")]
        {
            let SinksError::Config(faults) = sinks.update(name, &stdout(source)).await.expect_err(name);
            assert!(faults[0].contains(fault), "{faults:?}");
        }
    }

    #[tokio::test]
    async fn the_state_of_each_sink_is_reported_while_and_after_it_is_in_use() {
        let config = SinkConfig::Stdout(crate::StdoutConfig { source: "shop".to_owned() });
        let sinks = Sinks::connect(&[("console".to_owned(), config)].into()).expect("no faults");
        let monitor = sinks.with_own_share().monitor();
        let kinds = |monitor: &SinkMonitor| -> Vec<_> {
            monitor.list().into_iter().map(|status| (status.name, status.kind, status.state)).collect()
        };
        let reported = [("console".to_owned(), "stdout".to_owned(), outbox_event::SinkState::Unconfirmed)];

        assert_eq!(kinds(&monitor), reported);
        drop(sinks);
        assert_eq!(kinds(&monitor), reported);
    }
}
