//! The walls of the house: who may import whom, and one door per effect, as `docs/architecture.md` has them.

mod paths;
mod tables;
#[path = "architecture/violations.rs"]
mod walls;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use test_case::test_case;

use paths::mentions;
use tables::Rules;
use walls::{Source, violations};

#[test]
fn the_code_keeps_to_the_tables_of_the_document() {
    let rules = rules();
    let mut used = BTreeSet::new();
    let mut wrong = Vec::new();
    for path in sources() {
        let text = fs::read_to_string(root().join("src").join(&path)).unwrap();
        wrong.extend(violations(&rules, &Source { path: &path, text: &text }, &mut used));
    }
    for stale in rules.exceptions.keys().filter(|known| !used.contains(*known)) {
        wrong.push(format!("docs/architecture.md: nothing needs the exception {stale:?} any more"));
    }
    assert!(wrong.is_empty(), "\n{}\nThe rules stand in docs/architecture.md.\n", wrong.join("\n"));
}

#[test]
fn every_folder_stands_in_the_table_and_in_lib_rs() {
    let named: BTreeSet<String> = rules().house.into_iter().map(|(folder, _)| folder).collect();
    let folders: BTreeSet<String> = sources()
        .iter()
        .filter_map(|p| p.split_once('/'))
        .map(|(folder, _)| folder.into())
        .collect();
    assert_eq!(folders, named, "the folders of src, and those in docs/architecture.md");
    let library = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    for folder in folders {
        assert!(library.contains(&format!("mod {folder};")), "src/lib.rs does not list `{folder}`");
    }
}

#[test_case("policy/x.rs", "\n\nuse crate::worker::start;" => "src/policy/x.rs:3: `policy` may not import `worker` (`crate::worker::start`): only `base`, `catalog`, `identity`"; "a wrong arrow")]
#[test_case("policy/mod.rs", "use super::worker;" => "src/policy/mod.rs:1: `policy` may not import `worker` (`crate::worker`): only `base`, `catalog`, `identity`"; "by super")]
#[test_case("policy/a/b.rs", "use super::super::super::{base, call};" => "src/policy/a/b.rs:1: `policy` may not import `call` (`crate::call`): only `base`, `catalog`, `identity`"; "by super from deep inside")]
#[test_case("base/x.rs", "// crate::cli\n/* crate::cli */\nfn f() {\n  let _ = \"crate::cli\";\n  crate::config::g() }" => "src/base/x.rs:5: `base` may not import `config` (`crate::config::g`): only "; "in the middle of a function")]
#[test_case("main.rs", "fn main() { adjutant::worker::go() }" => "src/main.rs:1: `main.rs` only calls `cli`, not `worker`"; "main has one arrow")]
#[test_case("newcomer/x.rs", "use crate::base::now;" => "src/newcomer/x.rs:1: the folder `newcomer` is not in the table of docs/architecture.md"; "an unknown folder")]
#[test_case("call/x.rs", "use rmcp::model::Tool;" => "src/call/x.rs:1: `rmcp::model::Tool` is MCP: only in `server`, `gateway`"; "a crate behind a door")]
#[test_case("sessions/x.rs", "use std::fs;\n\nfn f() { fs::write(a, b) }" => "src/sessions/x.rs:3: `std::fs::write` is writing files: only in `base`"; "through a use line")]
#[test_case("sessions/x.rs", "use std::fs::{self as disk};\nfn f() { disk::rename(a, b) }" => "src/sessions/x.rs:2: `std::fs::rename` is writing files: only in `base`"; "under another name")]
#[test_case("sessions/x.rs", "use std::{io,\n fs::{File,\n OpenOptions}};" => "src/sessions/x.rs:3: `std::fs::OpenOptions` is writing files: only in `base`"; "deep in a use line")]
#[test_case("record/x.rs", "use tokio::process::*;" => "src/record/x.rs:1: `tokio::process::*` is building a process: only in `worker`"; "by a glob")]
#[test_case("server/x.rs", "fn f() { println!(\"x\") }" => "src/server/x.rs:1: `println!` is printing: only in `cli/render.rs`"; "a macro")]
#[test_case("cli/list.rs", "use std::io;\nfn f() { io::stdout().flush() }" => "src/cli/list.rs:2: `std::io::stdout` is printing: only in `cli/render.rs`"; "a door that is one file")]
#[test_case("plan/x.rs", "use crate::base::now;" => "src/plan/x.rs:1: `crate::base::now` is anything impure: not in `policy`, `plan`, `outcome`"; "a clock in a pure folder")]
#[test_case("plan/x.rs", "async fn f(x: tokio::sync::Mutex<u8>) {}" => "src/plan/x.rs:1: `tokio::sync::Mutex` is anything impure: not in `policy`, `plan`, `outcome`"; "tokio in a pure folder")]
#[test_case("plan/mod.rs", "//! Text.\nmod a;\npub use a::A;\nfn f() {}" => "src/plan/mod.rs:4: a `fn` does not belong here: this file only lists modules"; "logic in mod.rs")]
#[test_case("plan/x.rs", &"\n".repeat(801) => "src/plan/x.rs:801: a file has at most 800 lines: split it"; "a file that is too long")]
fn a_mistake_is_reported_at_its_line(path: &str, text: &str) -> String {
    violations(&rules(), &Source { path, text }, &mut BTreeSet::new()).join("\n")
}

#[test_case("plan/x.rs", "use crate::policy::Grant; use super::y;"; "a good arrow")]
#[test_case("plan/x.rs", "//! See `std::fs::write`.\nconst A: &str = r#\"println!\"#;"; "text and comments")]
#[test_case("plan/x.rs", "#[cfg(test)]\nmod tests { use std::fs; fn f() { fs::write(1, 2) } }"; "a test module")]
#[test_case("plan/x.rs", "#[cfg(test)]\n#[path = \"x_tests.rs\"]\nmod tests;\nfn f() {}"; "a test module in a file of its own")]
#[test_case("cli/x.rs", "use super::args::Command; fn f() { Command::new(1) }"; "a Command that is not a process")]
#[test_case("plan/x.rs", "fn f(tokio: u8) -> u8 { tokio }"; "a variable of that name")]
#[test_case("worker/x.rs", "fn f() { std::fs::read_dir(\"/proc\"); tokio::process::Command::new(1) }"; "reading, and the door itself")]
fn what_is_allowed_passes(path: &str, text: &str) {
    let wrong = violations(&rules(), &Source { path, text }, &mut BTreeSet::new());
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn code_after_a_test_module_is_read_again() {
    let text = "#[cfg(test)] mod tests { fn f() {} }\nuse std::fs::write;";
    let found = mentions(text, &["plan", "x"]).unwrap();
    assert_eq!(
        found.iter().map(|m| (m.line, m.path.as_str())).collect::<Vec<_>>(),
        [(2, "std::fs::write")]
    );
}

#[test]
fn files_for_tests_alone_are_known_by_the_line_that_brings_them_in() {
    let text = "mod a;\n#[cfg(test)]\nmod b;\n#[cfg(test)]\n#[path = \"c_tests.rs\"]\nmod tests;\n#[cfg(test)]\nmod d { mod e; }";
    assert_eq!(paths::test_modules(text), ["b", "./c_tests.rs"]);
}

#[test]
fn an_exception_counts_for_its_file_alone_and_needs_a_reason() {
    let with = |row: &str| {
        let head = "| file | what it uses | why |\n|---|---|---|\n";
        Rules::parse(&document().replace(head, &format!("{head}{row}\n")))
    };
    let rules = with("| `record/x.rs` | `tempfile` | a reason that is long enough |").unwrap();
    let mut used = BTreeSet::new();
    let text = "use tempfile::TempDir;";
    assert!(violations(&rules, &Source { path: "record/x.rs", text }, &mut used).is_empty());
    assert_eq!(used.len(), 1);
    assert_eq!(violations(&rules, &Source { path: "record/y.rs", text }, &mut used).len(), 1);
    assert!(with("| `record/x.rs` | `tempfile` | |").unwrap_err().contains("no reason"));
}

#[test]
fn a_document_without_its_tables_is_refused() {
    assert_eq!(Rules::parse("# Architecture").unwrap_err(), "no table `house`");
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn document() -> String {
    fs::read_to_string(root().join("docs/architecture.md")).unwrap()
}

fn rules() -> Rules {
    Rules::parse(&document()).unwrap()
}

/// Every file of `src` but those that are compiled for tests alone, below `src`.
fn sources() -> Vec<String> {
    let mut found = Vec::new();
    collect(&root().join("src"), &mut found);
    let for_tests: BTreeSet<PathBuf> = found.iter().flat_map(|path| test_files(path)).collect();
    found.retain(|path| !for_tests.contains(path));
    let source = root().join("src");
    let below = |path: &PathBuf| path.strip_prefix(&source).unwrap().to_str().unwrap().to_owned();
    let mut paths: Vec<String> = found.iter().map(below).collect();
    paths.sort();
    assert!(paths.len() > 10, "the sources were not found");
    paths
}

/// The files that a file brings in by `#[cfg(test)] mod …;`.
fn test_files(path: &Path) -> Vec<PathBuf> {
    let folder = path.parent().unwrap();
    let stem = path.file_stem().unwrap().to_str().unwrap();
    let inner =
        if matches!(stem, "mod" | "lib" | "main") { folder.into() } else { folder.join(stem) };
    let place = |module: String| match module.strip_prefix("./") {
        Some(file) => vec![folder.join(file)],
        None => vec![inner.join(format!("{module}.rs")), inner.join(module).join("mod.rs")],
    };
    paths::test_modules(&fs::read_to_string(path).unwrap()).into_iter().flat_map(place).collect()
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}
