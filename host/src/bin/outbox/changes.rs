//! What a plugins directory would change: compared with what the hosts serve now, or with another directory.

use std::collections::{BTreeMap, BTreeSet};

use outbox::Route;
use serde::Serialize;

use crate::output::{self, shown};
use crate::plugin::{lines, routes};
use crate::plugins::{PluginState, PluginStatus};

/// What becomes of one plugin.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Change {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// The digest that serves now; `None` for a plugin that is new.
    pub(crate) from: Option<String>,
    /// The digest that would serve; `None` for one that goes, or cannot be loaded.
    pub(crate) to: Option<String>,
    /// Routes that it would answer and does not yet, each with the plugin that answers it now, if one does.
    pub(crate) gains: Vec<Gain>,
    /// Routes that nobody would answer any more: their events wait.
    pub(crate) loses: Vec<Route>,
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
    let before: BTreeMap<&str, &PluginStatus> = now.iter().map(|plugin| (plugin.name.as_str(), plugin)).collect();
    let after: BTreeMap<&str, &PluginStatus> = candidate.iter().map(|plugin| (plugin.name.as_str(), plugin)).collect();
    let answering = |route: &Route| now.iter().find(|plugin| plugin.routes.contains(route)).map(|plugin| plugin.name.clone());
    // A version that goes on because the new one is refused goes on answering.
    let goes_on = |plugin: &&PluginStatus| after.get(plugin.name.as_str()).is_some_and(|new| new.state == PluginState::Failed);
    let answered: BTreeSet<&Route> =
        candidate.iter().chain(now.iter().filter(goes_on)).flat_map(|plugin| &plugin.routes).collect();
    let names: BTreeSet<&str> = before.keys().chain(after.keys()).copied().collect();
    let change = |name: &str| {
        let (old, new) = (before.get(name).copied(), after.get(name).copied());
        let digest = |plugin: Option<&PluginStatus>| plugin.and_then(|plugin| plugin.digest.clone());
        let refused = new.is_some_and(|new| new.state == PluginState::Failed);
        let kind = match (old, new) {
            _ if refused => Kind::Refused,
            (None, _) => Kind::Added,
            (_, None) => Kind::Removed,
            (Some(old), Some(new)) if old.digest == new.digest => Kind::Unchanged,
            _ => Kind::Changed,
        };
        let had: &[Route] = old.map(|old| &*old.routes).unwrap_or_default();
        let has: &[Route] = new.map(|new| &*new.routes).unwrap_or_default();
        let gains = has.iter().filter(|route| !had.contains(route));
        let loses = had.iter().filter(|route| !answered.contains(route));
        Change {
            name: name.to_owned(),
            kind,
            from: digest(old),
            to: digest(new).filter(|_| !refused),
            gains: gains.map(|route| Gain { route: route.clone(), from: answering(route) }).collect(),
            loses: loses.cloned().collect(),
            error: new.and_then(|new| new.error.clone()),
        }
    };
    names.into_iter().map(change).collect()
}

/// For people.
pub(crate) fn table(changes: &[Change]) -> String {
    let digest = |digest: Option<&String>| digest.map_or_else(|| "-".to_owned(), |digest| digest.chars().take(12).collect());
    let rows = changes.iter().map(|change| {
        let kind = match change.kind {
            Kind::Added => "added",
            Kind::Removed => "removed",
            Kind::Changed => "changed",
            Kind::Unchanged => "unchanged",
            Kind::Refused => "refused",
        };
        [shown(&change.name).into_owned(), kind.to_owned(), digest(change.from.as_ref()), digest(change.to.as_ref())]
    });
    let mut text = output::table(&["name", "change", "now", "then"], rows);
    for change in changes {
        let name = shown(&change.name);
        for gain in &change.gains {
            let route = shown(&gain.route.to_string()).into_owned();
            text.push_str(&match &gain.from {
                Some(from) => format!("\n{name} takes {route} over from {}\n", shown(from)),
                None => format!("\n{name} answers {route}, which nobody answers now\n"),
            });
        }
        if !change.loses.is_empty() {
            text.push_str(&format!("\nnobody answers {} any more: their events wait\n", routes(&change.loses)));
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
            version: None,
            digest: Some(digest.to_owned()),
            state: if error.is_some() { PluginState::Failed } else { PluginState::Serving },
            routes: routes.iter().map(|route| Route::new("Order", route).unwrap()).collect(),
            error: error.map(str::to_owned),
            file: format!("{name}.wasm").into(),
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
        for part in ["e takes Order/Y over from a", "nobody answers Order/Z any more", "c: it is text"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
