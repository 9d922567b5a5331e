//! Scripts: what a prompt tells the model to do.

use std::time::Duration;

use serde_json::{Deserializer, Map, Value};

use super::messages::ToolCall;

/// What the model does with one request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Round {
    pub(super) sleep: Duration,
    pub(super) usage: Option<(u64, u64)>,
    pub(super) failure: Option<Failure>,
    pub(super) text: Vec<String>,
    pub(super) calls: Vec<ToolCall>,
}

/// An HTTP error instead of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) status: u16,
    /// How often; `None` for always.
    pub(super) times: Option<u32>,
    /// Whether the client is told not to try again.
    pub(super) is_final: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Say(String),
    Call(Vec<ToolCall>),
    Sleep(Duration),
    Usage(u64, u64),
    Fail(Failure),
}

/// The rounds that a text asks for; empty where it is no script.
pub(super) fn rounds(text: &str) -> Vec<Round> {
    let mut rounds = Vec::new();
    let mut round = Round::default();
    let mut open = false;
    for step in text.lines().filter_map(step) {
        open = true;
        match step {
            Step::Say(text) => round.text.push(text),
            Step::Sleep(time) => round.sleep += time,
            Step::Usage(read, written) => round.usage = Some((read, written)),
            Step::Fail(failure) => round.failure = Some(failure),
            Step::Call(calls) => {
                round.calls = calls;
                rounds.push(std::mem::take(&mut round));
                open = false;
            }
        }
    }
    if open {
        rounds.push(round);
    }
    rounds
}

fn step(line: &str) -> Option<Step> {
    let (word, rest) = line.trim().split_once(' ')?;
    let rest = rest.trim();
    match word {
        "SAY" => Some(Step::Say(serde_json::from_str(rest).unwrap_or_else(|_| rest.to_owned()))),
        "CALL" => calls(rest).filter(|calls| calls.len() == 1).map(Step::Call),
        "PAR" => calls(rest).map(Step::Call),
        "SLEEP" => Duration::try_from_secs_f64(rest.parse().ok()?).ok().map(Step::Sleep),
        "USAGE" => {
            let (read, written) = rest.split_once(' ')?;
            Some(Step::Usage(read.parse().ok()?, written.trim().parse().ok()?))
        }
        "FAIL" => failure(rest).map(Step::Fail),
        _ => None,
    }
}

fn calls(mut rest: &str) -> Option<Vec<ToolCall>> {
    let mut calls = Vec::new();
    loop {
        let end = rest.find([' ', ';']).unwrap_or(rest.len());
        let (name, arguments) = rest.split_at(end);
        let well_formed = |c: char| c.is_ascii_alphanumeric() || "_-.:".contains(c);
        if name.is_empty() || !name.chars().all(well_formed) {
            return None;
        }
        let (input, after) = arguments_of(arguments.trim_start())?;
        calls.push(ToolCall { name: name.to_owned(), input: Value::Object(input) });
        match after.trim_start().strip_prefix(";;") {
            Some(more) => rest = more.trim_start(),
            None if after.trim().is_empty() => return Some(calls),
            None => return None,
        }
    }
}

/// A JSON object and what follows it; where there is none, no arguments.
fn arguments_of(text: &str) -> Option<(Map<String, Value>, &str)> {
    if text.is_empty() || text.starts_with(";;") {
        return Some((Map::new(), text));
    }
    let mut values = Deserializer::from_str(text).into_iter::<Map<String, Value>>();
    let input = values.next()?.ok()?;
    let after = text.get(values.byte_offset()..)?;
    Some((input, after))
}

fn failure(rest: &str) -> Option<Failure> {
    let mut words = rest.split_whitespace();
    let status = words.next()?.parse().ok().filter(|status| (400..600).contains(status))?;
    let mut failure = Failure { status, times: None, is_final: false };
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

    fn call(name: &str, input: Value) -> ToolCall {
        ToolCall { name: name.to_owned(), input }
    }

    #[test]
    fn what_is_said_before_a_call_goes_with_it() {
        let script = "<context>\nold\n</context>\nSAY one\n  CALL Bash {\"command\": \"ls ;; pwd\"}\nPAR a ;; b {\"x\": 1}\nplease\nSAY \"two\\nlines\"";
        let expected = [
            Round {
                text: vec!["one".into()],
                calls: vec![call("Bash", json!({"command": "ls ;; pwd"}))],
                ..Round::default()
            },
            Round {
                calls: vec![call("a", json!({})), call("b", json!({"x": 1}))],
                ..Round::default()
            },
            Round { text: vec!["two\nlines".into()], ..Round::default() },
        ];
        assert_eq!(rounds(script), expected);
    }

    #[test]
    fn a_failure_a_pause_and_tokens_belong_to_what_follows() {
        let expected = [Round {
            sleep: Duration::from_millis(500),
            usage: Some((100, 20)),
            failure: Some(Failure { status: 529, times: Some(2), is_final: false }),
            text: vec!["ok".into()],
            calls: vec![],
        }];
        assert_eq!(rounds("SLEEP 0.5\nUSAGE 100 20\nFAIL 529 x2\nSAY ok"), expected);
    }

    #[test_case("please CALL Bash {}"; "not at the beginning")]
    #[test_case("CALL me later"; "no arguments")]
    #[test_case("CALL Bash {\"a\":"; "torn arguments")]
    #[test_case("CALL a {} ;; b {}"; "two are PAR")]
    #[test_case("SLEEP well")]
    #[test_case("SLEEP -1")]
    #[test_case("FAIL often")]
    #[test_case("SAYING nothing")]
    fn other_lines_mean_nothing(line: &str) {
        assert_eq!(rounds(line), []);
    }
}
