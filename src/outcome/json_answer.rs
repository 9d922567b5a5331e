//! Takes the one JSON value out of an answer, where there is no doubt which it is.
//!
//! A model is asked for JSON and may still put it into a fence or a sentence. That is fine as long as exactly one
//! value can be meant. A fragment of something broken, or one of two values, is never taken: the agent is asked again.

use serde_json::{Deserializer, Value};

/// Longer answers must be JSON from the first character to the last.
const MOST_BYTES_WITH_PROSE: usize = 4 << 20;

/// Why an answer has no one value in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoValue {
    /// There is no JSON in it.
    Absent,
    /// There is something that begins like JSON and is not.
    Malformed {
        /// What the parser said.
        why: String,
    },
    /// There are several, and nothing says which is meant.
    Several {
        /// How many.
        count: usize,
    },
}

/// The one value in a text.
pub(super) fn extract(text: &str) -> Result<Value, NoValue> {
    let text = text.trim_start_matches('\u{feff}').trim();
    let whole = match serde_json::from_str(text) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    if text.len() > MOST_BYTES_WITH_PROSE {
        return Err(malformed(&whole));
    }
    let mut found = Vec::new();
    for part in parts(text) {
        match part {
            Part::Fence { tagged, content } => in_fence(content, tagged, &mut found)?,
            Part::Prose(prose) => in_prose(prose, &mut found)?,
        }
    }
    match found.len() {
        0 => Err(NoValue::Absent),
        1 => found.pop().ok_or(NoValue::Absent),
        count => Err(NoValue::Several { count }),
    }
}

enum Part<'a> {
    Prose(&'a str),
    Fence { tagged: Tag, content: &'a str },
}

/// What a fence says it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    Json,
    Nothing,
    Other,
}

/// Splits a text at its fences. No line of a JSON value begins with a fence: its strings hold no line breaks.
fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, tag, content, after)) = next_fence(rest) {
        parts.push(Part::Prose(before));
        parts.push(Part::Fence { tagged: tag, content });
        rest = after;
    }
    parts.push(Part::Prose(rest));
    parts
}

fn next_fence(text: &str) -> Option<(&str, Tag, &str, &str)> {
    let (start, opening) = lines(text).find(|(_, line)| line.trim_start().starts_with("```"))?;
    let before = text.get(..start)?;
    let inside = text.get(start + opening.len()..)?;
    let tag = match opening.trim().trim_start_matches('`').trim() {
        "" => Tag::Nothing,
        tag if tag.eq_ignore_ascii_case("json") => Tag::Json,
        _ => Tag::Other,
    };
    let closing = lines(inside).find(|(_, line)| {
        let line = line.trim();
        line.starts_with("```") && line.chars().all(|c| c == '`')
    });
    match closing {
        Some((end, line)) => {
            Some((before, tag, inside.get(..end)?, inside.get(end + line.len()..)?))
        }
        // A fence that is never closed was cut off; what it holds must still be whole.
        None => Some((before, tag, inside, "")),
    }
}

/// Lines with where they begin, their line feeds included.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split_inclusive('\n').scan(0, |start, line| {
        let at = *start;
        *start += line.len();
        Some((at, line))
    })
}

fn in_fence(content: &str, tagged: Tag, found: &mut Vec<Value>) -> Result<(), NoValue> {
    match (serde_json::from_str(content.trim()), tagged) {
        (Ok(value), Tag::Json | Tag::Nothing) => found.push(value),
        (Err(error), Tag::Json) => return Err(malformed(&error)),
        (Err(_), Tag::Nothing) | (_, Tag::Other) => {}
    }
    Ok(())
}

/// Objects and arrays between words. Brackets that open nothing of JSON are prose, and what stands in them is too.
fn in_prose(prose: &str, found: &mut Vec<Value>) -> Result<(), NoValue> {
    let mut rest = prose;
    let mut depth = 0_usize;
    while let Some(at) = rest.find(['{', '[', '}', ']']) {
        let here = rest.get(at..).unwrap_or_default();
        let used = if here.starts_with(['}', ']']) {
            depth = depth.saturating_sub(1);
            1
        } else if depth > 0 || !looks_like_json(here) {
            depth += 1;
            1
        } else {
            let mut stream = Deserializer::from_str(here).into_iter::<Value>();
            match stream.next() {
                Some(Ok(value)) => found.push(value),
                Some(Err(error)) => return Err(malformed(&error)),
                None => {}
            }
            stream.byte_offset().max(1)
        };
        rest = here.get(used..).unwrap_or_default();
    }
    Ok(())
}

/// Whether a bracket and what follows begin as JSON does; `{name}`, `[see below]` and `[[link]]` do not.
fn looks_like_json(text: &str) -> bool {
    let opening = text.chars().next();
    // A value is not nested deeper than the parser goes, so looking further would say nothing.
    let inside = text.chars().take(128).find(|c| *c != '[' && !c.is_whitespace());
    match (opening, inside) {
        (_, None) => true,
        (Some('['), Some(inside)) => {
            inside.is_ascii_digit() || "\"{}]-".contains(inside) || word_follows(text)
        }
        _ => text.chars().skip(1).find(|c| !c.is_whitespace()).is_none_or(|c| c == '"' || c == '}'),
    }
}

/// `[true`, `[false`, `[null`: the words of JSON.
fn word_follows(text: &str) -> bool {
    let word = text.trim_start_matches(['[', ' ', '\n', '\t', '\r']);
    ["true", "false", "null"].iter().any(|known| word.starts_with(known))
}

fn malformed(error: &serde_json::Error) -> NoValue {
    NoValue::Malformed { why: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use test_case::test_case;

    #[test_case("{\"a\": 1}"; "alone")]
    #[test_case("\u{feff}\n {\"a\": 1}\n\n"; "with space around it")]
    #[test_case("```json\n{\"a\": 1}\n```"; "in a fence")]
    #[test_case("```JSON\r\n{\"a\": 1}\r\n```\r\n"; "in a fence with carriage returns")]
    #[test_case("Here you are:\n\n```\n{\"a\": 1}\n```\nAnything else?"; "in a fence between sentences")]
    #[test_case("The result is {\"a\": 1}. I hope that helps!"; "in a sentence")]
    #[test_case("As {name} said in [the docs](x): {\"a\": 1}"; "beside brackets that are none")]
    #[test_case("```sh\necho '[1, 2]'\n```\n{\"a\": 1}"; "beside a fence of another language")]
    #[test_case("```json\n{\"a\": 1}"; "in a fence that is not closed")]
    fn one_value_is_found(text: &str) {
        assert_eq!(extract(text), Ok(json!({"a": 1})));
    }

    #[test_case("It is {\"a\": 1} or {\"a\": 2}", 2; "in a sentence")]
    #[test_case("```json\n{\"a\": 1}\n```\n```json\n{\"a\": 1}\n```", 2; "in fences, even the same")]
    #[test_case("For example [1]:\n```json\n{\"a\": 1}\n```", 2; "in a fence and a footnote")]
    fn two_values_are_one_too_many(text: &str, count: usize) {
        assert_eq!(extract(text), Err(NoValue::Several { count }));
    }

    #[test_case(""; "nothing")]
    #[test_case("I could not find anything."; "a sentence")]
    #[test_case("use {braces} and [brackets]"; "brackets")]
    #[test_case("```python\n[1, 2]\n```"; "another language")]
    #[test_case("{'a': {\"b\": 1}}"; "a value inside of something else")]
    #[test_case("The answer is 42"; "a bare number in a sentence")]
    fn no_value_is_none(text: &str) {
        assert_eq!(extract(text), Err(NoValue::Absent));
    }

    #[test_case("{\"results\": [1, 2, 3], \"next\""; "cut off")]
    #[test_case("Sure: {\"a\": [1, 2], b: [3]}"; "a key without quotes")]
    #[test_case("```json\n{\"a\": 1,}\n```\n{\"a\": 2}"; "a comma too many in a fence")]
    #[test_case("[1, 2, see below {\"a\": 1}"; "an array that never ends")]
    fn a_part_of_something_broken_is_not_taken(text: &str) {
        assert!(matches!(extract(text), Err(NoValue::Malformed { .. })), "{:?}", extract(text));
    }

    #[test]
    fn hostile_texts_take_no_time() {
        for piece in ["[", "{", "{\"a\":[", "```\n", "[1,", "{}", "[see "] {
            let _ = extract(&piece.repeat(100_000));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_taken(text in "(\\PC|[`\\[\\]{}\":,\n]){0,200}") {
            let _ = extract(&text);
        }

        #[test]
        fn an_object_survives_a_fence_and_a_sentence(value in objects(), words in "[a-zA-Z ,.!?]{0,40}") {
            let pretty = serde_json::to_string_pretty(&value).unwrap();
            prop_assert_eq!(extract(&format!("{words}\n```json\n{pretty}\n```\n{words}")), Ok(value.clone()));
            prop_assert_eq!(extract(&format!("{words} {pretty} {words}")), Ok(value.clone()));
            prop_assert_eq!(extract(&pretty), Ok(value));
        }

        #[test]
        fn a_torn_object_is_never_read_as_another(value in objects(), keep in any::<prop::sample::Index>()) {
            let text = value.to_string();
            let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            let torn = &text[..*keep.get(&starts)];
            prop_assert!(extract(torn).is_err(), "{torn}");
        }
    }

    fn objects() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "(\\PC|[`\"\\\\{}\\[\\]\n]){0,12}".prop_map(Value::from),
        ];
        let inner = leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-z\"`]{0,4}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        });
        prop::collection::btree_map("[a-z]{1,4}", inner, 1..4)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
    }
}
