//! Values that many objects have: callers, money, times.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};

use crate::util::Timestamp;

/// The agent or client that makes a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Caller {
    /// Name that `allowed_callers` and the gateway's rules are checked against.
    pub name: String,
    pub known_by: KnownBy,
    /// The Claude Code session of the call, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The instance of a native subagent; absent for the main agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The call's id in Claude Code, equal to the one in hooks and transcripts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_use_id: Option<String>,
}

/// Sources of a caller's name, most reliable first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum KnownBy {
    /// The pipe of a subagent's own process.
    Pipe,
    /// An attestation of this call by a hook of Claude Code.
    Attested,
    /// The bearer token, which was created for this name.
    Token,
    /// The caller's own claim (`agent_id`, `--caller`).
    Asserted,
    /// The configured default, because nothing identifies the caller.
    Fallback,
}

impl fmt::Display for KnownBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pipe => "known by its pipe",
            Self::Attested => "attested",
            Self::Token => "known by its token",
            Self::Asserted => "as it says itself",
            Self::Fallback => "as nothing says otherwise",
        })
    }
}

/// An amount in US dollars, rounded to 6 decimals.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Usd(f64);

impl From<f64> for Usd {
    fn from(amount: f64) -> Self {
        Self(round_usd(amount))
    }
}

impl Serialize for Usd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0)
    }
}

impl JsonSchema for Usd {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Usd".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "minimum": 0 })
    }
}

/// Rounds an amount in US dollars to 6 decimals. The result is never `-0.0`.
pub fn round_usd(amount: f64) -> f64 {
    (amount * 1e6).round() / 1e6 + 0.0
}

/// A time in UTC, written as RFC 3339 with milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UtcTime(Timestamp);

impl From<Timestamp> for UtcTime {
    fn from(time: Timestamp) -> Self {
        Self(time)
    }
}

impl fmt::Display for UtcTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.0)
    }
}

impl Serialize for UtcTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for UtcTime {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "UtcTime".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_has_six_decimals_and_no_negative_zero() {
        assert_eq!(round_usd(0.000_140_000_000_01).to_string(), "0.00014");
        assert_eq!(serde_json::to_string(&Usd::from(-0.000_000_1)).unwrap(), "0.0");
    }

    #[test]
    fn times_have_milliseconds() {
        let time = |text: &str| UtcTime::from(text.parse::<Timestamp>().unwrap()).to_string();
        assert_eq!(time("2026-01-31T12:00:00Z"), "2026-01-31T12:00:00.000Z");
        assert_eq!(time("2026-01-31T12:00:00.123456789Z"), "2026-01-31T12:00:00.123Z");
    }
}
