//! What it looks like from outside: the JSON of the HTTP API, shared by server and client.
//!
//! `worker.rs` is what workers and the server say to each other, `api.rs` what people and scripts are shown and may send.
//! Requests know all their fields: one that is not known is an error. Answers may get new ones.
//!
//! Deliberately not here: decisions, HTTP. A value that breaks a rule is refused where the rule is.

pub mod api;
pub mod worker;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::domain::{Json, Timestamp};

/// A time as people and programs read it: RFC 3339, UTC, with milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time(pub Timestamp);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // A time that no calendar has is shown as its number.
        match jiff::Timestamp::from_millisecond(self.0.0) {
            Ok(time) => serializer.collect_str(&format_args!("{time:.3}")),
            Err(_) => serializer.serialize_i64(self.0.0),
        }
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time: jiff::Timestamp = text.parse().map_err(|_| {
            serde::de::Error::custom("expected a time such as 2026-01-31T08:00:00Z")
        })?;
        Ok(Time(Timestamp(time.as_millisecond())))
    }
}

impl From<Timestamp> for Time {
    fn from(at: Timestamp) -> Time {
        Time(at)
    }
}

/// One JSON value inside another, as it was written.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Raw(Box<RawValue>);

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
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
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
