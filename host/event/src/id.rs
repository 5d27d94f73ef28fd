//! Event ids: ULIDs that we make, or whatever short text another writer used.

use std::fmt;
use std::str::FromStr;
use std::sync::Mutex;
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::name::NameError;
use crate::time::Timestamp;

/// The longest id, in bytes: a UUID with its dashes.
const MAX: usize = 36;

/// The key of one event, the same at every delivery: 1 to 36 visible ASCII characters.
///
/// Ids that we make are ULIDs, ever larger within a process. Ids of other writers may be UUIDs or any other short text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId {
    bytes: [u8; MAX],
    len: u8,
}

impl EventId {
    /// A new ULID for an event that happens at `now`, larger than every id that this process made before.
    ///
    /// # Panics
    /// Never: a poisoned lock is used as it is, since a half-made generator cannot be.
    #[must_use]
    pub fn generate(now: Timestamp) -> Self {
        static GENERATOR: Mutex<ulid::Generator> = Mutex::new(ulid::Generator::new());
        let time = UNIX_EPOCH + Duration::from_micros(u64::try_from(now.as_micros()).unwrap_or(0));
        let mut generator = GENERATOR.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let ulid = match generator.generate_from_datetime(time) {
            Ok(ulid) => ulid,
            Err(overflow) => overflow.commit_overflow_increment(),
        };
        let mut text = [0; ulid::ULID_LEN];
        Self::from_ascii(ulid.array_to_str(&mut text))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).expect("only ASCII gets in")
    }

    fn from_ascii(text: &str) -> Self {
        let mut bytes = [0; MAX];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Self { bytes, len: u8::try_from(text.len()).expect("at most 36 bytes get in") }
    }
}

impl FromStr for EventId {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty { what: "event_id" });
        }
        if text.len() > MAX {
            return Err(NameError::TooLong { what: "event_id", chars: text.chars().count(), max: MAX });
        }
        if let Some(bad) = text.chars().find(|c| !c.is_ascii_graphic()) {
            return Err(NameError::Character { what: "event_id", bad, hint: "visible ASCII only" });
        }
        Ok(Self::from_ascii(text))
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for EventId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for EventId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_grow_even_when_the_clock_stands_still_or_goes_back() {
        let mut last = EventId::generate(Timestamp::from_micros(2_000_000));
        for micros in [2_000_000, 2_000_000, 1_000_000, 0, -5] {
            let next = EventId::generate(Timestamp::from_micros(micros));
            assert!(next > last, "{next} after {last}");
            last = next;
        }
    }

    #[test]
    fn a_uuid_is_an_id_and_a_blank_is_not() {
        assert!("0190163d-8694-739b-aea5-966c26f8ad91".parse::<EventId>().is_ok());
        for bad in ["", "a b", "é", "0190163d-8694-739b-aea5-966c26f8ad91x"] {
            assert!(bad.parse::<EventId>().is_err(), "{bad:?}");
        }
    }
}
