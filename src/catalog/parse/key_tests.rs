//! The reference tables of `docs/agent-file.md` follow from the declarations of keys.

use std::fs;

use super::super::agent_keys::{SECTIONS, agent_keys};
use super::super::defaults::LIMIT_KEYS;
use super::*;
use crate::catalog::model::{Agent, Orchestration};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/agent-file.md");

fn table<T>(keys: &[Key<T>], mut built_in: T) -> String {
    let row = |key: &Key<T>| {
        let values = match &key.kind {
            Kind::Number(range, _) => format!("{} to {}", range.start(), range.end()),
            Kind::Dollars(_) => "more than 0".to_owned(),
            Kind::Age(_) => "age".to_owned(),
            Kind::Other(shape, ..) => shape.describe(),
        };
        let default =
            key.default(&mut built_in).map_or("–".to_owned(), |value| format!("`{value}`"));
        let default = default.replace('"', "");
        format!("| `{}` | {} | {values} | {default} |\n", key.name, key.doc)
    };
    let rows: String = keys.iter().map(row).collect();
    format!("| key | meaning | values | default |\n|---|---|---|---|\n{rows}")
}

fn replace_section(page: &str, name: &str, table: &str) -> String {
    let (begin, end) =
        (format!("<!-- keys {name}: begin -->\n"), format!("<!-- keys {name}: end -->"));
    let start = page.find(&begin).unwrap_or_else(|| panic!("no `{begin}`")) + begin.len();
    let stop = start + page[start..].find(&end).unwrap_or_else(|| panic!("no `{end}`"));
    format!("{}{table}{}", &page[..start], &page[stop..])
}

/// Regenerate with `UPDATE_DOCS=1 cargo test --lib catalog::parse::key`.
#[test]
fn the_tables_of_the_documentation_are_up_to_date() {
    let committed = fs::read_to_string(PAGE).unwrap();
    let mut page = committed.clone();
    for (name, keys) in SECTIONS {
        page = replace_section(&page, name, &table(keys, Agent::template()));
    }
    page = replace_section(&page, "defaults", &table(LIMIT_KEYS, Orchestration::default()));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(PAGE, &page).unwrap();
        return;
    }
    assert_eq!(page, committed, "docs/agent-file.md is stale");
}

#[test]
fn every_key_is_declared_once_and_documented() {
    let mut known: Vec<_> = agent_keys()
        .map(|key| (key.name, key.doc))
        .chain(LIMIT_KEYS.iter().map(|key| (key.name, key.doc)))
        .collect();
    assert_eq!(known.iter().find(|(_, doc)| doc.is_empty() || doc.ends_with('.')), None);
    known.sort_unstable();
    known.dedup_by_key(|(name, _)| *name);
    assert_eq!(known.len(), agent_keys().count() + LIMIT_KEYS.len());
}
