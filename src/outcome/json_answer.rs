//! Extraction of the one JSON value in an answer.
//!
//! A model may put JSON into a code fence or a sentence. The value is taken only if it is unambiguous: part of a
//! malformed value, or one of several values, is never taken.

use serde_json::{Deserializer, Value};

use super::validate::{OutputProblem, shorten_line};

/// Length above which an answer must be JSON as a whole.
const MAX_BYTES_WITH_PROSE: usize = 4 << 20;

/// Returns the one JSON value in a text.
pub(crate) fn extract_json(text: &str) -> Result<Value, OutputProblem> {
    let text = text.trim_start_matches('\u{feff}').trim();
    let whole = match serde_json::from_str(text) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    if text.len() > MAX_BYTES_WITH_PROSE {
        return Err(malformed(&whole));
    }
    let mut found = Vec::new();
    for part in split_fences(text) {
        match part {
            AnswerPart::Fence { tagged, content } => parse_fence(content, tagged, &mut found)?,
            AnswerPart::Prose(prose) => parse_prose(prose, &mut found)?,
        }
    }
    match found.len() {
        0 => Err(OutputProblem::NotJson),
        1 => found.pop().ok_or(OutputProblem::NotJson),
        count => Err(OutputProblem::Ambiguous { count }),
    }
}

enum AnswerPart<'a> {
    Prose(&'a str),
    Fence { tagged: FenceTag, content: &'a str },
}

/// Language tag of a code fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FenceTag {
    Json,
    Untagged,
    Other,
}

/// Splits a text at its code fences.
///
/// Safe for JSON: its strings hold no line breaks, so no line of it opens a fence.
fn split_fences(text: &str) -> Vec<AnswerPart<'_>> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, tag, content, after)) = next_fence(rest) {
        parts.push(AnswerPart::Prose(before));
        parts.push(AnswerPart::Fence { tagged: tag, content });
        rest = after;
    }
    parts.push(AnswerPart::Prose(rest));
    parts
}

fn next_fence(text: &str) -> Option<(&str, FenceTag, &str, &str)> {
    let (start, opening) = lines(text).find(|(_, line)| line.trim_start().starts_with("```"))?;
    let before = text.get(..start)?;
    let inside = text.get(start + opening.len()..)?;
    let tag = match opening.trim().trim_start_matches('`').trim() {
        "" => FenceTag::Untagged,
        tag if tag.eq_ignore_ascii_case("json") => FenceTag::Json,
        _ => FenceTag::Other,
    };
    let closing = lines(inside).find(|(_, line)| {
        let line = line.trim();
        line.starts_with("```") && line.chars().all(|c| c == '`')
    });
    match closing {
        Some((end, line)) => {
            Some((before, tag, inside.get(..end)?, inside.get(end + line.len()..)?))
        }
        // An unclosed fence was cut off; its content must still be a whole value.
        None => Some((before, tag, inside, "")),
    }
}

/// Returns lines with their byte offsets, line feeds included.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split_inclusive('\n').scan(0, |start, line| {
        let at = *start;
        *start += line.len();
        Some((at, line))
    })
}

fn parse_fence(
    content: &str,
    tagged: FenceTag,
    found: &mut Vec<Value>,
) -> Result<(), OutputProblem> {
    match (serde_json::from_str(content.trim()), tagged) {
        (Ok(value), FenceTag::Json | FenceTag::Untagged) => found.push(value),
        (Err(error), FenceTag::Json) => return Err(malformed(&error)),
        (Err(_), FenceTag::Untagged) | (_, FenceTag::Other) => {}
    }
    Ok(())
}

/// Finds objects and arrays between words.
///
/// Brackets that do not begin JSON are prose, with everything inside them.
fn parse_prose(prose: &str, found: &mut Vec<Value>) -> Result<(), OutputProblem> {
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

/// Returns `true` if a bracket and the text behind begin like JSON; not for `{name}`, `[see below]` and
/// `[[link]]`.
fn looks_like_json(text: &str) -> bool {
    let opening = text.chars().next();
    // The parser's recursion limit is 128, so deeper nesting cannot be a value.
    let inside = text.chars().take(128).find(|c| *c != '[' && !c.is_whitespace());
    match (opening, inside) {
        (_, None) => true,
        (Some('['), Some(inside)) => {
            inside.is_ascii_digit() || "\"{}]-".contains(inside) || starts_with_literal(text)
        }
        _ => text.chars().skip(1).find(|c| !c.is_whitespace()).is_none_or(|c| c == '"' || c == '}'),
    }
}

/// Returns `true` for `[true`, `[false` and `[null`.
fn starts_with_literal(text: &str) -> bool {
    let word = text.trim_start_matches(['[', ' ', '\n', '\t', '\r']);
    ["true", "false", "null"].iter().any(|known| word.starts_with(known))
}

fn malformed(error: &serde_json::Error) -> OutputProblem {
    OutputProblem::Malformed { why: shorten_line(&error.to_string()) }
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
        assert_eq!(extract_json(text), Ok(json!({"a": 1})));
    }

    #[test_case("It is {\"a\": 1} or {\"a\": 2}", 2; "in a sentence")]
    #[test_case("```json\n{\"a\": 1}\n```\n```json\n{\"a\": 1}\n```", 2; "in fences, even the same")]
    #[test_case("For example [1]:\n```json\n{\"a\": 1}\n```", 2; "in a fence and a footnote")]
    fn several_values_are_rejected(text: &str, count: usize) {
        assert_eq!(extract_json(text), Err(OutputProblem::Ambiguous { count }));
    }

    #[test_case(""; "nothing")]
    #[test_case("I could not find anything."; "a sentence")]
    #[test_case("use {braces} and [brackets]"; "brackets")]
    #[test_case("```python\n[1, 2]\n```"; "another language")]
    #[test_case("{'a': {\"b\": 1}}"; "a value inside of something else")]
    #[test_case("The answer is 42"; "a bare number in a sentence")]
    fn text_without_json_has_no_value(text: &str) {
        assert_eq!(extract_json(text), Err(OutputProblem::NotJson));
    }

    #[test_case("{\"results\": [1, 2, 3], \"next\""; "cut off")]
    #[test_case("Sure: {\"a\": [1, 2], b: [3]}"; "a key without quotes")]
    #[test_case("```json\n{\"a\": 1,}\n```\n{\"a\": 2}"; "a comma too many in a fence")]
    #[test_case("[1, 2, see below {\"a\": 1}"; "an array that never ends")]
    fn parts_of_malformed_json_are_not_taken(text: &str) {
        assert!(
            matches!(extract_json(text), Err(OutputProblem::Malformed { .. })),
            "{:?}",
            extract_json(text)
        );
    }

    #[test]
    fn hostile_text_does_not_hang_the_parser() {
        for piece in ["[", "{", "{\"a\":[", "```\n", "[1,", "{}", "[see "] {
            let _ = extract_json(&piece.repeat(100_000));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_accepted(text in "(\\PC|[`\\[\\]{}\":,\n]){0,200}") {
            let _ = extract_json(&text);
        }

        #[test]
        fn an_object_is_found_in_a_fence_after_a_sentence(value in objects(), words in "[a-zA-Z ,.!?]{0,40}") {
            let pretty = serde_json::to_string_pretty(&value).unwrap();
            prop_assert_eq!(extract_json(&format!("{words}\n```json\n{pretty}\n```\n{words}")), Ok(value.clone()));
            prop_assert_eq!(extract_json(&format!("{words} {pretty} {words}")), Ok(value.clone()));
            prop_assert_eq!(extract_json(&pretty), Ok(value));
        }

        #[test]
        fn a_torn_object_is_never_read_as_another(value in objects(), keep in any::<prop::sample::Index>()) {
            let text = value.to_string();
            let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            let torn = &text[..*keep.get(&starts)];
            prop_assert!(extract_json(torn).is_err(), "{torn}");
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
