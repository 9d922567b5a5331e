//! `adjutant demo` and `adjutant doctor`, as in the README.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use serde_json::json;

use crate::gateway::faulty;
use crate::support::TestContext;
use crate::support::claude_context::{ClaudeContext, NEW};
use crate::support::text::mask;

#[test]
fn the_demo_delegates_with_the_real_claude_and_without_an_account() {
    let Some(fixture) = ClaudeContext::new(NEW) else { return };
    let mut command = fixture.context.adjutant(["demo"]);
    let output = command.env("ADJUTANT_CLAUDE", &fixture.claude).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    for line in [
        "scripted, on this machine",
        "denied: Permission to use Bash with command curl",
        "→ run_subagent(web-search)",
        "web-search   ",
        "\"hook_event_name\":\"RunEnded\"",
        "It worked: `main` could not fetch the page, `web-search` could",
        "adjutant init",
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
}

/// A `PATH` with a shell and `curl`, but without `claude` and npm.
fn bare_path(context: &TestContext) -> PathBuf {
    let bin = context.home().join("bin");
    fs::create_dir_all(&bin).unwrap();
    for name in ["sh", "curl"] {
        let found = std::env::split_paths(&std::env::var_os("PATH").unwrap())
            .map(|f| f.join(name))
            .find(|p| p.exists());
        symlink(found.expect("it is installed"), bin.join(name)).unwrap();
    }
    bin
}

#[test]
fn without_claude_and_npm_the_demo_uses_a_stand_in_and_says_so() {
    let context = TestContext::new();
    let output = context.adjutant(["demo"]).env("PATH", bare_path(&context)).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("STAND-IN") && said.contains("npm is not there"), "{said}");
    assert!(said.contains("It worked"), "{said}");
}

#[test]
fn the_stand_in_works_if_the_path_of_adjutant_has_quotes() {
    let context = TestContext::new();
    let folder =
        tempfile::Builder::new().prefix("it's \"$HOME\"").tempdir_in(env!("CARGO_TARGET_TMPDIR"));
    let folder = folder.unwrap();
    let program = folder.path().join("adjutant");
    fs::hard_link(env!("CARGO_BIN_EXE_adjutant"), &program).unwrap();
    let mut command = Command::new(program);
    command.arg("demo").current_dir(context.root()).env_clear();
    command.env("PATH", bare_path(&context)).env("HOME", context.home());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("STAND-IN") && said.contains("It worked"), "{said}");
}

#[test]
fn doctor_live_makes_a_round_trip_and_prints_no_secret() {
    let Some(fixture) = ClaudeContext::new(NEW) else { return };
    let output = fixture.adjutant(["doctor", "--live"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("version 2.1.325") && said.contains("the variable ANTHROPIC_API_KEY"),
        "{said}"
    );
    assert!(said.contains("ok    live") && !said.contains("sk-ant-scripted"), "{said}");
}

#[test]
fn doctor_checks_servers_and_starts_them_only_with_live() {
    let context = TestContext::new();
    let servers = json!({
        "good": { "command": "/bin/sh", "args": ["-c", "touch started; exec \"$0\"", faulty()] },
        "gone": { "command": "no-such-program" },
        "unset": { "command": "sh", "env": { "TOKEN": "${NOBODY_SETS_THIS}" } },
    });
    context.write(".mcp.json", json!({ "mcpServers": servers }).to_string());
    let own = "mcp_servers:\n  - name: own\n    command: nor-this";
    context.write(
        "agents/helper/agent.md",
        format!("---\nname: helper\ndescription: d\n{own}\n---\nx\n"),
    );
    let ask = |mut command: Command| {
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let said = ask(context.adjutant(["doctor"]));
    insta::assert_snapshot!(mask(&said), @r"
    BAD   claude       `claude` is not on the PATH
                       → install it with `npm install -g @anthropic-ai/claude-code`, or name one in ADJUTANT_CLAUDE
    warn  credentials  none were found in the environment or in Claude Code's folder
                       → run `claude` once and sign in, or set ANTHROPIC_API_KEY (a keychain cannot be seen from here)
    ok    project      `[ROOT]`
    ok    agents       1 can be called
    ok    data         `[ROOT]/data` will be made when it is needed
    warn  registered   Claude Code does not know this server here
                       → run `adjutant init`
    ok    servers      can be started: good
    warn  server       `gone`: there is no program `no-such-program`
                       → mend its entry, or what it needs; calls to it are SERVER_UNAVAILABLE until then
    warn  server       `unset`: the variable `NOBODY_SETS_THIS` is not set; set it, or write `${NOBODY_SETS_THIS:-a default}`
                       → mend its entry, or what it needs; calls to it are SERVER_UNAVAILABLE until then
    warn  server       `own of helper`: there is no program `nor-this`
                       → mend its entry, or what it needs; calls to it are SERVER_UNAVAILABLE until then
    ");
    assert!(!context.root().join("started").exists());
    let said = ask(context.adjutant(["doctor", "--live"]));
    insta::assert_snapshot!(mask(&said), @r"
    BAD   claude       `claude` is not on the PATH
                       → install it with `npm install -g @anthropic-ai/claude-code`, or name one in ADJUTANT_CLAUDE
    warn  credentials  none were found in the environment or in Claude Code's folder
                       → run `claude` once and sign in, or set ANTHROPIC_API_KEY (a keychain cannot be seen from here)
    ok    project      `[ROOT]`
    ok    agents       1 can be called
    ok    data         `[ROOT]/data` will be made when it is needed
    warn  registered   Claude Code does not know this server here
                       → run `adjutant init`
    ok    servers      answer: good (38 tools)
    warn  server       `gone`: there is no program `no-such-program`
                       → mend its entry, or what it needs; calls to it are SERVER_UNAVAILABLE until then
    warn  server       `unset`: the variable `NOBODY_SETS_THIS` is not set; set it, or write `${NOBODY_SETS_THIS:-a default}`
                       → mend its entry, or what it needs; calls to it are SERVER_UNAVAILABLE until then
    warn  server       `own of helper`: there is no program `nor-this`
                       → mend its entry, or what it needs; calls to it are SERVER_UNAVAILABLE until then
    BAD   live         `claude` is not on the PATH
                       → install it with `npm install -g @anthropic-ai/claude-code`, or name one in ADJUTANT_CLAUDE
    ");
    assert!(context.root().join("started").exists());
}

#[test]
fn doctor_names_what_is_missing() {
    let context = TestContext::new();
    let output = context.adjutant(["doctor"]).env("PATH", "/nowhere").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    insta::assert_snapshot!(mask(&said), @r"
    BAD   claude       `claude` is not on the PATH
                       → install it with `npm install -g @anthropic-ai/claude-code`, or name one in ADJUTANT_CLAUDE
    warn  credentials  none were found in the environment or in Claude Code's folder
                       → run `claude` once and sign in, or set ANTHROPIC_API_KEY (a keychain cannot be seen from here)
    ok    project      `[ROOT]`
    warn  agents       there are none
                       → make one with `adjutant new NAME`
    ok    data         `[ROOT]/data` will be made when it is needed
    warn  registered   Claude Code does not know this server here
                       → run `adjutant init`
    ");
}
