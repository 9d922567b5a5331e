//! Text of numbers and times: dollars, durations, ages, counts. One format for each in all commands.

use crate::util::{Timestamp, now};

/// Formats an amount of US dollars with four decimals: `$0.0123`.
pub(crate) fn format_usd(amount: f64) -> String {
    format!("${amount:.4}")
}

/// Formats a duration: `240 ms`, `12.3 s`, `4 min 5 s`.
pub(crate) fn format_duration(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..60_000 => format!("{}.{} s", millis / 1_000, millis % 1_000 / 100),
        _ => format!("{} min {} s", millis / 60_000, millis % 60_000 / 1_000),
    }
}

/// Formats the time since `at` in its largest unit: `12s`, `3m`, `5h`, `2d`; `0s` for a time in the future.
pub(crate) fn format_age(at: Timestamp) -> String {
    let seconds = now().duration_since(at).as_secs().max(0);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Formats a point in time for tables and sentences: `2026-01-31 12:00:00 UTC`.
pub(crate) fn format_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// Formats a point in time for the lines of a log: `2026-01-31T12:00:00.123Z`.
pub(crate) fn format_log_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// Formats a number with its noun: `1 agent`, `2 agents`.
pub(crate) fn plural(number: impl TryInto<u64>, word: &str) -> String {
    match number.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {word}"),
        number => format!("{number} {word}s"),
    }
}
