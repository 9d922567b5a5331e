//! Taking fields out of JSON without copying them, where a wrong shape counts as absent.

use serde_json::{Map, Value};

/// Moves fields out of an object.
pub(super) trait Fields {
    /// The text under `key`, or nothing.
    fn text(&mut self, key: &str) -> Option<String>;
    /// The text under `key`, empty where there is none.
    fn text_or_empty(&mut self, key: &str) -> String {
        self.text(key).unwrap_or_default()
    }
    /// The object under `key`, empty where there is none.
    fn object(&mut self, key: &str) -> Map<String, Value>;
    /// The list under `key`, empty where there is none.
    fn list(&mut self, key: &str) -> Vec<Value>;
    /// Whatever is under `key`, if it is not `null`.
    fn value(&mut self, key: &str) -> Option<Value>;
    /// The whole number under `key`; a fraction is cut off (2.1.197 sends some).
    fn whole(&self, key: &str) -> Option<u64>;
    /// The number under `key`.
    fn number(&self, key: &str) -> Option<f64>;
    /// Whether `key` is `true`.
    fn flag(&self, key: &str) -> bool;
}

impl Fields for Map<String, Value> {
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

    fn whole(&self, key: &str) -> Option<u64> {
        let number = self.get(key)?;
        number.as_u64().or_else(|| number.as_f64().map(cut))
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
fn cut(number: f64) -> u64 {
    number as u64
}

/// The objects of a list; other elements are left out.
pub(super) fn objects(list: Vec<Value>) -> impl Iterator<Item = Map<String, Value>> {
    list.into_iter().filter_map(|value| match value {
        Value::Object(map) => Some(map),
        _ => None,
    })
}

/// The texts of a list; other elements are left out.
pub(super) fn texts(list: Vec<Value>) -> Vec<String> {
    list.into_iter()
        .filter_map(|value| match value {
            Value::String(text) => Some(text),
            _ => None,
        })
        .collect()
}
