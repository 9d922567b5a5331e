use super::*;
use proptest::prelude::*;
use serde_json::json;
use test_case::test_case;

fn added(text: &str, path: &[&str], value: &Value) -> String {
    let mut json = JsonText::parse(text).unwrap();
    json.add_member(path, value).unwrap();
    json.text().to_owned()
}

#[test]
fn a_member_is_appended_in_the_style_of_its_neighbours() {
    let text = "{\n    \"mcpServers\": {\n        \"b\": {\"command\": \"x\"},\n        \"a\" : { \"url\":\"y\" }\n    },\n    \"other\":1\n}\n";
    insta::assert_snapshot!(added(text, &["mcpServers", "new"], &json!({"command": "c", "args": ["serve"]})), @r#"
    {
        "mcpServers": {
            "b": {"command": "x"},
            "a" : { "url":"y" },
            "new": {
                "command": "c",
                "args": ["serve"]
            }
        },
        "other":1
    }
    "#);
}

#[test_case("{}", "{\n  \"a\": 1\n}"; "empty")]
#[test_case("{\n}\n", "{\n  \"a\": 1\n}\n"; "empty on two lines")]
#[test_case("{\"b\":2}", "{\"b\":2, \"a\": 1}"; "on one line")]
#[test_case("{\n\t\"b\": 2\n}", "{\n\t\"b\": 2,\n\t\"a\": 1\n}"; "tabs")]
#[test_case("{\r\n  \"b\": 2\r\n}\r\n", "{\r\n  \"b\": 2,\r\n  \"a\": 1\r\n}\r\n"; "carriage returns")]
#[test_case("\u{feff}{\n  \"b\": 2\n}", "\u{feff}{\n  \"b\": 2,\n  \"a\": 1\n}"; "a byte order mark")]
#[test_case("{\"x\": \"}\\\"{\", \"y\": [\"]\"]}", "{\"x\": \"}\\\"{\", \"y\": [\"]\"], \"a\": 1}"; "brackets in strings")]
#[test_case("{\n  \"a\": 5\n}", "{\n  \"a\": 5\n}"; "what is there stays")]
#[test_case("{\"\\u0061\": 5}", "{\"\\u0061\": 5}"; "a key written with escapes")]
fn members_are_inserted_in_the_style_of_the_document(text: &str, expected: &str) {
    assert_eq!(added(text, &["a"], &json!(1)), expected);
}

#[test]
fn an_element_is_appended_to_its_array() {
    let mut json =
        JsonText::parse("{\n  \"hooks\": {\n    \"X\": [\n      {\"a\": 1}\n    ]\n  }\n}")
            .unwrap();
    json.add_element(&["hooks", "X"], &json!({"b": 2})).unwrap();
    json.add_element(&["hooks", "Y"], &json!({"c": [{"d": 3}]})).unwrap();
    insta::assert_snapshot!(json.text(), @r#"
    {
      "hooks": {
        "X": [
          {"a": 1},
          {
            "b": 2
          }
        ],
        "Y": [
          {
            "c": [
              {
                "d": 3
              }
            ]
          }
        ]
      }
    }
    "#);
}

#[test_case("{\n  \"a\": 1,\n}" => "line 3, column 1: trailing comma"; "a trailing comma")]
#[test_case("{\n  // hello\n  \"a\": 1\n}" => "line 2, column 3: comments are not JSON; remove them"; "a comment")]
#[test_case("" => "line 1, column 1: EOF while parsing a value"; "nothing")]
#[test_case("[]" => "line 1, column 1: `the file` must be an object"; "an array")]
#[test_case("{}{}" => "line 1, column 3: trailing characters"; "two values")]
fn text_that_is_no_json_object_is_rejected_with_its_position(text: &str) -> String {
    JsonText::parse(text).unwrap_err().to_string()
}

#[test]
fn a_value_of_the_wrong_type_is_rejected_with_its_position() {
    let mut json = JsonText::parse("{\n  \"hooks\": {\"X\": {}, \"Y\": 5}}").unwrap();
    let before = json.clone();
    let refused = json.add_element(&["hooks", "X"], &json!(1)).unwrap_err();
    assert_eq!(refused.to_string(), "line 2, column 18: `hooks.X` must be an array");
    let refused = json.add_member(&["hooks", "Y", "Z"], &json!(1)).unwrap_err();
    assert_eq!(refused.to_string(), "line 2, column 27: `Y` must be an object");
    assert_eq!(json, before, "a refusal changes nothing");
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[ -~äß€\\n\\t\"\\\\{}\\[\\],:]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        let key =
            prop_oneof![Just("mcpServers".to_owned()), Just("x".to_owned()), "[ -~ä\"\\\\{]{0,8}"];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            prop::collection::vec((key, inner), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Generates an object in one of several formats.
fn any_text() -> impl Strategy<Value = String> {
    let members = prop::collection::vec(("[a-z\"\\\\ä]{0,6}", any_json()), 0..6);
    let servers = prop::option::of(prop::collection::vec(("[a-z]{1,4}", any_json()), 0..4));
    (members, servers, prop::sample::select(vec!["", " ", "  ", "    ", "\t"]), any::<bool>())
        .prop_map(|(members, servers, indent, windows)| {
            let mut object: serde_json::Map<String, Value> = members.into_iter().collect();
            if let Some(servers) = servers {
                object.insert("mcpServers".into(), Value::Object(servers.into_iter().collect()));
            }
            let text = format_json(&Value::Object(object), indent);
            if windows { text.replace('\n', "\r\n") } else { text }
        })
}

fn format_json(value: &Value, indent: &str) -> String {
    if indent.is_empty() {
        return value.to_string();
    }
    let formatter = serde_json::ser::PrettyFormatter::with_indent(indent.as_bytes());
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    serde::Serialize::serialize(value, &mut serializer).unwrap();
    String::from_utf8(bytes).unwrap()
}

proptest! {
    #[test]
    fn adding_loses_nothing_reorders_nothing_and_is_done_once(text in any_text()) {
        let path = ["mcpServers", "Adjutant"];
        let entry = json!({"command": "adjutant", "args": ["serve"]});
        let before = JsonText::parse(text.clone()).unwrap();
        let mut after = before.clone();
        if after.add_member(&path, &entry).is_err() {
            prop_assert!(before.to_value()["mcpServers"].is_object() || before.to_value().get("mcpServers").is_some());
            return Ok(());
        }
        let mut expected = before.to_value();
        let servers = expected.as_object_mut().unwrap().entry("mcpServers").or_insert_with(|| json!({}));
        servers.as_object_mut().unwrap().insert("Adjutant".into(), entry.clone());
        // Compared as text, because maps are equal in any order.
        prop_assert_eq!(after.to_value().to_string(), expected.to_string());
        prop_assert!(is_one_insertion(&text, after.text()), "{:?} became {:?}", text, after.text());

        let again = JsonText::parse(after.text()).unwrap();
        let mut twice = again.clone();
        twice.add_member(&path, &entry).unwrap();
        prop_assert_eq!(twice, again);
    }

    #[test]
    fn an_element_is_appended_and_nothing_else(text in any_text(), list in prop::option::of(prop::collection::vec(any_json(), 0..4))) {
        let mut whole = JsonText::parse(text).unwrap().to_value();
        if let Some(list) = list {
            whole["hooks"] = json!({"other": 1, "PreToolUse": list});
        }
        let text = format_json(&whole, "  ");
        let mut after = JsonText::parse(text.clone()).unwrap();
        if after.add_element(&["hooks", "PreToolUse"], &json!({"new": []})).is_err() {
            prop_assert!(whole.get("hooks").is_some_and(|hooks| !hooks.is_object()));
            return Ok(());
        }
        let place = &mut whole["hooks"]["PreToolUse"];
        let mut elements = place.as_array().cloned().unwrap_or_default();
        elements.push(json!({"new": []}));
        *place = Value::Array(elements);
        prop_assert_eq!(after.to_value().to_string(), whole.to_string());
        prop_assert!(is_one_insertion(&text, after.text()));
    }

    #[test]
    fn any_text_is_an_object_or_a_refusal(text in "[{}\\[\\]\",:0-9a-z\\\\\\n /-]{0,40}") {
        if let Ok(mut json) = JsonText::parse(text) {
            let _ = json.add_element(&["a", "b"], &json!({}));
            prop_assert!(JsonText::parse(json.text()).is_ok());
        }
    }
}

fn is_one_insertion(before: &str, after: &str) -> bool {
    let head = before.bytes().zip(after.bytes()).take_while(|(a, b)| a == b).count();
    let tail = before.bytes().rev().zip(after.bytes().rev()).take_while(|(a, b)| a == b).count();
    after.len() >= before.len() && head + tail >= before.len()
}
