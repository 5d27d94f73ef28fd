//! What the operator grants a plugin and asks of it: `NAME.toml` beside `NAME.wasm`, or `[plugins.NAME]` of the host's file.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::listener::{Exponential, Fixed, Jittered, RetryPolicy};
use crate::units::{ByteSize, duration};

/// The largest memory that a manifest may give.
pub(super) const MAX_MEMORY: ByteSize = ByteSize::mib(256);

/// One plugin's manifest. Everything has a default, so a plugin needs none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written")]
pub struct Manifest {
    /// How long one instance of the guest lives. Default: one event.
    pub isolation: Isolation,
    /// What one call may use.
    pub limits: Limits,
    /// When a failed event is tried again; `None` for the host's policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// What the guest reads through `wasi:config`. Values may hold `${env:NAME}` and `${file:PATH}`.
    pub config: BTreeMap<String, String>,
}

/// How long one instance of the guest lives. It is never shared by two workers, two routes or two tenants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Isolation {
    /// One event: nothing of an earlier event can be seen. The default.
    #[default]
    Event,
    /// The events of one claim.
    Batch,
    /// As long as the worker meets the same tenant, or until something goes wrong.
    Worker {
        /// After so many calls a new instance begins, since some guests never give memory back. Default 1000; at least 1.
        #[serde(default = "max_calls")]
        max_calls: u32,
    },
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
    /// Calls at once, for each route; `None` for as many as there are workers. At least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<usize>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { fuel: 200_000_000, deadline: Duration::from_secs(5), memory: ByteSize::mib(64), concurrency: None }
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

/// The manifest as it is written. Keys of capabilities that this version does not have are read only to be refused by name.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
struct Written {
    isolation: Isolation,
    limits: Limits,
    retry: Option<Retry>,
    config: BTreeMap<String, String>,
    emit: Option<serde::de::IgnoredAny>,
    state: Option<serde::de::IgnoredAny>,
    http: Option<serde::de::IgnoredAny>,
    publish: Option<serde::de::IgnoredAny>,
    secrets: Option<serde::de::IgnoredAny>,
}

impl TryFrom<Written> for Manifest {
    type Error = String;

    /// Checks everything and reports all faults together.
    fn try_from(written: Written) -> Result<Self, String> {
        let Written { isolation, limits, retry, config, .. } = written;
        let mut faults = Vec::new();
        for (key, given) in [
            ("emit", written.emit.is_some()),
            ("state", written.state.is_some()),
            ("http", written.http.is_some()),
            ("publish", written.publish.is_some()),
            ("secrets", written.secrets.is_some()),
        ] {
            if given {
                faults.push(format!("`{key}` is not supported by this version; remove it"));
            }
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
        if limits.concurrency == Some(0) {
            faults.push("limits.concurrency is 0; it must be at least 1 (leave it out for no bound)".to_owned());
        }
        if retry.is_some_and(|retry| retry.max_attempts == Some(0)) {
            faults.push("retry.max_attempts is 0; it must be at least 1".to_owned());
        }
        if faults.is_empty() { Ok(Self { isolation, limits, retry, config }) } else { Err(faults.join("; ")) }
    }
}

/// Where a value of a manifest's `[config]` comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `${env:NAME}`: the environment of the host.
    Env,
    /// `${file:PATH}`: the text of a file.
    File,
}

/// Finds the values behind `${env:NAME}` and `${file:PATH}`.
///
/// The library reads neither: whoever embeds it says how. The default refuses.
#[derive(Clone)]
pub struct Resolve(Arc<Find>);

type Find = dyn Fn(Source, &str) -> Result<String, String> + Send + Sync;

impl Resolve {
    /// With a function from where and which to the value, or to the reason why there is none.
    pub fn new(find: impl Fn(Source, &str) -> Result<String, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(find))
    }

    /// The text with every reference replaced.
    pub(super) fn text(&self, text: &str) -> Result<String, String> {
        let mut resolved = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            resolved.push_str(&rest[..start]);
            let inner = &rest[start + 2..];
            let end = inner.find('}').ok_or_else(|| format!("`{}` has no closing brace", &rest[start..]))?;
            let (source, name) = match inner[..end].split_once(':') {
                Some(("env", name)) => (Source::Env, name),
                Some(("file", path)) => (Source::File, path),
                _ => return Err(format!("`${{{}}}` is not a reference; write ${{env:NAME}} or ${{file:PATH}}", &inner[..end])),
            };
            resolved.push_str(&(self.0)(source, name)?);
            rest = &inner[end + 1..];
        }
        resolved.push_str(rest);
        Ok(resolved)
    }
}

impl Default for Resolve {
    fn default() -> Self {
        Self::new(|source, name| {
            let what = match source {
                Source::Env => "the environment",
                Source::File => "a file",
            };
            Err(format!("`{name}` would come from {what}, which this host does not read for plugins; write the value itself"))
        })
    }
}

impl fmt::Debug for Resolve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolve")
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
            [retry]
            policy = "jittered"
            base = "1s"
            max_attempts = 3
            [config]
            endpoint = "https://api.example.com"
            "#,
        )
        .unwrap();
        assert_eq!(manifest.isolation, Isolation::Worker { max_calls: 50 });
        assert_eq!(manifest.limits.memory, ByteSize::mib(16));
        assert_eq!(manifest.limits.concurrency, Some(4));
        let retry = manifest.retry.unwrap();
        assert_eq!((retry.policy, retry.max, retry.max_attempts), (RetryKind::Jittered, Duration::from_secs(60), Some(3)));
        let written = toml::to_string(&manifest).unwrap();
        assert_eq!(toml::from_str::<Manifest>(&written).unwrap(), manifest, "and written back");
        assert_eq!(toml::from_str::<Manifest>("isolation = \"batch\"").unwrap().isolation, Isolation::Batch);
        assert_eq!(toml::from_str::<Manifest>("").unwrap(), Manifest::default());
    }

    #[test]
    fn faults_are_told_together_and_unknown_keys_with_what_is_allowed() {
        let fault = |text: &str| toml::from_str::<Manifest>(text).unwrap_err().to_string();
        let both = fault("emit = true\n[limits]\nfuel = 0\nmemory = \"1GiB\"");
        for part in ["`emit` is not supported by this version", "limits.fuel is 0", "limits.memory is 1GiB"] {
            assert!(both.contains(part), "{both}");
        }
        assert!(fault("[http]\nallow = []").contains("`http` is not supported by this version"));
        let unknown = fault("[limits]\nfule = 3");
        assert!(unknown.contains("fule") && unknown.contains("`fuel`"), "{unknown}");
        assert!(fault("isolation = \"thread\"").contains("`event`"));
    }

    #[test]
    fn references_are_resolved_by_the_embedder_only() {
        let resolve = Resolve::new(|source, name| match source {
            Source::Env => Ok(name.to_lowercase()),
            Source::File => Err(format!("{name} is not there")),
        });
        assert_eq!(resolve.text("https://${env:HOST}/${env:PATH}!"), Ok("https://host/path!".to_owned()));
        assert_eq!(resolve.text("${file:/x}"), Err("/x is not there".to_owned()));
        assert!(resolve.text("${HOME}").unwrap_err().contains("write ${env:NAME}"));
        assert!(Resolve::default().text("${env:X}").unwrap_err().contains("does not read"));
        assert_eq!(Resolve::default().text("plain"), Ok("plain".to_owned()));
    }
}
