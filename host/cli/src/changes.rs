//! What a plugins directory would change: compared with what the hosts serve now, or with another directory.

use std::collections::{BTreeMap, BTreeSet};

use outbox::Route;
use serde::Serialize;

use crate::output::{self, lines, routes, shown, some_of};
use crate::plugins::{PluginState, PluginStatus};

/// What becomes of one plugin.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Change {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// The digest that serves now; `None` for a plugin that is new.
    pub(crate) from: Option<String>,
    /// The digest that would serve; `None` for one that goes, or is refused.
    pub(crate) to: Option<String>,
    /// The digest that serves in the place of a refused one: that of the version before; `None` where there is none.
    pub(crate) goes_on: Option<String>,
    /// Routes that it would answer and does not yet, each with the plugin that answers it now, if one does.
    pub(crate) gains: Vec<Gain>,
    /// Routes that nobody would answer any more: their events wait.
    pub(crate) loses: Vec<Route>,
    /// How many routes it answers now that its host has not told of: they are compared with nothing.
    pub(crate) not_compared: usize,
    /// Why it would not serve: the version before goes on, where there is one.
    pub(crate) error: Option<String>,
}

/// A route that a plugin would answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Gain {
    pub(crate) route: Route,
    pub(crate) from: Option<String>,
}

/// In one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Added,
    Removed,
    Changed,
    Unchanged,
    Refused,
}

/// What follows when `candidate` takes the place of `now`.
pub(crate) fn changes(now: &[PluginStatus], candidate: &[PluginStatus]) -> Vec<Change> {
    let after: BTreeMap<&str, &PluginStatus> = candidate.iter().map(|plugin| (plugin.name.as_str(), plugin)).collect();
    let now: Vec<PluginStatus> = now.iter().map(|plugin| completed(plugin, after.get(plugin.name.as_str()).copied())).collect();
    let before: BTreeMap<&str, &PluginStatus> = now.iter().map(|plugin| (plugin.name.as_str(), plugin)).collect();
    let answering = |route: &Route| now.iter().find(|plugin| plugin.routes.contains(route)).map(|plugin| plugin.name.clone());
    // A version that goes on because the new one is refused goes on answering.
    let goes_on = |plugin: &&PluginStatus| after.get(plugin.name.as_str()).is_some_and(|new| is_refused(new));
    let taken = |plugin: &&PluginStatus| !is_refused(plugin) || !before.contains_key(plugin.name.as_str());
    let answered: BTreeSet<&Route> =
        candidate.iter().filter(taken).chain(now.iter().filter(goes_on)).flat_map(|plugin| &plugin.routes).collect();
    let names: BTreeSet<&str> = before.keys().chain(after.keys()).copied().collect();
    let change = |name: &str| {
        let (old, new) = (before.get(name).copied(), after.get(name).copied());
        let digest = |plugin: Option<&PluginStatus>| plugin.and_then(|plugin| plugin.digest.clone());
        let refused = new.is_some_and(is_refused);
        let kind = match (old, new) {
            _ if refused => Kind::Refused,
            (None, _) => Kind::Added,
            (_, None) => Kind::Removed,
            (Some(old), Some(new)) if old.digest == new.digest => Kind::Unchanged,
            _ => Kind::Changed,
        };
        let not_compared = old.map_or(0, |old| old.more_routes);
        let had: &[Route] = old.map(|old| &*old.routes).unwrap_or_default();
        let has: &[Route] = new.filter(|_| !refused && not_compared == 0).map(|new| &*new.routes).unwrap_or_default();
        let gains = has.iter().filter(|route| !had.contains(route));
        let loses = had.iter().filter(|route| !answered.contains(route));
        Change {
            name: name.to_owned(),
            kind,
            from: digest(old),
            to: digest(new).filter(|_| !refused),
            // Only what serves has a version.
            goes_on: digest(old.or(new).filter(|plugin| refused && plugin.version.is_some())),
            gains: gains.map(|route| Gain { route: route.clone(), from: answering(route) }).collect(),
            loses: loses.cloned().collect(),
            not_compared,
            error: new.and_then(|new| new.error.clone()),
        }
    };
    names.into_iter().map(change).collect()
}

/// Whether the files as they lie there do not load, though an older version may stand in for them.
fn is_refused(plugin: &PluginStatus) -> bool {
    plugin.state == PluginState::Failed || plugin.error.is_some()
}

/// A host tells only of this many routes of a plugin; the same component here declares them all.
fn completed(plugin: &PluginStatus, same_name: Option<&PluginStatus>) -> PluginStatus {
    match same_name.filter(|new| plugin.more_routes > 0 && plugin.digest.is_some() && new.digest == plugin.digest) {
        Some(new) => PluginStatus { routes: new.routes.clone(), more_routes: 0, ..plugin.clone() },
        None => plugin.clone(),
    }
}

/// For people.
pub(crate) fn table(changes: &[Change]) -> String {
    let digest =
        |digest: Option<&String>| digest.map_or_else(|| "-".to_owned(), |digest| digest.chars().take(12).collect::<String>());
    let rows = changes.iter().map(|change| {
        let kind = match change.kind {
            Kind::Added => "added",
            Kind::Removed => "removed",
            Kind::Changed => "changed",
            Kind::Unchanged => "unchanged",
            Kind::Refused => "refused",
        };
        let then = match &change.goes_on {
            Some(older) if change.from.is_some() => format!("{} keeps serving", digest(Some(older))),
            Some(older) => format!("{} (older)", digest(Some(older))),
            None => digest(change.to.as_ref()),
        };
        let new = change.gains.iter().filter(|gain| gain.from.is_none()).map(|gain| gain.route.clone()).collect::<Vec<_>>();
        [shown(&change.name).into_owned(), kind.to_owned(), digest(change.from.as_ref()), then, some_of(&new)]
    });
    let mut text = output::table(&["name", "change", "now", "then", "~new routes"], rows);
    for change in changes {
        let name = shown(&change.name);
        for gain in &change.gains {
            if let Some(from) = &gain.from {
                text.push_str(&format!("\n{name} takes over {} from {}\n", shown(&gain.route.to_string()), shown(from)));
            }
        }
        if !change.loses.is_empty() {
            text.push_str(&format!(
                "\nno plugin answers {} any more; new events of these routes will wait\n",
                routes(&change.loses)
            ));
        }
        if change.not_compared > 0 {
            let many = output::count(change.not_compared as u64, "more route");
            text.push_str(&format!(
                "\n{name} now answers {many} that its host does not list; to compare all of them, use --against DIR\n"
            ));
        }
        if let Some(error) = &change.error {
            text.push_str(&format!("\n{name}: {}\n", lines(error)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(name: &str, digest: &str, routes: &[&str], error: Option<&str>) -> PluginStatus {
        PluginStatus {
            name: name.to_owned(),
            version: error.is_none().then(|| "1.0.0".to_owned()),
            digest: Some(digest.to_owned()),
            state: if error.is_some() { PluginState::Failed } else { PluginState::Serving },
            more_routes: 0,
            routes: routes.iter().map(|route| Route::new("Order", route).unwrap()).collect(),
            error: error.map(str::to_owned),
            file: format!("{name}.wasm").into(),
            details: Default::default(),
        }
    }

    #[test]
    fn each_plugin_has_its_change_and_each_route_its_fate() {
        let now = [
            plugin("a", "1", &["X", "Y"], None),
            plugin("b", "2", &["Z"], None),
            plugin("c", "3", &["W"], None),
            plugin("d", "4", &["V"], None),
        ];
        let then = [
            plugin("a", "1b", &["X"], None),
            plugin("c", "3b", &[], Some("it is text")),
            plugin("d", "4", &["V"], None),
            plugin("e", "5", &["Y", "U"], None),
        ];
        let changes = changes(&now, &then);
        let kinds: Vec<_> = changes.iter().map(|change| (change.name.as_str(), change.kind)).collect();
        assert_eq!(
            kinds,
            [("a", Kind::Changed), ("b", Kind::Removed), ("c", Kind::Refused), ("d", Kind::Unchanged), ("e", Kind::Added)]
        );
        assert_eq!(changes[0].loses, [], "e answers it then");
        assert_eq!(changes[1].loses.iter().map(ToString::to_string).collect::<Vec<_>>(), ["Order/Z"]);
        assert_eq!((&changes[2].loses[..], changes[2].to.as_deref()), (&[][..], None), "the version before goes on");
        let gains: Vec<_> = changes[4].gains.iter().map(|gain| (gain.route.to_string(), gain.from.as_deref())).collect();
        assert_eq!(gains, [("Order/Y".to_owned(), Some("a")), ("Order/U".to_owned(), None)]);
        let text = table(&changes);
        let line = text.lines().find(|line| line.starts_with("e ")).expect("it has a line");
        assert!(line.ends_with("  Order/U"), "what no plugin answers now, in the line of the plugin: {text}");
        for part in ["e takes over Order/Y from a", "no plugin answers Order/Z any more", "c: it is text", "3 keeps serving"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_refused_change_is_no_unchanged_plugin_though_the_version_before_stands_in_for_it() {
        let older = |digest: &str, routes: &[&str]| PluginStatus {
            state: PluginState::ServingOlder,
            error: Some("its manifest is not valid".to_owned()),
            ..plugin("a", digest, routes, None)
        };
        for state in [PluginState::ServingOlder, PluginState::Serving] {
            let now = [plugin("a", "1", &["X"], None), plugin("b", "2", &["Y"], None)];
            let found = changes(&now, &[PluginStatus { state, ..older("1", &["X"]) }, now[1].clone()]);

            assert_eq!((found[0].kind, found[1].kind), (Kind::Refused, Kind::Unchanged));
            assert_eq!((found[0].to.as_deref(), found[0].goes_on.as_deref()), (None, Some("1")));
            assert!(table(&found).contains("1 keeps serving"), "{}", table(&found));
        }
        let other = changes(&[plugin("a", "3", &["X", "Z"], None)], &[older("1", &["W"])]);
        assert_eq!((&other[0].gains[..], &other[0].loses[..]), (&[][..], &[][..]), "what serves now goes on, nothing else");
        assert_eq!(other[0].goes_on.as_deref(), Some("3"));
        let alone = changes(&[], &[older("1", &["X"]), plugin("b", "2", &[], Some("it is text"))]);
        assert_eq!(alone.iter().map(|change| change.goes_on.as_deref()).collect::<Vec<_>>(), [Some("1"), None]);
        assert!(table(&alone).contains("1 (older)"), "{}", table(&alone));
    }

    #[test]
    fn routes_that_a_host_has_not_told_of_are_compared_by_the_component_or_not_at_all() {
        let told = PluginStatus { more_routes: 2, ..plugin("a", "1", &["X"], None) };
        let whole = plugin("a", "1", &["X", "Y", "Z"], None);
        let same = changes(std::slice::from_ref(&told), &[whole.clone(), plugin("b", "2", &["Y"], None)]);
        assert_eq!((same[0].kind, &same[0].gains[..], same[0].not_compared), (Kind::Unchanged, &[][..], 0));
        assert_eq!(same[1].gains[0].from.as_deref(), Some("a"));

        let other = changes(&[told], &[PluginStatus { digest: Some("3".to_owned()), ..whole }]);
        assert_eq!((&other[0].gains[..], other[0].not_compared), (&[][..], 2), "it may answer them already");
        assert!(table(&other).contains("a now answers 2 more routes"), "{}", table(&other));
    }
}
