//! Import rules between folders, and one place per side effect, as the tables of `docs/architecture.md` state them.

mod paths;
mod tables;
mod violations;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use test_case::test_case;

use paths::mentions;
use tables::Rules;
use violations::{Source, violations};

#[test]
fn the_code_obeys_the_tables_of_the_document() {
    let rules = rules();
    let mut used = BTreeSet::new();
    let mut wrong = Vec::new();
    for path in sources() {
        let text = fs::read_to_string(root().join("src").join(&path)).unwrap();
        wrong.extend(violations(&rules, &Source { path: &path, text: &text }, &mut used));
    }
    for stale in rules.exceptions.keys().filter(|known| !used.contains(*known)) {
        wrong.push(format!("docs/architecture.md: the exception {stale:?} is no longer used"));
    }
    assert!(wrong.is_empty(), "\n{}\nThe rules are in docs/architecture.md.\n", wrong.join("\n"));
}

#[test]
fn every_folder_is_in_the_table_and_in_lib_rs() {
    let named: BTreeSet<String> = rules().layers.into_iter().map(|(folder, _)| folder).collect();
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

#[test_case("policy/x.rs", "\n\nuse crate::process::start;" => "src/policy/x.rs:3: `policy` may not import `process` (`crate::process::start`): only `catalog`, `identity`, `store`"; "an import that is not allowed")]
#[test_case("policy/mod.rs", "use super::process;" => "src/policy/mod.rs:1: `policy` may not import `process` (`crate::process`): only `catalog`, `identity`, `store`"; "by super")]
#[test_case("policy/a/b.rs", "use super::super::super::{store, delegation};" => "src/policy/a/b.rs:1: `policy` may not import `delegation` (`crate::delegation`): only `catalog`, `identity`, `store`"; "by super from deep inside")]
#[test_case("store/x.rs", "// crate::cli\n/* crate::cli */\nfn f() {\n  let _ = \"crate::cli\";\n  crate::config::g() }" => "src/store/x.rs:5: `store` may not import `config` (`crate::config::g`): only "; "in the middle of a function")]
#[test_case("main.rs", "fn main() { adjutant::process::go() }" => "src/main.rs:1: `main.rs` only calls `cli`, not `process`"; "main imports cli only")]
#[test_case("newcomer/x.rs", "use crate::store::now;" => "src/newcomer/x.rs:1: the folder `newcomer` is not in the table of docs/architecture.md"; "an unknown folder")]
#[test_case("delegation/x.rs", "use rmcp::model::Tool;" => "src/delegation/x.rs:1: `rmcp::model::Tool` is MCP: only in `server`, `gateway`"; "a restricted crate")]
#[test_case("sessions/x.rs", "use std::fs;\n\nfn f() { fs::write(a, b) }" => "src/sessions/x.rs:3: `std::fs::write` is writing files: only in `store`"; "through a use line")]
#[test_case("sessions/x.rs", "use std::fs::{self as disk};\nfn f() { disk::rename(a, b) }" => "src/sessions/x.rs:2: `std::fs::rename` is writing files: only in `store`"; "under another name")]
#[test_case("sessions/x.rs", "use std::{io,\n fs::{File,\n OpenOptions}};" => "src/sessions/x.rs:3: `std::fs::OpenOptions` is writing files: only in `store`"; "deep in a use line")]
#[test_case("events/x.rs", "use tokio::process::*;" => "src/events/x.rs:1: `tokio::process::*` is building a process: only in `process`"; "by a glob")]
#[test_case("server/x.rs", "fn f() { println!(\"x\") }" => "src/server/x.rs:1: `println!` is printing: only in `cli/output.rs`"; "a macro")]
#[test_case("cli/list.rs", "use std::io;\nfn f() { io::stdout().flush() }" => "src/cli/list.rs:2: `std::io::stdout` is printing: only in `cli/output.rs`"; "an effect that is allowed in one file")]
#[test_case("sessions/x.rs", "fn f(file: F) {\n  file.sync_all()?; }" => "src/sessions/x.rs:2: `.sync_all()` is locking files: only in `store`"; "a method of a file")]
#[test_case("sessions/x.rs", "fn f() { staged().persist::<&Path>(path) }" => "src/sessions/x.rs:1: `.persist()` is locking files: only in `store`"; "a method with a turbofish")]
#[test_case("sessions/x.rs", "use std::fs;\nfn f() {\n  fs::File::open(a)?.lock() }" => "src/sessions/x.rs:3: `std::fs::File::lock` is locking files: only in `store`"; "the lock of a file")]
#[test_case("sessions/x.rs", "use std::fs::File;\nfn f(file: &File) { File::lock(file) }" => "src/sessions/x.rs:2: `std::fs::File::lock` is locking files: only in `store`"; "a method as a path")]
#[test_case("sessions/x.rs", "use rustix::fs::{self, FlockOperation};\nfn f() { fs::flock(a, b) }" => "src/sessions/x.rs:2: `rustix::fs::flock` is locking files: only in `store`"; "a system call")]
#[test_case("plan/x.rs", "use crate::store::now;" => "src/plan/x.rs:1: `crate::store::now` is anything impure: not in `policy`, `plan`"; "a clock in a pure folder")]
#[test_case("plan/x.rs", "async fn f(x: tokio::sync::Mutex<u8>) {}" => "src/plan/x.rs:1: `tokio::sync::Mutex` is anything impure: not in `policy`, `plan`"; "tokio in a pure folder")]
#[test_case("plan/mod.rs", "//! Text.\nmod a;\npub use a::A;\nfn f() {}" => "src/plan/mod.rs:4: a `fn` does not belong here: this file only lists modules"; "logic in mod.rs")]
#[test_case("plan/x.rs", &"\n".repeat(801) => "src/plan/x.rs:801: a file has at most 800 lines: split it"; "a file that is too long")]
fn a_mistake_is_reported_at_its_line(path: &str, text: &str) -> String {
    violations(&sample_rules(), &Source { path, text }, &mut BTreeSet::new()).join("\n")
}

#[test_case("plan/x.rs", "use crate::policy::Grant; use super::y;"; "an allowed import")]
#[test_case("plan/x.rs", "//! See `std::fs::write`.\nconst A: &str = r#\"println!\"#;"; "strings and comments")]
#[test_case("plan/x.rs", "#[cfg(test)]\nmod tests { use std::fs; fn f() { fs::write(1, 2) } }"; "a test module")]
#[test_case("plan/x.rs", "#[cfg(test)]\n#[path = \"x_tests.rs\"]\nmod tests;\nfn f() {}"; "a test module in a file of its own")]
#[test_case("cli/x.rs", "use super::args::Command; fn f() { Command::new(1) }"; "a Command that is not a process")]
#[test_case("plan/x.rs", "fn f(tokio: u8) -> u8 { tokio }"; "a variable of that name")]
#[test_case("sessions/x.rs", "fn f(known: &Mutex<u8>) { known.lock() }"; "the lock of a mutex")]
#[test_case("sessions/x.rs", "use std::fs::File;\nfn f(m: &M) { m.lock().unwrap_or_else(into_inner); m.lock().await }"; "the lock of a mutex beside a file")]
#[test_case("sessions/x.rs", "use std::fs::File;\nimpl A { fn f(&self) { self.lock() } }"; "a method of its own with that name")]
#[test_case("sessions/x.rs", "fn f(a: A) { a.sync_all; 0..persist(1); a.persist_all() }"; "a field, a range and another method")]
#[test_case("store/x.rs", "use std::fs::File;\nfn f(file: &File) { file.lock(); file.sync_all() }"; "a method of a file in store")]
#[test_case("process/x.rs", "fn f() { std::fs::read_dir(\"/proc\"); tokio::process::Command::new(1) }"; "reading, and the allowed folder")]
fn allowed_code_passes(path: &str, text: &str) {
    let wrong = violations(&sample_rules(), &Source { path, text }, &mut BTreeSet::new());
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn code_after_a_test_module_is_checked() {
    let text = "#[cfg(test)] mod tests { fn f() {} }\nuse std::fs::write;";
    let found = mentions(text, &["plan", "x"]).unwrap();
    assert_eq!(
        found.iter().map(|m| (m.line, m.path.as_str())).collect::<Vec<_>>(),
        [(2, "std::fs::write")]
    );
}

#[test]
fn test_only_files_are_recognized_by_their_mod_declaration() {
    let text = "mod a;\n#[cfg(test)]\nmod b;\n#[cfg(test)]\n#[path = \"c_tests.rs\"]\nmod tests;\n#[cfg(test)]\nmod d { mod e; }";
    assert_eq!(paths::test_modules(text), ["b", "./c_tests.rs"]);
}

#[test]
fn an_exception_applies_to_its_file_only_and_needs_a_reason() {
    let with = |row: &str| {
        let head = "| file | what it uses | why |\n|---|---|---|\n";
        Rules::parse(&SAMPLE.replace(head, &format!("{head}{row}\n")))
    };
    let rules = with("| `events/x.rs` | `tempfile` | a reason that is long enough |").unwrap();
    let mut used = BTreeSet::new();
    let text = "use tempfile::TempDir;";
    assert!(violations(&rules, &Source { path: "events/x.rs", text }, &mut used).is_empty());
    assert_eq!(used.len(), 1);
    assert_eq!(violations(&rules, &Source { path: "events/y.rs", text }, &mut used).len(), 1);
    assert!(with("| `events/x.rs` | `tempfile` | |").unwrap_err().contains("no reason"));
}

/// The only code that writes an envelope also seals the line.
#[test]
fn json_rpc_envelopes_are_written_in_one_file() {
    let writes = |path: &String| {
        let text = fs::read_to_string(root().join("src").join(path)).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        code.contains("\"jsonrpc\"")
    };
    let files: Vec<String> = sources().into_iter().filter(writes).collect();
    assert_eq!(files, ["jsonrpc/frame.rs"]);
}

#[test]
fn a_document_without_its_tables_is_refused() {
    assert_eq!(Rules::parse("# Architecture").unwrap_err(), "no table `layers`");
}

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn document() -> String {
    fs::read_to_string(root().join("docs/architecture.md")).unwrap()
}

/// Tables for the samples, so that the samples do not depend on the real ones.
const SAMPLE: &str = "
<!-- table: layers -->
| folder | purpose | may import |
|---|---|---|
| `store` | files | nothing |
| `config` | settings | `store` |
| `catalog` | agents | `store`, `config` |
| `identity` | callers | `store` |
| `policy` (pure) | decisions | `catalog`, `identity`, `store` |
| `plan` (pure) | launches | `store`, `policy` |
| `process` | processes | `store` |
| `sessions` | sessions | `store` |
| `events` | events | `store` |
| `delegation` | runs | all above |
| `server` | clients | all above |
| `cli` | commands | all above |

<!-- table: effects -->
| effect | only in | seen as |
|---|---|---|
| MCP | `server`, `gateway` | `rmcp` |
| building a process | `process` | `std::process::Command`, `tokio::process` |
| writing files | `store` | `std::fs::write`, `std::fs::rename`, `std::fs::OpenOptions`, `tempfile` |
| locking files | `store` | `.sync_all()`, `.persist()`, `std::fs::File::lock`, `rustix::fs::flock` |
| printing | `cli/output.rs` | `println!`, `std::io::stdout` |
| anything impure | not `policy`, `plan` | `std::fs`, `tokio`, `crate::store::now` |

<!-- table: exceptions -->
| file | what it uses | why |
|---|---|---|
| `cli/terminal.rs` | `std::io::stdout` | asks whether a person is watching |
";

fn sample_rules() -> Rules {
    Rules::parse(SAMPLE).unwrap()
}

fn rules() -> Rules {
    Rules::parse(&document()).unwrap()
}

/// Paths below `src/` of all files that are not test-only.
pub(crate) fn sources() -> Vec<String> {
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

/// Files that `#[cfg(test)] mod …;` of this file declares.
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
