//! Messages that are JSON and still cannot be read: half of a character, a number beyond all numbers, endless nesting.
//!
//! rmcp drops such a line without a word, and its caller would wait for ever. Its id can be read all the same.

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// As deep as nobody nests on purpose; `serde_json` gives up a little later.
const DEEP: usize = 100;

/// The answer to a request that cannot be read; `None` for everything that can be, and for what is no request.
pub(super) fn refusal(line: &[u8]) -> Option<String> {
    if !is_suspicious(line) {
        return None;
    }
    let error = serde_json::from_slice::<Value>(line).err()?;
    let head: Head<'_> = serde_json::from_slice(line).ok()?;
    let error =
        json!({ "code": -32700, "message": format!("the message cannot be read: {error}") });
    // The id goes back as it came: it may be a number that only the caller can read.
    Some(format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"error\":{error}}}\n", head.id.get()))
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(rename = "method")]
    _method: &'a str,
}

/// Whether a line has anything that may be too much: few have, and only those are read twice.
fn is_suspicious(line: &[u8]) -> bool {
    memmem::find(line, b"\\ud").is_some()
        || memmem::find(line, b"\\uD").is_some()
        || memchr::memchr2_iter(b'[', b'{', line).nth(DEEP).is_some()
        || memchr::memchr2_iter(b'e', b'E', line).any(|at| is_large_exponent(line, at))
}

/// `1e999`: at least three digits after the letter, and one before it.
fn is_large_exponent(line: &[u8], at: usize) -> bool {
    let digit = |at: usize| line.get(at).is_some_and(u8::is_ascii_digit);
    let sign = usize::from(matches!(line.get(at + 1), Some(b'+' | b'-')));
    at > 0 && digit(at - 1) && (1..=3).all(|step| digit(at + sign + step))
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    fn request(value: &str) -> String {
        format!(
            "{{\"method\":\"tools/call\",\"params\":{{\"x\":{value}}},\"jsonrpc\":\"2.0\",\"id\":\"a-7\"}}"
        )
    }

    #[test_case("\"\\ud800\""; "half of a character")]
    #[test_case("1e99999"; "a number beyond all numbers")]
    #[test_case(&format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)); "endless nesting")]
    fn what_cannot_be_read_is_answered(value: &str) {
        let told: Value =
            serde_json::from_str(&refusal(request(value).as_bytes()).unwrap()).unwrap();
        assert_eq!((&told["id"], &told["error"]["code"]), (&json!("a-7"), &json!(-32700)));
    }

    #[test_case("\"\\ud83d\\ude00 1e999\""; "a whole character")]
    #[test_case("[[1e308]]"; "a large number")]
    #[test_case("NaN"; "no JSON at all")]
    fn everything_else_is_not(value: &str) {
        assert_eq!(refusal(request(value).as_bytes()), None);
    }

    #[test]
    fn a_notification_gets_no_answer() {
        assert_eq!(refusal(b"{\"method\":\"x\",\"params\":\"\\ud800\"}"), None);
    }
}
