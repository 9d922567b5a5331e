//! One word, one meaning: type names of `src/`, and the words that comments begin with.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::architecture::{root, sources};

/// Type names of earlier versions, each replaced by an established term.
const RETIRED: &str = include_str!("names/retired.txt");

/// Doc lines of `src/` that may open with a question word: help texts and JSON Schemas, which users see.
/// The number may only shrink.
const MAX_QUESTIONS: usize = 60;

#[test]
fn a_type_name_is_declared_once() {
    let twice: Vec<(String, Vec<String>)> =
        declared_types().into_iter().filter(|(_, files)| files.len() > 1).collect();
    assert_eq!(twice, [], "declared more than once: choose another name");
}

#[test]
fn no_retired_type_name_comes_back() {
    let declared = declared_types();
    let back: Vec<_> = RETIRED.lines().filter(|name| declared.contains_key(*name)).collect();
    assert_eq!(back, Vec::<&str>::new(), "retired in tests/it/names/retired.txt");
}

/// Function names of earlier versions, each replaced by an established term.
const RETIRED_FUNCTIONS: [&str; 30] = [
    "begin_conversation",
    "belongs_to",
    "comes_by_pipe",
    "foresee",
    "go_on",
    "going_away",
    "hand_level_on",
    "hand_over",
    "has_offers",
    "hear",
    "judge_builtin",
    "judge_mcp_tool",
    "keep_or_part",
    "keep_up",
    "leashed",
    "may_hear_of",
    "may_it",
    "objections",
    "on_disk",
    "open_tab",
    "pass_by",
    "pass_on_until",
    "pay_as_it_goes",
    "prompt_behind",
    "put_in_prompt",
    "run_briefly",
    "say_goodbye",
    "telling",
    "tend",
    "turn_away",
];

#[test]
fn no_retired_function_name_comes_back() {
    let declares = |line: &str, name: &str| {
        let rest = line.split_once("fn ").and_then(|(_, rest)| rest.strip_prefix(name));
        rest.is_some_and(|rest| rest.starts_with(['(', '<']))
    };
    let back: Vec<String> = every_file()
        .iter()
        .flat_map(|(path, text)| text.lines().map(move |line| (path, line)))
        .filter(|(_, line)| RETIRED_FUNCTIONS.iter().any(|name| declares(line, name)))
        .map(|(path, line)| format!("{path}: {}", line.trim()))
        .collect();
    assert_eq!(back, Vec::<String>::new());
}

/// Names that say neither what they limit nor in which unit: `MAX_…`, `…_TIMEOUT`, `…_INTERVAL` do.
#[test]
fn constants_name_the_kind_of_their_value() {
    const RETIRED: [&str; 7] =
        ["PATIENCE", "COURTESY", "MOST_", "SHORTEST", "SECOND_LOOK", "GIVEN_UP", "TAKEN_FOR"];
    let is_retired = |line: &str| {
        let mut words = line.split([' ', ':']);
        let constant = words.by_ref().any(|word| matches!(word, "const" | "static"));
        let name = words.next().filter(|_| constant).unwrap_or_default();
        RETIRED.iter().any(|part| name.contains(part))
    };
    let found: Vec<String> = every_file()
        .iter()
        .flat_map(|(path, text)| {
            text.lines().filter(|line| is_retired(line)).map(move |line| format!("{path}: {line}"))
        })
        .collect();
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn doc_comments_open_with_a_noun_phrase_or_a_verb() {
    let questions: Vec<String> = every_file()
        .iter()
        .flat_map(|(path, text)| {
            let is_question = |line: &&str| opens_with_a_question_word(line);
            text.lines().filter(is_question).map(move |line| format!("{path}: {}", line.trim()))
        })
        .collect();
    let list = questions.join("\n");
    assert!(questions.len() <= MAX_QUESTIONS, "{} lines:\n{list}", questions.len());
}

fn opens_with_a_question_word(line: &str) -> bool {
    const WORDS: [&str; 9] =
        ["What", "Whether", "Who", "Which", "How", "Where", "Why", "When", "That"];
    let line = line.trim_start();
    let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
    let word = doc.and_then(|text| text.split_whitespace().next()).unwrap_or_default();
    WORDS.contains(&word)
}

/// Every `struct`, `enum`, `trait` and `type` outside of test code, with the files that declare it.
fn declared_types() -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in every_file() {
        let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for name in code.lines().filter_map(declared_type) {
            found.entry(name.to_owned()).or_default().push(path.clone());
        }
    }
    found
}

/// The name that a line declares. Associated types (`type Item = …` in an `impl`) are indented and do not count.
fn declared_type(line: &str) -> Option<&str> {
    let indented = line.starts_with(' ');
    let mut words = line.split([' ', '<', '(', ';', ':', '{']).filter(|word| !word.is_empty());
    let mut word = words.next()?;
    if word == "pub" {
        word = words.next()?;
        if matches!(word, "crate)" | "super)") {
            word = words.next()?;
        }
    }
    let declares = matches!(word, "struct" | "enum" | "trait") || word == "type" && !indented;
    words.next().filter(|name| declares && name.starts_with(char::is_uppercase))
}

fn every_file() -> Vec<(String, String)> {
    let source = root().join("src");
    let read = |path: String| {
        let text = fs::read_to_string(source.join(&path)).unwrap();
        (path, text)
    };
    sources().into_iter().map(read).collect()
}

/// Only Linux is compiled here: a rename must not forget the counterpart for other systems.
#[test]
fn an_item_for_linux_has_a_counterpart_for_other_systems() {
    for (path, text) in every_file() {
        let linux = items_below(&text, r#"#[cfg(target_os = "linux")]"#);
        let others = items_below(&text, r#"#[cfg(not(target_os = "linux"))]"#);
        assert!(others.is_subset(&linux), "{path}: {others:?}, not {linux:?}");
    }
}

/// The declarations (`fn name`, `mod name`) directly below each line with `attribute`, without visibility.
fn items_below(text: &str, attribute: &str) -> BTreeSet<String> {
    let pairs = text.lines().zip(text.lines().skip(1));
    let declaration = |line: &str| {
        let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        let words = words.filter(|word| !matches!(*word, "" | "pub" | "crate" | "super"));
        words.take(2).collect::<Vec<_>>().join(" ")
    };
    pairs.filter(|(line, _)| line.trim() == attribute).map(|(_, next)| declaration(next)).collect()
}

#[test]
fn declarations_are_recognized() {
    let lines = [
        "pub struct Name;",
        "pub(crate) enum Name<T> {",
        "trait Name: Send {",
        "type Name = u8;",
        "    struct Name {",
    ];
    assert_eq!(lines.map(declared_type), [Some("Name"); 5]);
    let others = ["    type Item = u8;", "/// The struct Name", "fn structure() {", "impl Name {"];
    assert_eq!(others.map(declared_type), [None; 4]);
}
