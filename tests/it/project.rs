//! The project is found from any of its folders; without one, commands say so and create nothing.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;
use std::process::Output;

use nix::unistd::geteuid;
use test_case::test_case;

use crate::support::TestContext;
use crate::support::skip::skip;

const AGENT: &str = "---\nname: helper\ndescription: Helps\n---\nYou help.\n";

/// Runs a command in a folder below the parent of the project, which is created.
fn run_in(context: &TestContext, folder: &str, arguments: &[&str]) -> Output {
    let folder = context.root().join(folder);
    fs::create_dir_all(&folder).unwrap();
    context.adjutant([]).args(arguments).current_dir(folder).output().unwrap()
}

fn agents(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    names.map(str::to_owned).collect()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_subfolder_belongs_to_its_project() {
    let context = TestContext::new();
    context.agent("helper", AGENT);
    for folder in ["", "src", "src/a/b", "agents/helper"] {
        assert_eq!(agents(&run_in(&context, folder, &["list"])), ["helper"], "in `{folder}`");
    }
    assert!(run_in(&context, "src/a", &["new", "second"]).status.success());
    assert!(context.root().join("agents/second/agent.md").exists());
}

#[test]
fn the_nearest_of_nested_projects_is_used() {
    let context = TestContext::new();
    context.agent("helper", AGENT);
    context.write("inner/agents/other/agent.md", AGENT.replace("helper", "other"));
    assert_eq!(agents(&run_in(&context, "inner/src", &["list"])), ["other"]);
    context.write("package/agents/__init__.py", "");
    assert_eq!(agents(&run_in(&context, "package", &["list"])), ["helper"], "a Python package");
}

#[test]
fn a_named_root_is_taken_as_it_is() {
    let context = TestContext::new();
    context.agent("helper", AGENT);
    let src = context.root().join("src");
    fs::create_dir_all(&src).unwrap();
    for name in ["ADJUTANT_ROOT", "CLAUDE_PROJECT_DIR"] {
        let output = context.adjutant(["list"]).env(name, &src).output().unwrap();
        assert_eq!((agents(&output), output.status.code()), (vec![], Some(0)), "{name}");
    }
    let output = context.adjutant(["--root", "src", "list"]).output().unwrap();
    assert_eq!(agents(&output), Vec::<String>::new());
}

#[test]
fn symbolic_links_are_resolved_before_the_search() {
    let context = TestContext::new();
    context.agent("helper", AGENT);
    let (target, link) = (context.root().join("src"), context.home().join("link"));
    fs::create_dir_all(&target).unwrap();
    symlink(&target, &link).unwrap();
    let output = context.adjutant(["list"]).current_dir(&link).output().unwrap();
    assert_eq!(agents(&output), ["helper"]);
}

#[test]
fn a_parent_of_another_user_is_refused() {
    if !geteuid().is_root() {
        return skip("only root can give a folder to another user");
    }
    let context = TestContext::new();
    context.agent("helper", AGENT);
    chown(context.root(), Some(12_345), None).unwrap();
    let output = run_in(&context, "src", &["list"]);
    assert_eq!(output.status.code(), Some(2));
    let error = stderr(&output);
    let expected =
        format!("error: the project `{}` belongs to another user", context.root().display());
    assert!(error.starts_with(&expected), "{error}");
    let output = run_in(&context, "src", &["list", "--root", ".."]);
    assert_eq!(agents(&output), ["helper"], "named explicitly");
    assert_eq!(agents(&run_in(&context, "", &["list"])), ["helper"], "the current folder");
}

#[test_case("list")]
#[test_case("check")]
#[test_case("runs list"; "runs")]
#[test_case("sessions list"; "sessions")]
#[test_case("costs")]
#[test_case("stats")]
#[test_case("audit")]
#[test_case("events")]
#[test_case("matrix")]
#[test_case("explain --agent main --builtin Bash"; "explain")]
#[test_case("plan helper"; "plan")]
#[test_case("run helper hello"; "run")]
#[test_case("new helper"; "new")]
#[test_case("serve")]
#[test_case("gateway")]
#[test_case("token new main"; "token")]
#[test_case("trust files"; "trust")]
#[test_case("extensions list"; "extensions")]
#[test_case("auth status"; "auth")]
fn a_command_without_a_project_says_so(arguments: &str) {
    let context = TestContext::new();
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let output = run_in(&context, "../elsewhere/deep", &arguments);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("/elsewhere/deep` is not in a project; run `adjutant init`"),
        "{output:?}"
    );
    assert_empty(&context.root().join("../elsewhere/deep"));
}

#[test_case("schema", 0)]
#[test_case("completions bash", 0; "completions")]
#[test_case("--help", 0)]
#[test_case("doctor", 1)]
#[test_case("hook", 0)]
fn a_command_that_needs_no_project_creates_nothing(arguments: &str, code: i32) {
    let context = TestContext::new();
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let output = run_in(&context, "../elsewhere/deep", &arguments);
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.contains("is not in a project"), arguments == ["doctor"], "{text}");
    assert_empty(&context.root().join("../elsewhere/deep"));
}

#[test]
fn init_makes_the_current_folder_a_project_or_updates_the_one_above() {
    let context = TestContext::new();
    assert!(run_in(&context, "../elsewhere", &["init"]).status.success());
    assert!(context.root().join("../elsewhere/.mcp.json").exists());
    let output = run_in(&context, "src", &["init"]);
    assert!(
        context.root().join(".mcp.json").exists() && !context.root().join("src/.mcp.json").exists()
    );
    assert!(
        stderr(&output).starts_with(&format!("the project is `{}`\n", context.root().display())),
        "{output:?}"
    );
}

fn assert_empty(folder: &Path) {
    let found: Vec<_> = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(found.is_empty(), "{found:?}");
}
