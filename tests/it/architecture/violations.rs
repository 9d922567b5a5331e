//! Checks one file against the rules.

use std::collections::BTreeSet;

use super::paths::{self, Mention};
use super::tables::{Effect, Places, Rules};

const MAX_LINES: usize = 800;

/// A file of `src/` to check.
pub struct Source<'a> {
    /// Path below `src/`: `policy/verdict.rs`.
    pub path: &'a str,
    pub text: &'a str,
}

/// Returns the violations of a file as `src/…:line: sentence`, and adds the exceptions it used to `used`.
pub fn violations(
    rules: &Rules,
    source: &Source<'_>,
    used: &mut BTreeSet<(String, String)>,
) -> Vec<String> {
    let at = |line: usize, what: &str| format!("src/{}:{line}: {what}", source.path);
    let mentions = match paths::mentions(source.text, &module_of(source.path)) {
        Ok(mentions) => mentions,
        Err(error) => return vec![at(1, &error)],
    };
    let mut wrong =
        shape(source).into_iter().map(|(line, what)| at(line, &what)).collect::<Vec<_>>();
    for mention in mentions {
        for what in broken_rules(rules, source.path, &mention) {
            match exception(rules, source.path, &mention.path) {
                Some(known) => {
                    used.insert(known);
                }
                None => wrong.push(at(mention.line, &what)),
            }
        }
    }
    wrong
}

fn broken_rules(rules: &Rules, path: &str, mention: &Mention) -> Vec<String> {
    let effects = rules.effects.iter().filter(|effect| !is_allowed(effect, path));
    let broken =
        effects.filter(|effect| effect.seen_as.iter().any(|seen| shows(&mention.path, seen)));
    let effects = broken.map(|effect| {
        let places = match &effect.places {
            Places::Only(places) => format!("only in {}", list(places)),
            Places::Not(places) => format!("not in {}", list(places)),
        };
        format!("`{}` is {}: {places}", mention.path, effect.name)
    });
    forbidden_import(rules, path, &mention.path).into_iter().chain(effects).collect()
}

fn forbidden_import(rules: &Rules, path: &str, mention: &str) -> Option<String> {
    let inside = mention.strip_prefix("crate::").or_else(|| mention.strip_prefix("adjutant::"))?;
    let target = inside.split("::").next()?;
    let Some((folder, _)) = path.split_once('/') else {
        let main =
            (path == "main.rs").then(|| format!("`main.rs` only calls `cli`, not `{target}`"));
        return main.filter(|_| target != "cli");
    };
    let Some((_, allowed)) = rules.layers.iter().find(|(name, _)| name == folder) else {
        return Some(format!("the folder `{folder}` is not in the table of docs/architecture.md"));
    };
    let fine = target == folder || allowed.contains(target);
    (!fine).then(|| {
        let names: Vec<String> = allowed.iter().cloned().collect();
        format!("`{folder}` may not import `{target}` (`{mention}`): only {}", list(&names))
    })
}

fn is_allowed(effect: &Effect, path: &str) -> bool {
    let inside = |place: &String| {
        path == place || path.strip_prefix(place.as_str()).is_some_and(|rest| rest.starts_with('/'))
    };
    match &effect.places {
        Places::Only(places) => places.iter().any(inside),
        Places::Not(places) => !places.iter().any(inside),
    }
}

/// True if a path is, or is below, a path that shows the effect. A glob import shows everything it can bring in.
fn shows(path: &str, seen: &str) -> bool {
    let below = |outer: &str, inner: &str| {
        inner == outer || inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with("::"))
    };
    below(seen, path) || path.strip_suffix("::*").is_some_and(|opened| below(opened, seen))
}

fn exception(rules: &Rules, file: &str, path: &str) -> Option<(String, String)> {
    let matches = |(place, seen): &&(String, String)| place == file && shows(path, seen);
    rules.exceptions.keys().find(matches).cloned()
}

fn shape(source: &Source<'_>) -> Vec<(usize, String)> {
    let mut wrong = Vec::new();
    let lines = source.text.lines().count();
    if lines > MAX_LINES {
        wrong.push((lines, format!("a file has at most {MAX_LINES} lines: split it")));
    }
    let front = source.path.ends_with("mod.rs") || source.path == "lib.rs";
    if let Some((line, word)) = paths::first_logic(source.text).filter(|_| front) {
        wrong
            .push((line, format!("a `{word}` does not belong here: this file only lists modules")));
    }
    wrong
}

/// Module path of a file: `policy/verdict.rs` is `policy::verdict`, `policy/mod.rs` is `policy`, `lib.rs` is the root.
fn module_of(path: &str) -> Vec<&str> {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    let parts = stem.split('/').collect::<Vec<_>>();
    match parts.split_last() {
        Some((&("mod" | "lib" | "main"), above)) => above.to_vec(),
        _ => parts,
    }
}

fn list(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
