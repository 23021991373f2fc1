//! What the sentence of an event says in words, for programs: a small JSON object.

use serde_json::{Map, Value};

use crate::domain::{Json, limits};

#[derive(Debug, Clone, Default)]
pub(super) struct Facts(Map<String, Value>);

impl Facts {
    pub fn none() -> Facts {
        Facts::default()
    }

    pub fn and(mut self, name: &str, value: impl Into<Value>) -> Facts {
        self.0.insert(name.to_string(), value.into());
        self
    }

    /// As all durations outside of the house: in seconds.
    pub fn and_secs(self, name: &str, ms: i64) -> Facts {
        self.and(name, ms as f64 / 1_000.0)
    }

    /// Returns the facts as the detail of an audit row. `None` if there are none.
    pub fn detail(&self) -> Option<String> {
        self.data().map(|data| data.0)
    }

    /// `None`: there is nothing to say. They are few and short where they arise, and lists among them are cut there.
    pub fn data(&self) -> Option<Json> {
        let data = (!self.0.is_empty()).then(|| Value::from(self.0.clone()).to_string());
        data.filter(|data| data.len() <= limits::EVENT_DATA_BYTES_MAX)
            .map(Json)
    }
}
