//! Tests of validation and of its messages.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::json;
use test_case::test_case;

use super::*;

fn search_schema() -> Value {
    json!({
        "type": "object",
        "required": ["results"],
        "additionalProperties": false,
        "properties": {
            "results": {"type": "array", "maxItems": 2, "items": {
                "type": "object",
                "required": ["url"],
                "properties": {"url": {"type": "string", "format": "uri"}, "score": {"type": "number", "maximum": 1}},
            }},
        },
    })
}

fn problem(schema: &Value, text: &str) -> String {
    Validator::compile(schema).unwrap().validate(text, None).unwrap_err().to_string()
}

#[test]
fn a_valid_answer_is_returned() {
    let validator = Validator::compile(&search_schema()).unwrap();
    let text = "Here:\n```json\n{\"results\": [{\"url\": \"https://example.com\"}]}\n```";
    assert_eq!(
        validator.validate(text, None),
        Ok(json!({"results": [{"url": "https://example.com"}]}))
    );
    assert_eq!(Validator::any_json().validate("[1]", None), Ok(json!([1])));
}

#[test]
fn an_empty_object_can_be_valid() {
    let validator = Validator::compile(&json!({"type": "object"})).unwrap();
    assert_eq!(validator.validate("{}", None), Ok(json!({})));
}

#[test]
fn the_structured_answer_is_preferred_and_validated() {
    let validator = Validator::compile(&search_schema()).unwrap();
    let good = json!({"results": []});
    assert_eq!(validator.validate("done", Some(&good)), Ok(good.clone()));
    assert!(validator.validate("{\"results\": []}", Some(&json!({"results": 1}))).is_err());
}

#[test]
fn every_difference_has_path_expected_and_found() {
    let text = r#"{"results": [{"url": "nowhere", "score": 7}, {}], "mood": "fine"}"#;
    insta::assert_snapshot!(problem(&search_schema(), text).replace("; ", "\n"), @r#"
    it does not fit the schema: at /results/0/url expected the format uri, found "nowhere"
    at /results/0/score expected at most 1, found 7
    at /results/1 expected the property "url", found none
    at the top expected no properties but those the schema names, found "mood"
    "#);
}

#[test_case(&json!({"type": ["integer", "null"]}), "\"x\"" => "it does not fit the schema: at the top expected type null or integer, found \"x\""; "types")]
#[test_case(&json!({"enum": ["a", "b"]}), "\"c\"" => "it does not fit the schema: at the top expected one of [\"a\",\"b\"], found \"c\""; "options")]
#[test_case(&json!({"anyOf": [{"type": "string"}, {"type": "object", "required": ["a"]}]}), "{}" => "it does not fit the schema: at the top expected one of 2 alternatives (the nearest wants, at the top, type string), found {}"; "alternatives")]
#[test_case(&json!({}), "no idea" => "there is no JSON value in it"; "prose")]
#[test_case(&json!({}), "{} and {}" => "there are 2 JSON values in it, and one was asked for"; "two values")]
#[test_case(&json!({}), "{\"a\": " => "the JSON in it cannot be read (EOF while parsing a value at line 1 column 5)"; "cut off")]
fn problems_are_formatted(schema: &Value, text: &str) -> String {
    problem(schema, text)
}

#[test]
fn feedback_contains_the_problem() {
    let validator = Validator::compile(&search_schema()).unwrap();
    insta::assert_snapshot!(validator.validate("[]", None).unwrap_err().feedback(), @r"
    Your answer was not accepted: it does not fit the schema: at the top expected type object, found [].
    Answer again, with the corrected JSON value alone: no sentence before or after it.
    ");
}

#[test]
fn messages_are_bounded() {
    let schema =
        json!({"type": "array", "items": {"type": "string", "enum": ["x".repeat(10_000)]}});
    let text = json!(vec![json!({"k".repeat(5_000): "v\u{1b}[2J".repeat(5_000)}); 100]).to_string();
    let problem = Validator::compile(&schema).unwrap().validate(&text, None).unwrap_err();
    let OutputProblem::Mismatch { errors, more } = &problem else { panic!("{problem}") };
    assert_eq!(errors.len() + more, 200);
    assert!(problem.feedback().len() < 10_000, "{}", problem.feedback().len());
    assert!(!problem.feedback().contains('\u{1b}'));
}

#[test_case(&json!({"type": "objekt"}) => "/type"; "no such type")]
#[test_case(&json!({"properties": {"a": {"minimum": "1"}}}) => "/properties/a/minimum"; "a number as text")]
#[test_case(&json!({"properties": {"a": {"pattern": "("}}}) => "/properties/a/pattern"; "a pattern that is none")]
#[test_case(&json!([]) => "the top"; "an array")]
fn an_invalid_schema_reports_the_location(schema: &Value) -> String {
    Validator::compile(schema).unwrap_err().at.replace('`', "")
}

#[test_case("https://example.com/schema.json")]
#[test_case("file:///etc/passwd")]
#[test_case("other.json")]
fn remote_references_are_rejected(reference: &str) {
    let refused =
        Validator::compile(&json!({"properties": {"a": {"$ref": reference}}})).unwrap_err();
    assert!(!refused.why.is_empty(), "{refused}");
}

#[test]
fn recursive_schemas_terminate() {
    for schema in
        [json!({"$ref": "#"}), json!({"anyOf": [{"$ref": "#"}]}), json!({"$dynamicRef": "#"})]
    {
        if let Ok(validator) = Validator::compile(&schema) {
            let _ = validator.validate("{\"a\": 1}", None);
        }
    }
}

#[test]
fn catastrophic_patterns_are_stopped_and_rejected() {
    let schema = json!({"pattern": "^(?=(a+)+$)(a+)+\\1$"});
    let text = json!("a".repeat(5_000) + "!").to_string();
    assert!(Validator::compile(&schema).unwrap().validate(&text, None).is_err());
}

proptest! {
    #[test]
    fn accepted_values_match_the_schema(number in any::<i64>(), low in -100i64..100, width in 0i64..100) {
        let schema = json!({"type": "integer", "minimum": low, "maximum": low + width});
        let judged = Validator::compile(&schema).unwrap().validate(&number.to_string(), None);
        prop_assert_eq!(judged.is_ok(), (low..=low + width).contains(&number));
    }

    #[test]
    fn any_answer_is_judged(text in "\\PC{0,80}") {
        let _ = Validator::compile(&search_schema()).unwrap().validate(&text, None);
    }
}

/// Runs the official test suite for 2020-12 through [`Validator`], each document as an answer.
///
/// Three deviations are intended: formats are asserted, a schema that refers to a document at `localhost:1234` is
/// rejected, and vocabularies are not loaded, so all keywords apply.
#[test]
fn the_official_suite_agrees() {
    let mut wrong = BTreeSet::new();
    let (mut tried, mut refused) = (0, 0);
    for file in suite_files() {
        let stem = file.strip_prefix(suite()).unwrap().with_extension("").display().to_string();
        let groups: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        for group in groups.as_array().unwrap() {
            let name = format!("{stem}: {}", group["description"].as_str().unwrap());
            match Validator::compile(&group["schema"]) {
                Ok(validator) => tried += try_group(&validator, group, &name, &mut wrong),
                Err(_) if group["schema"].to_string().contains("localhost:1234") => refused += 1,
                Err(error) => {
                    wrong.insert(format!("{name}: {error}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ: {wrong:#?}", wrong.len());
    assert!(
        tried > 1_500 && refused < 40,
        "{tried} documents were tried, {refused} schemas refused"
    );
}

fn try_group(
    validator: &Validator,
    group: &Value,
    name: &str,
    wrong: &mut BTreeSet<String>,
) -> usize {
    let tests = group["tests"].as_array().unwrap();
    for test in tests {
        let judged = validator.validate(&test["data"].to_string(), None);
        let description = test["description"].as_str().unwrap();
        let stricter = description.ends_with("is only an annotation by default")
            || description == "no validation: invalid number, but it still validates";
        if judged.is_ok() != (test["valid"] == true && !stricter) {
            wrong.insert(format!("{name}: {description}: {judged:?}"));
        }
    }
    tests.len()
}

fn suite() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/json-schema-2020-12")
}

fn suite_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for dir in ["", "optional", "optional/format"] {
        let entries = fs::read_dir(suite().join(dir)).unwrap().map(|entry| entry.unwrap().path());
        files.extend(
            entries.filter(|path| path.extension().is_some_and(|extension| extension == "json")),
        );
    }
    files.sort();
    files
}
