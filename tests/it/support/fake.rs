//! The fake `claude`, built once for a run of the tests.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// Its program. What it shall do is told by `FAKE_CLAUDE` or by lines `FAKE …` in the prompt:
/// `tests/helpers/fake_claude/script.rs` has the list.
pub fn fake_claude() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(build).clone()
}

/// `cargo test` builds examples only when it runs everything, and then in the same folder.
fn build() -> PathBuf {
    let adjutant = PathBuf::from(env!("CARGO_BIN_EXE_adjutant"));
    let profile_folder = adjutant.parent().expect("the program is in a folder");
    let target = profile_folder.parent().expect("that folder is in `target`");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--example", "fake_claude"]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    cargo.current_dir(env!("CARGO_MANIFEST_DIR")).env("CARGO_TARGET_DIR", target);
    assert!(cargo.status().expect("cargo starts").success(), "the fake claude does not build");
    profile_folder.join("examples/fake_claude")
}
