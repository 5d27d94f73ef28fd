//! Paths and queries that a host is asked with.

use outbox::event::Status;
use outbox::store::{DeadFilter, Filter, SetAside};
use outbox::why::encoded;

use crate::failure::{Exit, Failure};

/// Parameters of a query; those without a value are left out.
pub(super) type Parameters<'p> = Vec<(&'p str, Option<String>)>;

/// The parameters of a query that have a value.
pub(super) fn query(pairs: &[(&str, Option<String>)]) -> String {
    let set = pairs.iter().filter_map(|(name, value)| Some(format!("{}={}", encoded(name), encoded(value.as_deref()?))));
    set.collect::<Vec<_>>().join("&")
}

/// The path of a list, and its parameters.
pub(super) fn list_of(filter: &Filter) -> Result<(&'static str, Parameters<'_>), Failure> {
    let of_dead = filter.status == Some(Status::Dead) && filter.set_aside.is_none();
    let is_of_death = filter.max_attempts.is_some() || filter.finished_after.is_some() || filter.finished_before.is_some();
    if is_of_death && !of_dead {
        return Err(Failure::new(Exit::Usage, "a host lists events by their end only among dead ones"));
    }
    let status = match (filter.set_aside, filter.status) {
        _ if of_dead => None,
        (Some(aside), _) => Some(SetAside::as_str(aside).to_owned()),
        (None, status) => status.map(|status| status.as_str().to_ascii_lowercase()),
    };
    let mut pairs = vec![("status", status)];
    pairs.extend(dead_of(&as_dead(filter)));
    pairs.push(("newest_first", filter.newest_first.then(|| "true".to_owned())));
    pairs.retain(|(_, value)| value.is_some());
    Ok((if of_dead { "/v1/dead" } else { "/v1/events" }, pairs))
}

/// The same filter for dead events alone, which have no header in theirs.
pub(crate) fn as_dead(filter: &Filter) -> DeadFilter {
    let Filter { event_type, aggregate_type, aggregate_id, tenant_id, error, max_attempts, .. } = filter.clone();
    let (dead_after, dead_before) = (filter.finished_after, filter.finished_before);
    DeadFilter { event_type, aggregate_type, aggregate_id, tenant_id, error, max_attempts, dead_after, dead_before }
}

/// A filter as a query or a body names its fields.
pub(super) fn dead_of(filter: &DeadFilter) -> [(&'static str, Option<String>); 8] {
    [
        ("event_type", filter.event_type.clone()),
        ("aggregate_type", filter.aggregate_type.clone()),
        ("aggregate_id", filter.aggregate_id.clone()),
        ("tenant_id", filter.tenant_id.clone()),
        ("error", filter.error.clone()),
        ("max_attempts", filter.max_attempts.map(|most| most.to_string())),
        ("since", filter.dead_after.map(|time| time.to_string())),
        ("until", filter.dead_before.map(|time| time.to_string())),
    ]
}
