//! Lines of format 1, which 0.1 wrote, in the shape of format 2.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::entry::AUDIT_FORMAT;
use crate::api::UtcTime;
use crate::util::{RunId, Timestamp};

/// Returns a line in format 2. Lines of other formats, and what is not an entry, are returned as they are.
///
/// `prev` stays the hash of the line before as it is in the file.
pub(crate) fn upgrade_line(line: &str) -> Cow<'_, str> {
    let Ok(old) = serde_json::from_str::<Map<String, Value>>(line) else { return line.into() };
    if old.get("format") != Some(&json!(1)) {
        return line.into();
    }
    Value::Object(upgrade(old)).to_string().into()
}

fn upgrade(old: Map<String, Value>) -> Map<String, Value> {
    // Format 1 left the source out where the name was only claimed.
    let known_by = old.get("known_by").cloned().unwrap_or_else(|| "asserted".into());
    let mut new = Map::new();
    for (key, value) in old {
        let (key, value) = match key.as_str() {
            "format" => (key, AUDIT_FORMAT.into()),
            "time" => (key, parsed(&value, |time: Timestamp| UtcTime::from(time).to_string())),
            "agent" => ("caller".to_owned(), json!({ "name": value, "known_by": known_by })),
            "known_by" => continue,
            "latency_us" => {
                ("duration_ms".to_owned(), value.as_u64().map(|micros| micros / 1_000).into())
            }
            "error" => ("code".to_owned(), value),
            "run_id" => (key, parsed(&value, |run: RunId| run.to_string())),
            _ => (key, value),
        };
        new.insert(key, value);
    }
    new
}

fn parsed<T: std::str::FromStr>(value: &Value, format: impl FnOnce(T) -> String) -> Value {
    let text = value.as_str().and_then(|text| text.parse().ok()).map(format);
    text.map_or_else(|| value.clone(), Value::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_format_1_is_shown_in_format_2() {
        let old = json!({
            "format": 1, "seq": 3, "time": "2026-01-31T12:00:00.123456789Z", "agent": "dev", "known_by": "pipe",
            "operation": "execute_tool", "latency_us": 1500, "error": "TIMEOUT",
            "run_id": "0195f0a200007000800000000000aaaa", "prev": "0",
        });
        let new = json!({
            "format": 2, "seq": 3, "time": "2026-01-31T12:00:00.123Z", "caller": { "name": "dev", "known_by": "pipe" },
            "operation": "execute_tool", "duration_ms": 1, "code": "TIMEOUT",
            "run_id": "0195f0a2-0000-7000-8000-00000000aaaa", "prev": "0",
        });
        assert_eq!(upgrade_line(&old.to_string()), new.to_string());
        for same in ["no entry", "{\"format\":3,\"agent\":\"dev\"}"] {
            assert_eq!(upgrade_line(same), same);
        }
    }
}
