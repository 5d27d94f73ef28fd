//! Under which id a CloudEvent is kept. `source` and `id` together name it: two sources may use the same `id` for two events.
//!
//! An event keeps its `id` unless an event of another source has it. Then its id is made from both, and its own `id` becomes the
//! header `ce-id`. Source: CloudEvents 1.0.2, `id`.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use data_encoding::HEXLOWER;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::super::host::Host;
use super::super::problem::{FieldError, Kind, Problem};
use super::cloud_events::{SOURCE, of_cloud_event};
use super::envelopes::of_envelope;
use super::write::Outcome;
use crate::event::{Envelope, EventId};
use crate::store::Record;

/// How often a request chooses ids, when other requests take them at the same moment.
const ROUNDS: u32 = 3;

/// What the events of a request are written as.
struct Chosen {
    envelopes: Vec<Envelope>,
    /// Ids that no event of the table had.
    free: HashSet<EventId>,
}

/// Writes CloudEvents. `single`: the request is one event and no array.
///
/// # Errors
/// 409 when a source used one `id` for two events; nothing is written then, unless both arrived at the same moment. As
/// [`Parts::emit`](super::super::host::Parts::emit).
pub(super) async fn write(
    host: &Host,
    caller: &crate::telemetry::Caller,
    envelopes: &[Envelope],
    single: bool,
) -> Result<Outcome, Problem> {
    let mut written = Vec::new();
    for _ in 0..ROUNDS {
        let Chosen { envelopes: chosen, free } = choose(host, envelopes, single).await?;
        let ids = chosen.iter().map(Envelope::id).collect();
        let emitted = host.emit(caller.clone(), chosen).await?;
        written.extend(emitted.written);
        // An id that was free and is taken now belongs to an event that was not compared with ours.
        let is_compared = |id: &EventId| !free.contains(id) || written.contains(id);
        if emitted.let_through.iter().all(is_compared) {
            return Ok(Outcome { ids, written, let_through: emitted.let_through });
        }
    }
    Err(Problem::new(Kind::Busy, "other requests write events of the same ids; send the request again"))
}

async fn choose(host: &Host, envelopes: &[Envelope], single: bool) -> Result<Chosen, Problem> {
    let mut here: HashMap<EventId, Known> = HashMap::new();
    let mut chosen = Chosen { envelopes: Vec::with_capacity(envelopes.len()), free: HashSet::new() };
    // A hook may write an event differently than it was sent.
    let compares = !host.has_hooks();
    for (index, envelope) in envelopes.iter().enumerate() {
        let (id, new) = (envelope.id(), Known::of_envelope(envelope));
        let derived = derived(new.source.as_deref().unwrap_or_default(), id);
        let mut found = known(host, &here, derived).await?.map(|known| (derived, known));
        if found.is_none() {
            found = known(host, &here, id).await?.map(|known| (id, known));
        }
        let kept_as = match &found {
            Some((at, known)) if *at == derived || known.source == new.source => {
                let differs = known.differs(&new);
                if compares && !differs.is_empty() {
                    return Err(conflict(&new, id, &differs, (!single).then_some(index)));
                }
                *at
            }
            Some(_) => derived,
            None => id,
        };
        if !here.contains_key(&kept_as) && !matches!(&found, Some((at, _)) if *at == kept_as) {
            chosen.free.insert(kept_as);
        }
        here.entry(kept_as).or_insert(new);
        chosen.envelopes.push(if kept_as == id {
            envelope.clone()
        } else {
            let named = envelope.with(|builder| builder.id(kept_as).header("ce-id", id.as_str()));
            named.map_err(|error| Problem::field("id", of_cloud_event(of_envelope(&error)).detail))?
        });
    }
    Ok(chosen)
}

/// The event that has an id: an earlier one of this request, or one of the table.
async fn known(host: &Host, here: &HashMap<EventId, Known>, id: EventId) -> Result<Option<Known>, Problem> {
    match here.get(&id) {
        Some(known) => Ok(Some(known.clone())),
        None => Ok(host.store.get(id).await?.map(Known::of_record)),
    }
}

/// The id of an event whose own `id` another source has used: always the same for the same two.
fn derived(source: &str, id: EventId) -> EventId {
    // No id holds a blank, so that no other pair makes the same text.
    let digest = Sha256::digest(format!("{id} {source}").as_bytes());
    format!("ce-{}", HEXLOWER.encode(&digest[..16])).parse().expect("35 visible characters are an id")
}

fn conflict(new: &Known, id: EventId, differs: &[&str], index: Option<usize>) -> Problem {
    let source = new.source.as_deref().unwrap_or_default();
    let detail = format!(
        "the source `{source}` has sent another event with the id `{id}`; they differ in {}. Give each event of a source an id of \
         its own, and send an event again as it was",
        differs.join(", ")
    );
    let error = FieldError::new("id", detail);
    Problem::with_errors(Kind::EventDiffers, vec![index.map_or(error.clone(), |index| error.at(index))])
}

/// What tells an event from another of its source.
#[derive(Clone)]
struct Known {
    source: Option<String>,
    event_type: String,
    aggregate_type: String,
    aggregate_id: Option<String>,
    tenant_id: Option<String>,
    payload: Bytes,
}

impl Known {
    fn of_envelope(envelope: &Envelope) -> Self {
        Self {
            source: envelope.headers().get(SOURCE).map(str::to_owned),
            event_type: envelope.event_type().as_str().to_owned(),
            aggregate_type: envelope.aggregate_type().as_str().to_owned(),
            aggregate_id: envelope.aggregate_id().map(str::to_owned),
            tenant_id: envelope.tenant_id().map(str::to_owned),
            payload: envelope.payload_bytes().clone(),
        }
    }

    fn of_record(record: Record) -> Self {
        Self {
            source: record.headers.get(SOURCE).map(str::to_owned),
            event_type: record.event_type,
            aggregate_type: record.aggregate_type,
            aggregate_id: record.aggregate_id,
            tenant_id: record.tenant_id,
            payload: record.payload.unwrap_or_default(),
        }
    }

    /// The attributes in which two events differ, by their names in CloudEvents.
    fn differs(&self, other: &Self) -> Vec<&'static str> {
        let same = [
            ("type", self.event_type == other.event_type),
            ("aggregatetype", self.aggregate_type == other.aggregate_type),
            ("subject", self.aggregate_id == other.aggregate_id),
            ("tenantid", self.tenant_id == other.tenant_id),
            ("data", is_same(&self.payload, &other.payload)),
        ];
        same.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
    }
}

/// Whether two payloads are the same bytes, or the same value in JSON: a repeat may have been written anew.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let value = |bytes| serde_json::from_slice::<Value>(bytes).ok();
    one == other || value(one).is_some_and(|one| value(other) == Some(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_and_id_make_one_id_and_no_other_pair_makes_it() {
        let of = |source: &str, id: &str| derived(source, id.parse().expect("an id"));
        assert_eq!(of("/a", "1"), of("/a", "1"));
        let all = [of("/a", "1"), of("/b", "1"), of("/a", "2"), of("1 /a", "1"), of("a", "1/")];
        assert_eq!(all.into_iter().collect::<HashSet<_>>().len(), 5);
    }

    #[test]
    fn json_is_compared_by_value_and_everything_else_by_its_bytes() {
        assert!(is_same(br#"{"a":1,"b":[2]}"#, b"{ \"b\": [2], \"a\": 1 }"));
        assert!(!is_same(br#"{"a":1}"#, br#"{"a":2}"#) && !is_same(b"a b", b"a  b") && !is_same(b"", b"null"));
        assert!(is_same(&[0xff], &[0xff]));
    }
}
