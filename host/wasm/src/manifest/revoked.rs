//! What a later manifest no longer grants.

use std::collections::BTreeMap;

use super::{Emit, Http, Isolation, Manifest};

impl Manifest {
    /// The first grant of this manifest that `now` does not give, as people name it; `None` when `now` gives all of them. Bounds on
    /// how much is used are no grants, and neither are settings that refer to nothing outside the manifest.
    pub(crate) fn revoked_by(&self, now: &Self) -> Option<String> {
        let of_emit = || missing(self.emit.as_ref(), now.emit.as_ref(), Emit::within, "emit");
        let of_state = || (self.state.is_some() && now.state.is_none()).then(|| "state".to_owned());
        let of_publish = || {
            let granted = |sink: &String| now.publish.as_ref().is_some_and(|publish| publish.sinks.contains(sink));
            self.publish.as_ref()?.sinks.iter().find(|sink| !granted(sink)).map(|sink| format!("publish to {sink}"))
        };
        let of_http = || missing(self.http.as_ref(), now.http.as_ref(), Http::within, "http");
        let secrets = || changed(&self.secrets, &now.secrets, |_| true).map(|key| format!("secrets.{key}"));
        let references = || changed(&self.config, &now.config, |text| text.contains("${")).map(|key| format!("config.{key}"));
        let isolation = || (self.isolation.looseness() > now.isolation.looseness()).then(|| "its isolation".to_owned());
        isolation().or_else(of_emit).or_else(of_state).or_else(of_publish).or_else(of_http).or_else(secrets).or_else(references)
    }
}

fn missing<T>(before: Option<&T>, now: Option<&T>, within: impl Fn(&T, &T) -> bool, what: &str) -> Option<String> {
    let before = before?;
    (!now.is_some_and(|now| within(before, now))).then(|| what.to_owned())
}

/// A key whose value counts, and is another one now or none.
fn changed<'m>(
    before: &'m BTreeMap<String, String>,
    now: &BTreeMap<String, String>,
    counts: impl Fn(&str) -> bool,
) -> Option<&'m str> {
    let mut changed = before.iter().filter(|(key, value)| counts(value) && now.get(*key) != Some(*value));
    changed.next().map(|(key, _)| key.as_str())
}

impl Isolation {
    /// How much of an earlier event a later one may meet.
    fn looseness(self) -> u8 {
        match self {
            Self::Strict => 0,
            Self::Event => 1,
            Self::Batch => 2,
            Self::Worker { .. } => 3,
        }
    }
}

impl Emit {
    fn within(&self, now: &Self) -> bool {
        let routes = self.routes.iter().all(|route| now.routes.iter().any(|granted| granted.covers(route)));
        routes && (!self.other_tenants || now.other_tenants) && (!self.ids || now.ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revoked(before: &str, now: &str) -> Option<String> {
        let parse = |text: &str| toml::from_str::<Manifest>(text).unwrap();
        parse(before).revoked_by(&parse(now))
    }

    #[test]
    fn what_is_granted_as_it_was_or_more_widely_is_not_revoked() {
        for (before, now) in [
            ("", ""),
            ("", "emit = true\nstate = true"),
            ("isolation = \"strict\"", "isolation = { worker = { max_calls = 5 } }"),
            ("emit = { routes = [\"Payment/Requested\"] }", "emit = { routes = [\"Payment/*\"], ids = true }"),
            ("state = { max_keys = 10 }", "state = { max_keys = 5 }"),
            ("[publish]\nsinks = [\"a\"]", "[publish]\nsinks = [\"b\", \"a\"]"),
            ("[http]\nallow = [\"https://a.example.com\"]", "[http]\nallow = [\"https://*.example.com\"]\ntimeout = \"1s\""),
            ("[http]\nallow_private = [\"10.1.0.0/16\"]", "[http]\nallow_private = [\"10.0.0.0/8\"]"),
            ("[secrets]\nkey = \"${env:K}\"", "[secrets]\nkey = \"${env:K}\"\nother = \"x\""),
            ("[config]\nplain = \"a\"\n[limits]\nfuel = 10", "[config]\nplain = \"b\""),
        ] {
            assert_eq!(revoked(before, now), None, "{before} → {now}");
        }
    }

    #[test]
    fn every_grant_that_is_gone_or_narrower_is_found() {
        for (before, now, what) in [
            ("isolation = \"batch\"", "isolation = \"strict\"", "its isolation"),
            ("emit = true", "", "emit"),
            ("emit = true", "emit = { routes = [\"Payment/*\"] }", "emit"),
            ("emit = { ids = true }", "emit = true", "emit"),
            ("emit = { other_tenants = true }", "emit = true", "emit"),
            ("state = true", "state = false", "state"),
            ("[publish]\nsinks = [\"a\", \"b\"]", "[publish]\nsinks = [\"a\"]", "publish to b"),
            ("[http]\nallow = [\"https://*.example.com\"]", "[http]\nallow = [\"https://a.example.com\"]", "http"),
            ("[http]\nallow = [\"https://a.example.com\"]", "", "http"),
            ("[http]\nallow_private = [\"10.0.0.0/8\"]", "[http]\nallow_private = [\"10.1.0.0/16\"]", "http"),
            ("[secrets]\nkey = \"${env:K}\"", "[secrets]\nkey = \"${env:L}\"", "secrets.key"),
            ("[secrets]\nkey = \"x\"", "", "secrets.key"),
            ("[config]\nurl = \"${file:url}\"", "[config]\nurl = \"plain\"", "config.url"),
        ] {
            assert_eq!(revoked(before, now).as_deref(), Some(what), "{before} → {now}");
        }
    }
}
