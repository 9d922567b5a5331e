//! Typed access to JSON fields by move; a field of the wrong type counts as absent.

use serde_json::{Map, Value};

/// Moves fields out of a JSON object.
pub(crate) trait FieldAccess {
    fn text(&mut self, key: &str) -> Option<String>;
    fn text_or_empty(&mut self, key: &str) -> String {
        self.text(key).unwrap_or_default()
    }
    /// The object under `key`, or an empty one.
    fn object(&mut self, key: &str) -> Map<String, Value>;
    /// The list under `key`, or an empty one.
    fn list(&mut self, key: &str) -> Vec<Value>;
    /// The value under `key` unless it is `null`.
    fn value(&mut self, key: &str) -> Option<Value>;
    /// The integer under `key`; fractions (sent by 2.1.197) are truncated.
    fn integer(&self, key: &str) -> Option<u64>;
    /// The finite number under `key`.
    fn number(&self, key: &str) -> Option<f64>;
    /// True only if `key` is `true`.
    fn flag(&self, key: &str) -> bool;
}

impl FieldAccess for Map<String, Value> {
    fn text(&mut self, key: &str) -> Option<String> {
        match self.get_mut(key).map(Value::take) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    fn object(&mut self, key: &str) -> Map<String, Value> {
        match self.get_mut(key).map(Value::take) {
            Some(Value::Object(map)) => map,
            _ => Map::new(),
        }
    }

    fn list(&mut self, key: &str) -> Vec<Value> {
        match self.get_mut(key).map(Value::take) {
            Some(Value::Array(list)) => list,
            _ => Vec::new(),
        }
    }

    fn value(&mut self, key: &str) -> Option<Value> {
        self.get_mut(key).map(Value::take).filter(|value| !value.is_null())
    }

    fn integer(&self, key: &str) -> Option<u64> {
        let number = self.get(key)?;
        number.as_u64().or_else(|| number.as_f64().map(saturating_u64))
    }

    fn number(&self, key: &str) -> Option<f64> {
        self.get(key)?.as_f64().filter(|number| number.is_finite())
    }

    fn flag(&self, key: &str) -> bool {
        self.get(key).and_then(Value::as_bool).unwrap_or(false)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, which is what a number out of range should do"
)]
fn saturating_u64(number: f64) -> u64 {
    number as u64
}

/// The objects of a list; other elements are dropped.
pub(crate) fn objects(list: Vec<Value>) -> impl Iterator<Item = Map<String, Value>> {
    list.into_iter().filter_map(|value| match value {
        Value::Object(map) => Some(map),
        _ => None,
    })
}

/// The strings of a list; other elements are dropped.
pub(crate) fn texts(list: Vec<Value>) -> Vec<String> {
    list.into_iter()
        .filter_map(|value| match value {
            Value::String(text) => Some(text),
            _ => None,
        })
        .collect()
}
