//! What it looks like from outside: the JSON of the HTTP API, shared by server and client.
//!
//! `worker.rs` is what workers and the server say to each other, `api.rs` what people and scripts are shown and may send.
//! Requests know all their fields: one that is not known is an error. Answers may get new ones.
//!
//! Deliberately not here: decisions, HTTP. A value that breaks a rule is refused where the rule is.

pub mod api;
pub mod worker;

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use serde::de::{DeserializeOwned, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::domain::limits::shorten;
use crate::domain::{Json, Timestamp};
use crate::words::calendar_time;

/// A time as people and programs read it: RFC 3339, UTC, with milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time(pub Timestamp);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let time = calendar_time(self.0);
        serializer.collect_str(&format_args!("{time:.3}"))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time: jiff::Timestamp = text.parse().map_err(|_| {
            serde::de::Error::custom(
                "expected a time such as 2026-01-31T08:00:00Z, before 9999-12-30T22:00:00Z",
            )
        })?;
        Ok(Time(Timestamp(time.as_millisecond())))
    }
}

impl From<Timestamp> for Time {
    fn from(at: Timestamp) -> Time {
        Time(at)
    }
}

/// The code of a refusal because there is nothing at such an address, whatever it names.
pub const NO_ROUTE: &str = "no_route";

/// The error code for a request whose content is not valid, such as one with an unknown field.
pub const INVALID: &str = "invalid";

/// One JSON value inside another, as it was written.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Raw(Box<RawValue>);

impl Raw {
    fn each<T: Serialize>(values: impl Iterator<Item = T>) -> Vec<Raw> {
        let raw = |value| serde_json::value::to_raw_value(&value).expect("it has a JSON form");
        values.map(|value| Raw(raw(value))).collect()
    }

    pub fn value(&self) -> serde_json::Value {
        serde_json::from_str(self.0.get()).unwrap_or_default()
    }

    fn read<T: DeserializeOwned>(&self) -> Result<T, String> {
        serde_json::from_str(self.0.get()).map_err(|error| error.to_string())
    }
}

impl From<&Json> for Raw {
    fn from(json: &Json) -> Raw {
        let raw = RawValue::from_string(json.0.clone());
        // Whatever the database has, the answer is JSON.
        Raw(raw.unwrap_or_else(|_| RawValue::NULL.to_owned()))
    }
}

impl From<Raw> for Json {
    fn from(raw: Raw) -> Json {
        Json(raw.0.get().to_string())
    }
}

/// A value in which no object has the same key twice: readers would not agree on which one counts.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct Strict(Raw);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Strict, D::Error> {
        let raw = Raw::deserialize(deserializer)?;
        let walked = serde_json::from_str::<Walked>(raw.0.get());
        walked.map_err(|error| {
            // Where it is within the value says nothing about where it is in the request.
            let text = error.to_string();
            let fault = text.split(" at line ").next().unwrap_or_default();
            serde::de::Error::custom(fault)
        })?;
        Ok(Strict(raw))
    }
}

impl From<Strict> for Json {
    fn from(strict: Strict) -> Json {
        strict.0.into()
    }
}

/// What is left of a value that was looked through: nothing.
struct Walked;

impl<'de> Deserialize<'de> for Walked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Walked, D::Error> {
        deserializer.deserialize_any(Walk)
    }
}

struct Walk;

impl<'de> Visitor<'de> for Walk {
    type Value = Walked;

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Walked, E> {
        Ok(Walked)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Walked, E> {
        Ok(Walked)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Walked, E> {
        Ok(Walked)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Walked, E> {
        Ok(Walked)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Walked, E> {
        Ok(Walked)
    }

    fn visit_str<E>(self, _: &str) -> Result<Walked, E> {
        Ok(Walked)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Walked, A::Error> {
        while items.next_element::<Walked>()?.is_some() {}
        Ok(Walked)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Walked, A::Error> {
        unique(&mut members, |_, Walked| ()).map(|()| Walked)
    }
}

/// Takes the members of an object, as long as none of them is there twice.
fn unique<'de, V: Deserialize<'de>, A: MapAccess<'de>>(
    members: &mut A,
    mut take: impl FnMut(String, V),
) -> Result<(), A::Error> {
    let mut keys = HashSet::new();
    while let Some(key) = members.next_key::<String>()? {
        if !keys.insert(key.clone()) {
            let key = shorten(&key);
            return Err(serde::de::Error::custom(format!(
                "key {key} is there twice"
            )));
        }
        take(key, members.next_value()?);
    }
    Ok(())
}

/// Names and texts, no name twice.
pub fn unique_texts<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    struct Texts;
    impl<'de> Visitor<'de> for Texts {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
            out.write_str("an object of texts")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
            let mut texts = BTreeMap::new();
            unique(&mut members, |key, text| {
                texts.insert(key, text);
            })?;
            Ok(texts)
        }
    }
    deserializer.deserialize_map(Texts)
}

/// What every error looks like.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ErrorBody {
    pub error: ErrorDetail,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// For programs.
    pub code: String,
    /// For people: what is wrong, where, what to do.
    pub message: String,
    /// One by one, if there are several things wrong.
    #[serde(default)]
    pub details: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        let time = Time(Timestamp(1_763_312_345_678));
        let text = serde_json::to_string(&time).unwrap();
        assert_eq!(text, r#""2025-11-16T16:59:05.678Z""#);
        assert_eq!(serde_json::from_str::<Time>(&text).unwrap(), time);
        let whole = serde_json::to_string(&Time(Timestamp(0))).unwrap();
        assert_eq!(whole, r#""1970-01-01T00:00:00.000Z""#);
        assert!(serde_json::from_str::<Time>(r#""tomorrow""#).is_err());
    }
}
