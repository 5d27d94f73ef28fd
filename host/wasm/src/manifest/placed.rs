//! Keys of the manifest that stand below a `[table]`, and so would belong to it.
//!
//! A line that is added at the end of a file belongs to its last table. Below `[config]` it would be a setting, and the
//! operator would believe that the component is pinned, or isolated.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{Emit, Http, Limits, Publish, Retry, State};

/// Every key of a manifest. None can be the name of a setting or of a secret.
const KEYS: [&str; 10] = ["digest", "isolation", "limits", "retry", "config", "secrets", "emit", "state", "http", "publish"];

type Texts = BTreeMap<String, String>;

/// One function for each table, as serde wants them.
macro_rules! tables {
    ($($name:ident: $type:ty;)*) => {
        $(pub(super) fn $name<'de, D: Deserializer<'de>, T: From<$type>>(deserializer: D) -> Result<T, D::Error> {
            below::<D, $type>(stringify!($name), deserializer).map(T::from)
        })*
    };
}

tables! {
    limits: Limits;
    retry: Retry;
    http: Http;
    publish: Publish;
    config: Texts;
    secrets: Texts;
}

/// `emit = true`, `emit = false`, or a table of what may be emitted.
pub(super) fn emit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Emit>, D::Error> {
    let fields = "`emit` as true, false, or a table with routes, other_tenants, ids, per_second and bytes_per_second";
    deserializer.deserialize_any(Grant { table: "emit", fields, of: PhantomData })
}

/// `state = true`, `state = false`, or a table of bounds.
pub(super) fn state<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<State>, D::Error> {
    let fields = "`state` as true, false, or a table with max_keys and max_bytes";
    deserializer.deserialize_any(Grant { table: "state", fields, of: PhantomData })
}

fn below<'de, D: Deserializer<'de>, T: Deserialize<'de>>(table: &'static str, deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_map(Table { table, of: PhantomData })
}

struct Table<T> {
    table: &'static str,
    of: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Table<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a table [{}]", self.table)
    }

    fn visit_map<M: MapAccess<'de>>(self, entries: M) -> Result<T, M::Error> {
        T::deserialize(MapAccessDeserializer::new(Entries { table: self.table, entries }))
    }
}

struct Grant<T> {
    table: &'static str,
    fields: &'static str,
    of: PhantomData<T>,
}

impl<'de, T: Deserialize<'de> + Default> Visitor<'de> for Grant<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.fields)
    }

    fn visit_bool<E: Error>(self, is_granted: bool) -> Result<Option<T>, E> {
        Ok(is_granted.then(T::default))
    }

    fn visit_map<M: MapAccess<'de>>(self, entries: M) -> Result<Option<T>, M::Error> {
        Table { table: self.table, of: PhantomData }.visit_map(entries).map(Some)
    }
}

/// The entries of a table, of which none may have a key of the manifest.
struct Entries<M> {
    table: &'static str,
    entries: M,
}

impl<'de, M: MapAccess<'de>> MapAccess<'de> for Entries<M> {
    type Error = M::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, M::Error> {
        self.entries.next_key_seed(Key { table: self.table, seed })
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, M::Error> {
        self.entries.next_value_seed(seed)
    }
}

/// Looks at a key where the format still knows its place in the text.
struct Key<K> {
    table: &'static str,
    seed: K,
}

impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for Key<K> {
    type Value = K::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<K::Value, D::Error> {
        let key = String::deserialize(deserializer)?;
        if !KEYS.contains(&key.as_str()) {
            return self.seed.deserialize(key.into_deserializer());
        }
        let table = self.table;
        Err(D::Error::custom(match table {
            "config" | "secrets" => format!(
                "`{key}` stands below [{table}], where it would be a setting; move it above the first [table] (no setting can have this name)"
            ),
            _ => format!("`{key}` stands below [{table}]; move it above the first [table]"),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Manifest;

    fn fault(text: &str) -> String {
        toml::from_str::<Manifest>(text).unwrap_err().message().to_owned()
    }

    #[test]
    fn no_key_of_a_manifest_is_taken_for_a_setting() {
        for table in ["config", "secrets"] {
            for key in KEYS {
                let told = fault(&format!("[{table}]\n{key} = \"true\""));
                assert!(told.contains(&format!("`{key}` stands below [{table}], where it would be a setting")), "{told}");
            }
        }
        for (line, key) in
            [("http.allow = [\"https://a.example.com\"]", "http"), ("state = true", "state"), ("emit = { ids = true }", "emit")]
        {
            let told = fault(&format!("[limits]\nfuel = 7\n[config]\n{line}"));
            assert!(told.starts_with(&format!("`{key}` stands below [config]")), "{told}");
        }
        assert_eq!(toml::from_str::<Manifest>("[config]\nstates = \"a\"").unwrap().config["states"], "a");
    }

    #[test]
    fn a_key_of_the_manifest_below_another_table_is_told_where_to_go() {
        for table in ["limits", "retry", "http", "publish", "emit", "state"] {
            assert_eq!(
                fault(&format!("[{table}]\ndigest = \"00\"")),
                format!("`digest` stands below [{table}]; move it above the first [table]")
            );
        }
    }

    #[test]
    fn every_key_of_a_manifest_is_known_here() {
        let told = fault("unheard_of = 1");
        let named: Vec<&str> = told.split_once("expected one of").unwrap().1.split('`').skip(1).step_by(2).collect();
        let sorted = |mut keys: Vec<&'static str>| {
            keys.sort_unstable();
            keys
        };
        let mut named: Vec<String> = named.into_iter().map(str::to_owned).collect();
        named.sort_unstable();
        assert_eq!(named, sorted(KEYS.to_vec()));
    }
}
