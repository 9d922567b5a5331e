//! OpenTelemetry spans: a run and each of its tool calls, in the caller's trace.

use std::fmt;
use std::str::FromStr;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::util::Timestamp;

/// A W3C trace context as passed in `TRACEPARENT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceContext {
    trace: u128,
    span: u64,
    is_sampled: bool,
}

impl TraceContext {
    /// Creates a span context in the trace of `parent`, or in a new trace.
    pub(crate) fn child_of(parent: Option<Self>) -> Self {
        let trace = parent.map_or_else(|| Uuid::new_v4().as_u128(), |parent| parent.trace);
        let (high, low) = Uuid::new_v4().as_u64_pair();
        // Neither half of a v4 UUID is fully random; their XOR is. Zero is not a valid span id.
        Self {
            trace,
            span: (high ^ low).max(1),
            is_sampled: parent.is_none_or(|parent| parent.is_sampled),
        }
    }

    /// Returns the sampling flag of the trace.
    pub(crate) fn is_sampled(self) -> bool {
        self.is_sampled
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.is_sampled))
    }
}

/// Error of an invalid `TRACEPARENT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no trace parent: it is `00-<32 hexadecimal digits>-<16>-<2>`")]
pub(crate) struct InvalidTraceParent;

impl FromStr for TraceContext {
    type Err = InvalidTraceParent;

    fn from_str(text: &str) -> Result<Self, InvalidTraceParent> {
        let parts: Vec<&str> = text.trim().splitn(5, '-').collect();
        let [version, trace, span, flags, ..] = parts.as_slice() else {
            return Err(InvalidTraceParent);
        };
        let number = |digits: &str, length: usize| {
            let sound =
                digits.len() == length && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            sound.then(|| u128::from_str_radix(digits, 16).ok()).flatten()
        };
        number(version, 2).filter(|version| *version != 0xff).ok_or(InvalidTraceParent)?;
        let trace = number(trace, 32).filter(|trace| *trace != 0).ok_or(InvalidTraceParent)?;
        let span = number(span, 16).and_then(|span| u64::try_from(span).ok());
        let span = span.filter(|span| *span != 0).ok_or(InvalidTraceParent)?;
        let flags = number(flags, 2).ok_or(InvalidTraceParent)?;
        Ok(Self { trace, span, is_sampled: flags & 1 == 1 })
    }
}

/// A completed span.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TraceSpan {
    pub name: String,
    pub context: TraceContext,
    pub parent: Option<TraceContext>,
    pub start: Timestamp,
    pub end: Timestamp,
    /// Attributes; `null` values are omitted.
    pub attributes: Vec<(&'static str, Value)>,
    /// Error message of a failed span.
    pub error: Option<String>,
}

/// Encodes spans as an OTLP/JSON export request.
pub(crate) fn encode_request(spans: &[TraceSpan], service: &str) -> Value {
    let spans: Vec<Value> = spans.iter().map(encode_span).collect();
    json!({ "resourceSpans": [{
        "resource": { "attributes": [attribute("service.name", &service.into())] },
        "scopeSpans": [{
            "scope": { "name": "adjutant", "version": env!("CARGO_PKG_VERSION") },
            "spans": spans,
        }],
    }] })
}

fn encode_span(span: &TraceSpan) -> Value {
    let known = span.attributes.iter().filter(|(_, value)| !value.is_null());
    let attributes: Vec<Value> = known.map(|(name, value)| attribute(name, value)).collect();
    let mut encoded = json!({
        "traceId": format!("{:032x}", span.context.trace),
        "spanId": format!("{:016x}", span.context.span),
        "name": span.name,
        "kind": 1,
        "startTimeUnixNano": span.start.as_nanosecond().to_string(),
        "endTimeUnixNano": span.end.max(span.start).as_nanosecond().to_string(),
        "attributes": attributes,
        "status": match &span.error {
            Some(error) => json!({ "code": 2, "message": error }),
            None => json!({ "code": 1 }),
        },
    });
    if let (Some(parent), Some(encoded)) = (span.parent, encoded.as_object_mut()) {
        encoded.insert("parentSpanId".to_owned(), format!("{:016x}", parent.span).into());
    }
    encoded
}

fn attribute(name: &str, value: &Value) -> Value {
    let value = match value {
        Value::Number(number) if number.is_u64() || number.is_i64() => {
            json!({ "intValue": number.to_string() })
        }
        Value::Number(number) => json!({ "doubleValue": number }),
        Value::Bool(flag) => json!({ "boolValue": flag }),
        Value::String(text) => json!({ "stringValue": text }),
        other => json!({ "stringValue": other.to_string() }),
    };
    json!({ "key": name, "value": value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test]
    fn a_trace_parent_is_continued() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parent: TraceContext = text.parse().unwrap();
        assert_eq!(parent.to_string(), text);
        let child = TraceContext::child_of(Some(parent));
        assert!(child.to_string().starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-"));
        assert_ne!(child.span, parent.span);
    }

    #[test_case("")]
    #[test_case("00-0-0-01")]
    #[test_case("00-00000000000000000000000000000000-00f067aa0ba902b7-01"; "no trace")]
    #[test_case("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"; "a version that cannot be")]
    #[test_case("00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01"; "no digits")]
    fn invalid_trace_parents_are_rejected(text: &str) {
        assert!(text.parse::<TraceContext>().is_err());
    }
}
