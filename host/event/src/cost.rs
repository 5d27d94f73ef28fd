//! What a call of a listener cost.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What one call of a listener cost for one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Time on the wall, making an instance included. Written as whole microseconds.
    #[serde(rename = "took_us", with = "micros")]
    pub took: Duration,
    /// For how many events the call was. Time, fuel, calls of the host and their bytes are this event's share of it.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub events: u32,
    /// What the sandbox counted; `None` for a listener in native code and for a relay.
    #[serde(flatten)]
    pub guest: Option<GuestCost>,
}

/// What a guest used in one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestCost {
    /// Which component it was.
    pub digest: ShortDigest,
    /// Fuel that the call took, making its instance left out; when that failed, what it took. A lower bound for a call that was
    /// cut off.
    pub fuel: u64,
    /// The sum of memories and tables when the call ended, in bytes. Memories never shrink, so it is the peak too.
    pub memory_bytes: u64,
    /// Calls of the host.
    pub host_calls: u32,
    /// Bytes that those calls carried, either way.
    pub host_bytes: u64,
}

/// The first 48 bits of a component's SHA-256: the 12 hex digits by which people know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ShortDigest(u64);

/// The most hex digits of a [`ShortDigest`].
const DIGITS: usize = 12;

impl Cost {
    /// Of a call of which nothing is known but its time.
    #[must_use]
    pub const fn of_time(took: Duration) -> Self {
        Self { took, events: 1, guest: None }
    }

    /// The share that one of `events` has in this call of all of them: the shares together are the whole. Memory is not
    /// divided. `number` counts from 0; without events it is the whole.
    #[must_use]
    pub fn share(&self, number: u32, events: u32) -> Self {
        let events = events.max(1);
        let part = |whole: u64| whole / u64::from(events) + u64::from(u64::from(number) < whole % u64::from(events));
        let guest = self.guest.map(|guest| GuestCost {
            fuel: part(guest.fuel),
            host_calls: u32::try_from(part(guest.host_calls.into())).unwrap_or(u32::MAX),
            host_bytes: part(guest.host_bytes),
            ..guest
        });
        Self { took: Duration::from_nanos(part(nanos(self.took))), events, guest }
    }
}

/// As whole nanoseconds: enough for 500 years.
#[must_use]
pub fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl FromStr for ShortDigest {
    type Err = std::num::ParseIntError;

    /// Reads the beginning of a digest in hex.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u64::from_str_radix(text.get(..DIGITS).unwrap_or(text), 16).map(Self)
    }
}

impl fmt::Display for ShortDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0DIGITS$x}", self.0)
    }
}

impl Serialize for ShortDigest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ShortDigest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Whole microseconds, rounded up: no call takes none.
mod micros {
    use super::{Deserialize, Deserializer, Duration, Serializer};

    pub(super) fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(span.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_micros)
    }
}

const fn one() -> u32 {
    1
}

const fn is_one(events: &u32) -> bool {
    *events == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> Cost {
        let guest = GuestCost {
            digest: "0123456789abcdef".parse().expect("hex"),
            fuel: 1_000_001,
            memory_bytes: 65_536,
            host_calls: 2,
            host_bytes: 10,
        };
        Cost { took: Duration::from_micros(1_000), events: 1, guest: Some(guest) }
    }

    #[test]
    fn the_shares_of_a_call_are_together_the_whole_and_each_has_its_memory() {
        let shares: Vec<Cost> = (0..3).map(|number| whole().share(number, 3)).collect();

        let guests: Vec<GuestCost> = shares.iter().filter_map(|share| share.guest).collect();
        assert_eq!(guests.iter().map(|guest| guest.fuel).sum::<u64>(), 1_000_001);
        assert_eq!(guests.iter().map(|guest| guest.host_calls).collect::<Vec<_>>(), [1, 1, 0]);
        assert_eq!(guests.iter().map(|guest| guest.host_bytes).sum::<u64>(), 10);
        assert!(guests.iter().all(|guest| guest.memory_bytes == 65_536));
        assert!(shares.iter().all(|share| share.events == 3));
        assert_eq!(shares.iter().map(|share| share.took).sum::<Duration>(), Duration::from_micros(1_000));
        assert_eq!(whole().share(0, 1), whole());
    }

    #[test]
    fn it_is_written_flat_and_read_back_with_or_without_a_guest() {
        let text = serde_json::to_string(&whole()).expect("plain data");
        assert_eq!(
            text,
            r#"{"took_us":1000,"digest":"0123456789ab","fuel":1000001,"memory_bytes":65536,"host_calls":2,"host_bytes":10}"#
        );
        assert_eq!(serde_json::from_str::<Cost>(&text).expect("its own text"), whole());
        let native = Cost::of_time(Duration::from_micros(7));
        let text = serde_json::to_string(&native).expect("plain data");
        assert_eq!((text.as_str(), serde_json::from_str::<Cost>(&text).expect("its own text")), (r#"{"took_us":7}"#, native));
        let short = serde_json::to_string(&Cost::of_time(Duration::from_nanos(1))).expect("plain data");
        assert_eq!(short, r#"{"took_us":1}"#, "no call takes no time");
    }
}
