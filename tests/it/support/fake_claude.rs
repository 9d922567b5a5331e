//! The fake `claude`, built once per test run.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// Path of the fake `claude`. `FAKE_CLAUDE`, or lines `FAKE …` in the prompt, control its behaviour: see
/// `tests/helpers/fake_claude/script.rs`.
pub fn fake_claude() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build_example("fake_claude")).clone()
}

/// Builds an example in the test's target directory: `cargo test` builds examples only when it runs all targets.
pub fn build_example(name: &str) -> PathBuf {
    let adjutant = PathBuf::from(env!("CARGO_BIN_EXE_adjutant"));
    let profile_folder = adjutant.parent().expect("the program is in a folder");
    let target = profile_folder.parent().expect("that folder is in `target`");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--example", name]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    // Build scripts of dependencies watch cargo's package variables: with them in the environment, the dependencies
    // and everything above them would be rebuilt each time.
    for (variable, _) in std::env::vars_os() {
        let text = variable.to_string_lossy();
        let told = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_NAME"];
        if told.iter().any(|prefix| text.starts_with(prefix)) {
            cargo.env_remove(&variable);
        }
    }
    cargo.current_dir(env!("CARGO_MANIFEST_DIR")).env("CARGO_TARGET_DIR", target);
    assert!(cargo.status().expect("cargo starts").success(), "{name} does not build");
    profile_folder.join("examples").join(name)
}
