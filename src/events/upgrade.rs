//! Events of format 1, which 0.1 wrote, in the shape of format 2.

use serde_json::{Map, Value, json};

use super::event::{EVENT_FORMAT, arrange_members};
use crate::api::{ErrorObject, UtcTime, round_usd};
use crate::util::{RunId, Timestamp};

/// Returns the members of a line in format 2. Lines of other formats are returned as they are.
pub(super) fn upgrade(mut line: Map<String, Value>) -> Map<String, Value> {
    if line.get("format") != Some(&json!(1)) {
        return line;
    }
    if line.get("agent_id") == line.get("run_id") {
        replace(&mut line, "agent_id", hyphenated);
    }
    for key in ["run_id", "parent_agent_id"] {
        replace(&mut line, key, hyphenated);
    }
    replace(&mut line, "cost_usd", |cost| cost.as_f64().map(|cost| round_usd(cost).into()));
    if let Some(Value::Object(timing)) = line.shift_remove("timing_ms") {
        line.insert("timing".to_owned(), timing.into_iter().map(phase).collect());
    }
    if line.get("outcome").is_some() {
        add_error(&mut line);
    }
    let mut new = Map::new();
    new.insert("format".to_owned(), EVENT_FORMAT.into());
    new.extend(line.shift_remove_entry("seq"));
    replace(&mut line, "time", |time| {
        let time: Timestamp = time.as_str()?.parse().ok()?;
        Some(UtcTime::from(time).to_string().into())
    });
    new.extend(line.shift_remove_entry("time"));
    line.shift_remove("format");
    new.extend(arrange_members(line));
    new
}

fn replace(line: &mut Map<String, Value>, key: &str, new: impl FnOnce(&Value) -> Option<Value>) {
    if let Some(value) = line.get_mut(key)
        && let Some(new) = new(value)
    {
        *value = new;
    }
}

fn hyphenated(id: &Value) -> Option<Value> {
    Some(id.as_str()?.parse::<RunId>().ok()?.to_string().into())
}

fn phase((name, time): (String, Value)) -> (String, Value) {
    let rounded =
        time.as_f64().map(f64::round).and_then(|time| format!("{time}").parse::<u64>().ok());
    (format!("{name}_ms"), rounded.into())
}

/// Replaces the text `CODE: reason` and the list of mismatches by an object.
fn add_error(line: &mut Map<String, Value>) {
    let mismatches = line.shift_remove("errors");
    let Some(Value::String(text)) = line.get("error") else { return };
    let code = line.get("outcome").and_then(Value::as_str).unwrap_or_default();
    let message = text.strip_prefix(code).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(text);
    let mut error = ErrorObject::new(code, message);
    error.mismatches =
        mismatches.and_then(|list| serde_json::from_value(list).ok()).unwrap_or_default();
    line.insert("error".to_owned(), json!(error));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_format_1_is_read_in_format_2() {
        let run = "0195f0a200007000800000000000aaaa";
        let line = json!({
            "format": 1, "seq": 4, "time": "2026-01-31T12:00:00.1239Z", "hook_event_name": "RunEnded", "agent_id": run,
            "agent_type": "web", "agent_transcript_path": null, "run_id": run, "outcome": "TIMEOUT",
            "error": "TIMEOUT: it took too long. Raise it.", "cost_usd": 0.000_140_000_1,
            "timing_ms": { "queue": 1.6, "model": 20.0 }, "odd": true,
        });
        let Value::Object(line) = line else { panic!("an object") };
        let run = "0195f0a2-0000-7000-8000-00000000aaaa";
        assert_eq!(
            Value::Object(upgrade(line)),
            json!({
                "format": 2, "seq": 4, "time": "2026-01-31T12:00:00.123Z", "hook_event_name": "RunEnded",
                "agent_id": run, "agent_type": "web", "run_id": run, "outcome": "TIMEOUT",
                "error": { "code": "TIMEOUT", "message": "it took too long. Raise it." }, "cost_usd": 0.000_14,
                "timing": { "queue_ms": 2, "model_ms": 20 }, "other": { "odd": true },
            })
        );
    }
}
