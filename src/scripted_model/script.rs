//! Parser of scripts.

use std::time::Duration;

use serde_json::{Deserializer, Map, Value};

use super::messages::{ScriptedMessage, ScriptedToolCall};

/// Steps that produce one reply.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ScriptRound {
    pub(crate) sleep: Duration,
    pub(crate) failure: Option<ScriptedFailure>,
    pub(crate) message: ScriptedMessage,
}

/// HTTP error instead of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScriptedFailure {
    pub(crate) status: u16,
    /// Number of failures; `None` for always.
    pub(crate) times: Option<u32>,
    /// Set if the client must not retry.
    pub(crate) is_final: bool,
}

/// Parses the rounds of a script; empty if the text contains none. A call ends its round.
pub(crate) fn parse_rounds(text: &str) -> Vec<ScriptRound> {
    let mut rounds = Vec::new();
    let mut round = ScriptRound::default();
    let mut is_open = false;
    for line in text.lines() {
        if round.add_step(line).is_none() {
            continue;
        }
        is_open = round.message.calls.is_empty();
        if !is_open {
            rounds.push(std::mem::take(&mut round));
        }
    }
    rounds.extend(is_open.then_some(round));
    rounds
}

impl ScriptRound {
    /// Adds the step of a line; `None` if the line has none.
    fn add_step(&mut self, line: &str) -> Option<()> {
        let (word, rest) = line.trim().split_once(' ')?;
        let rest = rest.trim();
        let message = &mut self.message;
        match word {
            "SAY" => {
                let separator = if message.text.is_empty() { "" } else { "\n" };
                let text = serde_json::from_str(rest).unwrap_or_else(|_| rest.to_owned());
                message.text.push_str(&format!("{separator}{text}"));
            }
            "CALL" => message.calls = parse_calls(rest).filter(|calls| calls.len() == 1)?,
            "PAR" => message.calls = parse_calls(rest)?,
            "SLEEP" => self.sleep += Duration::try_from_secs_f64(rest.parse().ok()?).ok()?,
            "USAGE" => {
                let (read, written) = rest.split_once(' ')?;
                message.usage = Some((read.parse().ok()?, written.trim().parse().ok()?));
            }
            "FAIL" => self.failure = Some(parse_failure(rest)?),
            _ => return None,
        }
        Some(())
    }
}

fn parse_calls(mut rest: &str) -> Option<Vec<ScriptedToolCall>> {
    let mut calls = Vec::new();
    loop {
        let end = rest.find([' ', ';']).unwrap_or(rest.len());
        let (name, arguments) = rest.split_at(end);
        let well_formed = |c: char| c.is_ascii_alphanumeric() || "_-.:".contains(c);
        if name.is_empty() || !name.chars().all(well_formed) {
            return None;
        }
        let (input, after) = parse_arguments(arguments.trim_start())?;
        calls.push(ScriptedToolCall { name: name.to_owned(), input: Value::Object(input) });
        match after.trim_start().strip_prefix(";;") {
            Some(more) => rest = more.trim_start(),
            None if after.trim().is_empty() => return Some(calls),
            None => return None,
        }
    }
}

/// Parses an optional JSON object; returns it with the remaining text.
fn parse_arguments(text: &str) -> Option<(Map<String, Value>, &str)> {
    if text.is_empty() || text.starts_with(";;") {
        return Some((Map::new(), text));
    }
    let mut values = Deserializer::from_str(text).into_iter::<Map<String, Value>>();
    let input = values.next()?.ok()?;
    let after = text.get(values.byte_offset()..)?;
    Some((input, after))
}

fn parse_failure(rest: &str) -> Option<ScriptedFailure> {
    let mut words = rest.split_whitespace();
    let status = words.next()?.parse().ok().filter(|status| (400..600).contains(status))?;
    let mut failure = ScriptedFailure { status, times: None, is_final: false };
    for word in words {
        match word.strip_prefix('x') {
            Some(times) => failure.times = Some(times.parse().ok()?),
            None if word == "final" => failure.is_final = true,
            None => return None,
        }
    }
    Some(failure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use test_case::test_case;

    fn call(name: &str, input: Value) -> ScriptedToolCall {
        ScriptedToolCall { name: name.to_owned(), input }
    }

    #[test]
    fn text_before_a_call_is_in_the_same_round() {
        let script = "<context>\nold\n</context>\nSAY one\n  CALL Bash {\"command\": \"ls ;; pwd\"}\nPAR a ;; b {\"x\": 1}\nplease\nSAY \"two\\nlines\"";
        let round = |text: &str, calls| ScriptRound {
            message: ScriptedMessage { text: text.to_owned(), calls, usage: None },
            ..ScriptRound::default()
        };
        let expected = [
            round("one", vec![call("Bash", json!({"command": "ls ;; pwd"}))]),
            round("", vec![call("a", json!({})), call("b", json!({"x": 1}))]),
            round("two\nlines", vec![]),
        ];
        assert_eq!(parse_rounds(script), expected);
    }

    #[test]
    fn failure_sleep_and_usage_apply_to_the_next_round() {
        let expected = [ScriptRound {
            sleep: Duration::from_millis(500),
            failure: Some(ScriptedFailure { status: 529, times: Some(2), is_final: false }),
            message: ScriptedMessage { usage: Some((100, 20)), ..ScriptedMessage::from_text("ok") },
        }];
        assert_eq!(parse_rounds("SLEEP 0.5\nUSAGE 100 20\nFAIL 529 x2\nSAY ok"), expected);
    }

    #[test_case("please CALL Bash {}"; "not at the beginning")]
    #[test_case("CALL me later"; "no arguments")]
    #[test_case("CALL Bash {\"a\":"; "torn arguments")]
    #[test_case("CALL a {} ;; b {}"; "two are PAR")]
    #[test_case("SLEEP well")]
    #[test_case("SLEEP -1")]
    #[test_case("FAIL often")]
    #[test_case("SAYING nothing")]
    fn other_lines_are_ignored(line: &str) {
        assert_eq!(parse_rounds(line), []);
    }
}
