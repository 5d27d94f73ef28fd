//! Settings as a type of the listener's own: every value of the manifest is text, and serde says what it should be.

use std::fmt::{self, Display};

use serde::de::value::MapDeserializer;
use serde::de::{DeserializeOwned, Deserializer, Error, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

/// Reads all settings as a struct or a map.
pub(super) fn read<T: DeserializeOwned>(settings: Vec<(String, String)>) -> Result<T, Wrong> {
    let entries = settings.into_iter().map(|(key, text)| (key.clone(), Value { key, text }));
    T::deserialize(MapDeserializer::new(entries))
}

/// What is wrong with the settings.
#[derive(Debug)]
pub(super) struct Wrong(String);

impl Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Wrong {}

impl Error for Wrong {
    fn custom<T: Display>(message: T) -> Self {
        Self(message.to_string())
    }

    fn missing_field(field: &'static str) -> Self {
        Self(format!("the setting `{field}` is missing"))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let expected = expected.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
        Self(format!("there is no setting `{field}`; the settings are {expected}"))
    }
}

/// One setting.
struct Value {
    key: String,
    text: String,
}

impl Value {
    fn wrong(&self, why: impl Display) -> Wrong {
        Wrong(format!("the setting `{}` is {:?}: {why}", self.key, self.text))
    }
}

impl IntoDeserializer<'_, Wrong> for Value {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// Numbers and truth values are parsed from the text.
macro_rules! parsed {
    ($($method:ident $visit:ident $type:ty, $what:literal;)+) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
            match self.text.trim().parse::<$type>() {
                Ok(value) => visitor.$visit(value).map_err(|error: Wrong| self.wrong(error)),
                Err(_) => Err(self.wrong(concat!("it must be ", $what))),
            }
        })+
    };
}

impl<'de> Deserializer<'de> for Value {
    type Error = Wrong;

    parsed! {
        deserialize_bool visit_bool bool, "true or false";
        deserialize_i8 visit_i8 i8, "a whole number from -128 to 127";
        deserialize_i16 visit_i16 i16, "a whole number from -32768 to 32767";
        deserialize_i32 visit_i32 i32, "a whole number of 32 bits";
        deserialize_i64 visit_i64 i64, "a whole number of 64 bits";
        deserialize_u8 visit_u8 u8, "a whole number from 0 to 255";
        deserialize_u16 visit_u16 u16, "a whole number from 0 to 65535";
        deserialize_u32 visit_u32 u32, "a whole number of 32 bits, 0 or more";
        deserialize_u64 visit_u64 u64, "a whole number of 64 bits, 0 or more";
        deserialize_f32 visit_f32 f32, "a number";
        deserialize_f64 visit_f64 f64, "a number";
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        visitor.visit_string(self.text.clone()).map_err(|error: Wrong| self.wrong(error))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Wrong> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        if !variants.contains(&self.text.as_str()) {
            return Err(self.wrong(format_args!("it must be one of {}", variants.join(", "))));
        }
        visitor.visit_enum(self.text.into_deserializer())
    }

    forward_to_deserialize_any! {
        char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Settings {
        endpoint: String,
        #[serde(default)]
        retries: u8,
        weight: Option<f64>,
        mode: Option<Mode>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Mode {
        Fast,
        Safe,
    }

    fn settings(pairs: &[(&str, &str)]) -> Result<Settings, String> {
        let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        read(pairs.collect()).map_err(|wrong| wrong.to_string())
    }

    #[test]
    fn every_value_is_read_as_its_field_is_typed() {
        let read = settings(&[("endpoint", "https://a.b"), ("mode", "safe"), ("retries", "3"), ("weight", "0.5")]).unwrap();

        let want = Settings { endpoint: "https://a.b".to_owned(), retries: 3, weight: Some(0.5), mode: Some(Mode::Safe) };
        assert_eq!(read, want);
        assert_eq!(settings(&[("endpoint", "7")]).unwrap().endpoint, "7");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_key() {
        let wrong = |key, value| settings(&[("endpoint", "x"), (key, value)]).unwrap_err();

        assert_eq!(wrong("retries", "300"), r#"the setting `retries` is "300": it must be a whole number from 0 to 255"#);
        assert_eq!(wrong("mode", "slow"), r#"the setting `mode` is "slow": it must be one of fast, safe"#);
        assert_eq!(
            wrong("colour", "red"),
            "there is no setting `colour`; the settings are `endpoint`, `retries`, `weight`, `mode`"
        );
        assert_eq!(settings(&[]).unwrap_err(), "the setting `endpoint` is missing");
    }
}
