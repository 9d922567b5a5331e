//! `adjutant explain --call`: where it decides, the real `claude` decides the same.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use serde_json::{Value, json};
use test_case::test_case;

use crate::support::claude_context::{ClaudeContext, NEW, OLD};

/// Permissions of an agent, and calls of which each has its expected answer: `yes`, `no`, or `?` for undetermined.
struct Case {
    permissions: &'static str,
    calls: &'static str,
}

const CASES: &[Case] = &[
    Case {
        permissions: "allow: [\"Bash(git log:*)\", \"Bash(cargo build)\", \"Bash(make *)\", \"Bash(npm run*)\", \
            \"Bash(* --fast)\", \"Bash(a * c)\", \"Bash(mkdir:*)\", \"Bash(python3 *)\", \"Bash(foo  bar)\"]",
        calls: "
            yes Bash(git log)
            yes Bash(git log --oneline)
            yes Bash(git log --output=F)
            yes Bash(git  log)
            no  Bash(git push)
            no  Bash(git commit -m x)
            no  Bash(git pull origin)
            no  Bash(git reset --hard)
            ?   Bash(git status)
            ?   Bash(git -C sub log)
            yes Bash(cargo build)
            no  Bash(cargo build --release)
            no  Bash(cargo test)
            yes Bash(make)
            yes Bash(make all)
            yes Bash(make all x)
            no  Bash(makex)
            yes Bash(npm run)
            yes Bash(npm run x)
            yes Bash(npm runx)
            no  Bash(npm test)
            yes Bash(node --fast)
            no  Bash(node --fast x)
            no  Bash(--fast)
            yes Bash(a b c)
            no  Bash(a c)
            yes Bash(a b b c)
            no  Bash(a b c d)
            yes Bash(mkdir d)
            ?   Bash(mkdir /tmp/adjutant-outside)
            ?   Bash(mkdir ../adjutant-outside)
            yes Bash(python3 -c 1)
            yes Bash(python3 /nowhere)
            no  Bash(python2 x)
            no  Bash(foo bar)
            no  Bash(touch t)
            no  Bash(node -e 1)
            no  Bash(curl http://127.0.0.1:1)
            no  Bash(rm a.txt)
            no  Bash(/bin/echo a)
            ?   Bash(ls)
            ?   Bash(echo a)
            ?   Bash(cat /etc/passwd)
            ?   Bash(env make)
            ?   Bash(timeout 5 make)
            ?   Bash(X=1 make)
            ?   Bash(make && make)
            ?   Bash(make; make)
            ?   Bash(make | make)
            ?   Bash(make $(make))
            ?   Bash(make > x)
            ?   Bash((make))
            no  Write(b.txt)
            no  WebSearch(x)
        ",
    },
    Case {
        permissions: "allow: [Bash], deny: [\"Bash(rm:*)\", \"Bash(git push:*)\", \"Bash(curl *)\"]",
        calls: "
            no  Bash(rm x)
            no  Bash(rm)
            yes Bash(rmdir x)
            no  Bash(git push)
            no  Bash(git push origin)
            no  Bash(git  push)
            yes Bash(git -C . push)
            yes Bash(git pull)
            no  Bash(curl)
            no  Bash(curl x)
            yes Bash(curlx)
            yes Bash(mkdir e)
            yes Bash(nothing at all)
            ?   Bash(\"rm\" x)
            ?   Bash(r\\m x)
            ?   Bash(X=1 rm x)
            ?   Bash(touch .claude/x)
            ?   Bash(true && rm x)
        ",
    },
    Case {
        permissions: "allow: [\"Bash(git:*)\"], ask: [\"Bash(git push:*)\"], deny: [\"Bash(git reset:*)\"]",
        calls: "
            no  Bash(git reset)
            no  Bash(git reset --hard)
            yes Bash(git commit -m x)
            yes Bash(git add .)
            no  Bash(gitx)
            no  Bash(hg commit)
            ?   Bash(git push)
            ?   Bash(git commit -m \"a b\")
        ",
    },
    Case {
        permissions: "allow: [WebFetch, Write], deny: [\"WebFetch(domain:example.com)\"]",
        calls: "
            no  WebFetch(domain:example.com)
            no  WebFetch(https://example.com/page)
            yes WebFetch(https://example.org/)
            yes Write(new.txt)
            no  Bash(make)
        ",
    },
];

fn agent_file(permissions: &str) -> String {
    format!(
        "---\nname: shell\ndescription: Has tools\npermissions: {{ {permissions} }}\n---\nYou work.\n"
    )
}

/// Input of the tool for a call in the syntax of a permission rule.
fn tool_input(fixture: &ClaudeContext, call: &str) -> (String, Value) {
    let (tool, rest) = call.split_once('(').unwrap();
    let argument = rest.strip_suffix(')').unwrap();
    let input = match tool {
        "Bash" => json!({ "command": argument }),
        "Write" => json!({ "file_path": fixture.context.root().join(argument), "content": "x" }),
        "WebFetch" => {
            let url = match argument.strip_prefix("domain:") {
                Some(domain) => format!("https://{domain}/"),
                None => argument.to_owned(),
            };
            json!({ "url": url, "prompt": "x" })
        }
        _ => json!({ "query": argument }),
    };
    (tool.to_owned(), input)
}

/// Lets the agent make all calls, and returns the inputs of those that were denied.
fn denied_inputs(fixture: &ClaudeContext, calls: &[(String, Value)]) -> BTreeSet<String> {
    let mut script = String::new();
    for (tool, input) in calls {
        writeln!(script, "CALL {tool} {input}").unwrap();
    }
    let report = fixture.run("shell", &script);
    assert_eq!(report.get("error"), None, "{report:#}");
    let file = fixture.context.root().join("data/events.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    let events: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|event: &Value| event["run_id"] == report["run_id"])
        .collect();
    let is_denial = |event: &Value| match event["hook_event_name"].as_str().unwrap() {
        "PermissionDenied" => true,
        // Claude Code's own `deny` rules, and tools that do not exist for the agent, end as failures of the tool.
        "PostToolUseFailure" => {
            let error = event["error"].as_str().unwrap_or_default();
            error.contains("has been denied")
                || error.contains("denied access")
                || error.contains("No such tool")
        }
        _ => false,
    };
    let denied: BTreeSet<&str> = events
        .iter()
        .filter(|event| is_denial(event))
        .filter_map(|event| event["tool_use_id"].as_str())
        .collect();
    let requested = events.iter().filter(|event| event["hook_event_name"] == "PreToolUse");
    let mut inputs: BTreeSet<String> = requested
        .clone()
        .filter(|event| denied.contains(event["tool_use_id"].as_str().unwrap_or_default()))
        .map(|event| format!("{} {}", event["tool_name"].as_str().unwrap(), event["tool_input"]))
        .collect();
    let seen: BTreeSet<String> = requested
        .map(|event| format!("{} {}", event["tool_name"].as_str().unwrap(), event["tool_input"]))
        .collect();
    // A tool that the agent does not have never becomes a call.
    inputs.extend(
        calls
            .iter()
            .map(|(tool, input)| format!("{tool} {input}"))
            .filter(|call| !seen.contains(call)),
    );
    inputs
}

#[test_case(NEW)]
#[test_case(OLD)]
fn answers_about_calls_agree_with_the_real_claude(version: &str) {
    let Some(fixture) = ClaudeContext::new(version) else { return };
    fs::create_dir_all(fixture.context.root().join("sub")).unwrap();
    fixture.context.write("a.txt", "x");
    let mut decided = 0;
    for Case { permissions, calls } in CASES {
        fixture.context.agent("shell", &agent_file(permissions));
        let rows: Vec<(&str, &str)> = calls
            .lines()
            .filter_map(|line| line.trim().split_once(' '))
            .map(|(answer, call)| (answer, call.trim()))
            .collect();
        let inputs: Vec<_> = rows.iter().map(|(_, call)| tool_input(&fixture, call)).collect();
        let denied = denied_inputs(&fixture, &inputs);
        for ((expected, call), (tool, input)) in rows.iter().zip(&inputs) {
            let explained = fixture.context.run(["explain", "--agent", "shell", "--call", call]);
            let answer = match explained.status.code() {
                Some(0) => "yes",
                Some(1) => "no",
                _ => "?",
            };
            let text = String::from_utf8_lossy(&explained.stdout).into_owned();
            assert_eq!(answer, *expected, "{call} with {permissions}: {text}");
            if answer != "?" {
                decided += 1;
                let runs = if denied.contains(&format!("{tool} {input}")) { "no" } else { "yes" };
                assert_eq!(answer, runs, "{call} in {version} with {permissions}: {text}");
            }
        }
    }
    assert!(decided >= 60, "{decided} calls were decided");
}
