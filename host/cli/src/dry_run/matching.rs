//! The dead events that a component is tried on: those of its own routes, so that others do not use up the limit.

use outbox::store::{DeadFilter, Filter, Record};
use outbox::{Route, Store, StoreError};

use crate::output::{count, shown};
use crate::place::as_dead;

/// Dead events by a filter, oldest first.
pub(super) struct Matching {
    pub(super) rows: Vec<Record>,
    /// Whether there are more of them than the limit.
    pub(super) more: bool,
    /// How many match and are of other routes; `None` when they were read too, or cannot be counted.
    pub(super) of_other_routes: Option<u64>,
    /// The routes that were read; `None` for all.
    routes: Option<Vec<Route>>,
}

impl Matching {
    /// Reads at most `limit` events: of the component's `routes`, unless the filter names a whole route or they are not known.
    pub(super) async fn read(
        store: &dyn Store,
        filter: &Filter,
        routes: Option<&[Route]>,
        limit: u32,
    ) -> Result<Self, StoreError> {
        let names_route = filter.aggregate_type.is_some() && filter.event_type.is_some();
        let routes = routes.filter(|_| !names_route).map(|routes| narrowed(filter, routes));
        let mut rows = Vec::new();
        for one in filters(filter, routes.as_deref()) {
            rows.extend(store.list(&one, limit.saturating_add(1)).await?);
        }
        rows.sort_by_key(|row| row.seq);
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let more = rows.len() > most;
        rows.truncate(most);
        let of_other_routes = match (&routes, counted(filter)) {
            (Some(routes), Some(all)) => {
                let mut others = store.count_dead(&all).await?;
                for one in filters(filter, Some(routes)).iter().filter_map(counted) {
                    others = others.saturating_sub(store.count_dead(&one).await?);
                }
                Some(others)
            }
            _ => None,
        };
        Ok(Self { rows, more, of_other_routes, routes })
    }

    /// What is said when there are none.
    pub(super) fn nothing(&self) -> String {
        match (&self.routes, self.of_other_routes) {
            (None, _) | (_, Some(0)) => "no dead event matches".to_owned(),
            (Some(routes), others) => {
                let names: Vec<String> = routes.iter().map(|route| shown(&route.to_string()).into_owned()).collect();
                let names = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
                let others =
                    others.map_or_else(String::new, |others| format!("; {} of other routes", count(others, "dead event")));
                format!("no matching dead event has a route that the component answers{names}{others}")
            }
        }
    }
}

/// Those of the routes of which the filter leaves any.
fn narrowed(filter: &Filter, routes: &[Route]) -> Vec<Route> {
    let fits = |wanted: &Option<String>, own: &str| wanted.as_deref().is_none_or(|wanted| wanted == own);
    let fits = |route: &&Route| {
        fits(&filter.aggregate_type, route.aggregate_type.as_str()) && fits(&filter.event_type, route.event_type.as_str())
    };
    routes.iter().filter(fits).cloned().collect()
}

/// The filter for each of the routes, or as it is.
fn filters(filter: &Filter, routes: Option<&[Route]>) -> Vec<Filter> {
    let Some(routes) = routes else { return vec![filter.clone()] };
    let of = |route: &Route| Filter {
        aggregate_type: Some(route.aggregate_type.to_string()),
        event_type: Some(route.event_type.to_string()),
        ..filter.clone()
    };
    routes.iter().map(of).collect()
}

/// The same for counting; `None` where it asks for a header, by which nothing is counted.
fn counted(filter: &Filter) -> Option<DeadFilter> {
    filter.header.is_none().then(|| as_dead(filter))
}
