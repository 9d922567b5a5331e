//! Timestamps and durations as people and files write them.

use std::time::Duration;

/// A time in UTC, serialized as RFC 3339.
pub(crate) type Timestamp = jiff::Timestamp;

pub fn now() -> Timestamp {
    Timestamp::now()
}

/// Parses an age such as `30d`, `12h`, `45m` or `10s` (units `s`, `m`, `h`, `d`, `w`).
pub(crate) fn parse_age(text: &str) -> Option<Duration> {
    let unit = text.chars().last()?;
    let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        'w' => 604_800,
        _ => return None,
    };
    number.checked_mul(seconds).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case("30d", Some(2_592_000))]
    #[test_case("1w", Some(604_800))]
    #[test_case("10s", Some(10))]
    #[test_case("10", None; "a unit is needed")]
    #[test_case("-1d", None)]
    #[test_case("", None)]
    #[test_case("99999999999999999999d", None)]
    fn ages_need_a_number_and_a_unit(text: &str, seconds: Option<u64>) {
        assert_eq!(parse_age(text), seconds.map(Duration::from_secs));
    }
}
