//! The container image and the systemd unit, as far as they can be checked without a container engine.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::gateway_real::node_program;
use crate::support::TestContext;
use crate::support::claude_context::NEW;
use crate::support::real_claude::real_claude;
use crate::support::skip::or_skip;

fn read_file(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Instructions of the Dockerfile, one per line.
fn instructions() -> Vec<String> {
    let text = read_file("Dockerfile").replace("\\\n", " ");
    let lines = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    lines.map(str::to_owned).collect()
}

#[test]
fn systemd_accepts_the_unit() {
    let context = TestContext::new();
    let program = env!("CARGO_BIN_EXE_adjutant");
    let unit =
        read_file("docs/deploy/adjutant.service").replace("/usr/local/bin/adjutant", program);
    context.write("adjutant.service", unit);
    let path = context.root().join("adjutant.service");
    let verify = Command::new("systemd-analyze").arg("verify").arg(&path).output();
    let verify = verify.map_err(|error| format!("systemd-analyze cannot be started: {error}"));
    let Some(output) = or_skip(verify) else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    let about_us: Vec<&str> =
        said.lines().filter(|line| line.contains("adjutant.service")).collect();
    assert!(about_us.is_empty(), "{said}");
}

#[test]
fn the_unit_uses_valid_arguments() {
    let unit = read_file("docs/deploy/adjutant.service");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let mut words: Vec<&str> = start.split(' ').skip(1).collect();
    let context = TestContext::new();
    let root = context.root().display().to_string();
    let at = words.iter().position(|word| *word == "/srv/adjutant").unwrap();
    words[at] = &root;
    // Without a token `adjutant` refuses to serve; by then the arguments have been parsed.
    let output = context.adjutant([]).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("adjutant token new"), "{said}");
}

#[test]
fn a_linter_accepts_the_dockerfile() {
    let Some(linter) = node_program("dockerfile-utils") else { return };
    let dockerfile = Path::new(env!("CARGO_MANIFEST_DIR")).join("Dockerfile");
    let output = Command::new(linter).arg("lint").arg(dockerfile).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
#[ignore = "takes minutes, and needs root, buildah and debootstrap"]
fn the_image_builds_and_runs_as_its_user() {
    for program in ["buildah", "debootstrap"] {
        Command::new(program).arg("--version").output().expect("the program is installed");
    }
    let Some(claude) = real_claude(NEW) else { return };
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(root.join("tests/deploy/build-image.sh"))
        .args([root, Path::new(env!("CARGO_BIN_EXE_adjutant")), &claude, folder.path()])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let said = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    let version = format!("adjutant {}", env!("CARGO_PKG_VERSION"));
    let claude = format!("{NEW} (Claude Code)");
    assert_eq!(lines, [version.as_str(), &claude, "10001", "volumes", "{"], "{told}");
    let inspected = fs::read_to_string(folder.path().join("inspected.json")).unwrap();
    let image: Value = serde_json::from_str(&inspected).unwrap();
    let config = &image["Docker"]["config"];
    assert_eq!(config["User"], "10001:10001");
    assert_eq!(config["Healthcheck"]["Test"][0], "CMD", "{config}");
    assert_eq!(config["Volumes"], json!({ "/home/adjutant": {}, "/project": {} }));
}

#[test]
fn the_image_runs_unprivileged_with_pinned_versions() {
    let instructions = instructions();
    let last =
        |name: &str| instructions.iter().rfind(|line| line.starts_with(name)).unwrap().as_str();
    assert_eq!(last("USER"), "USER 10001:10001");
    assert!(last("FROM").contains("-slim"), "{}", last("FROM"));
    for line in &instructions {
        assert!(!line.starts_with("ADD "), "{line}");
        assert!(!line.starts_with("FROM") || line.contains(':'), "a version each: {line}");
        let copied = line.strip_prefix("COPY ").filter(|rest| !rest.starts_with("--from"));
        for source in copied.into_iter().flat_map(|rest| rest.split(' ').rev().skip(1)) {
            assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(source).exists(), "{source}");
        }
    }
    let rust = read_file("Cargo.toml");
    let needed = rust.lines().find_map(|line| line.strip_prefix("rust-version = ")).unwrap();
    assert!(instructions[0].contains(&format!("rust:{}-", needed.trim_matches('"'))));
}

#[test]
fn the_health_check_of_the_image_detects_a_missing_server() {
    let check = instructions().into_iter().find(|line| line.starts_with("HEALTHCHECK")).unwrap();
    let command: Vec<String> =
        serde_json::from_str(check.split_once("CMD ").unwrap().1).expect("a list of words");
    let healthy = |address: &str| {
        let script = command[2].replace("127.0.0.1/8080", &address.replace(':', "/"));
        Command::new(&command[0]).args([&command[1], &script]).output().unwrap().status.success()
    };
    let context = TestContext::new();
    context.create_token("probe");
    let server = context.serve_http([]);
    let address = server.address.to_string();
    assert!(healthy(&address));
    drop(server);
    assert!(!healthy(&address));
}
