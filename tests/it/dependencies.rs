//! Licences, duplicate versions, banned crates and sources, checked against `deny.toml` with cargo alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use test_case::test_case;

#[test]
fn every_licence_is_allowed() {
    let allowed = string_list("allow");
    let wrong: Vec<String> = packages()
        .iter()
        .filter(|package| !permits(&package.licence, &allowed))
        .map(|package| format!("{} {}: {}", package.name, package.version, package.licence))
        .collect();
    assert!(wrong.is_empty(), "not allowed by deny.toml: {wrong:#?}");
}

#[test]
fn duplicate_versions_of_a_crate_need_a_reason() {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages() {
        versions.entry(package.name).or_default().insert(package.version);
    }
    let skipped = crate_list("skip");
    let excused = |name: &str, version: &str| {
        skipped.iter().any(|skip| {
            skip.split_once('@').is_some_and(|(crate_name, prefix)| {
                name == crate_name
                    && (version == prefix || version.starts_with(&format!("{prefix}.")))
            })
        })
    };
    for (name, versions) in &mut versions {
        versions.retain(|version| !excused(name, version));
    }
    versions.retain(|_, versions| versions.len() > 1);
    assert!(versions.is_empty(), "several versions, and no `skip` in deny.toml: {versions:?}");
}

#[test]
fn crates_come_from_registries_and_none_is_banned() {
    let banned = crate_list("deny");
    assert!(!banned.is_empty(), "deny.toml was not understood");
    for package in packages() {
        assert!(!banned.contains(&package.name), "`{}` is banned by deny.toml", package.name);
        let registry =
            package.source.as_deref().is_none_or(|source| source.starts_with("registry+"));
        assert!(registry, "`{}` comes from {:?}", package.name, package.source);
    }
}

#[test_case("MIT", true)]
#[test_case("GPL-3.0", false)]
#[test_case("MIT/GPL-3.0", true; "a slash as or")]
#[test_case("GPL-3.0 OR MIT", true)]
#[test_case("MIT AND GPL-3.0", false)]
#[test_case("(MIT OR GPL-3.0) AND ISC", true)]
#[test_case("MIT AND (GPL-3.0 OR LGPL-3.0)", false)]
#[test_case("GPL-3.0 OR MIT AND GPL-2.0", false; "and takes precedence")]
#[test_case("GPL-2.0 WITH MIT", false; "an exception is not a licence")]
#[test_case("", false; "none")]
fn licence_expressions_are_evaluated(expression: &str, fine: bool) {
    let allowed = ["MIT".to_owned(), "ISC".to_owned()];
    assert_eq!(permits(expression, &allowed), fine);
}

struct Package {
    name: String,
    version: String,
    licence: String,
    source: Option<String>,
}

/// The packages that cargo builds for this platform. All of them were downloaded to build this test.
fn packages() -> Vec<Package> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked", "--offline"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root())
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let text = |package: &Value, key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let packages = metadata["packages"].as_array().expect("packages");
    packages
        .iter()
        .map(|package| Package {
            name: text(package, "name"),
            version: text(package, "version"),
            licence: text(package, "license"),
            source: package["source"].as_str().map(str::to_owned),
        })
        .collect()
}

/// Returns whether an SPDX expression can be satisfied with these licences.
fn permits(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    parse_or(&mut rest, allowed) && rest.is_empty()
}

fn parse_or(words: &mut &[&str], allowed: &[String]) -> bool {
    let mut fine = parse_and(words, allowed);
    while let ["OR", rest @ ..] = *words {
        *words = rest;
        fine |= parse_and(words, allowed);
    }
    fine
}

fn parse_and(words: &mut &[&str], allowed: &[String]) -> bool {
    let mut fine = parse_term(words, allowed);
    while let ["AND", rest @ ..] = *words {
        *words = rest;
        fine &= parse_term(words, allowed);
    }
    fine
}

fn parse_term(words: &mut &[&str], allowed: &[String]) -> bool {
    match *words {
        ["(", rest @ ..] => {
            *words = rest;
            let fine = parse_or(words, allowed);
            *words = words.strip_prefix(&[")"]).unwrap_or(&[]);
            fine
        }
        [name, "WITH", exception, rest @ ..] => {
            *words = rest;
            allowed.contains(&format!("{name} WITH {exception}"))
        }
        [name, rest @ ..] => {
            *words = rest;
            allowed.iter().any(|allowed| allowed == name)
        }
        [] => false,
    }
}

/// The strings of `key = [ … ]` in `deny.toml`. Not a TOML parser: relies on the formatting of that file.
fn string_list(key: &str) -> Vec<String> {
    entries(key).iter().filter_map(|line| quoted(line)).collect()
}

/// The `crate = "…"` of each entry of `key = [ … ]`.
fn crate_list(key: &str) -> Vec<String> {
    entries(key).iter().filter_map(|line| quoted(line.split_once("crate = ")?.1)).collect()
}

fn entries(key: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
    let opening = format!("{key} = [");
    let lines = text.lines().skip_while(|line| *line != opening).skip(1);
    let inside = lines.take_while(|line| *line != "]").filter(|line| !line.trim().starts_with('#'));
    let found: Vec<String> = inside.map(str::to_owned).collect();
    assert!(!found.is_empty(), "deny.toml has no `{opening}`");
    found
}

fn quoted(text: &str) -> Option<String> {
    text.split('"').nth(1).map(str::to_owned)
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
