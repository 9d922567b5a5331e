//! The real `claude`: a main agent and a native subagent that call at the same time.

use std::fs;

use serde_json::{Value, json};
use test_case::test_case;

use super::{audited, main_agent, stage, used};
use crate::gateway::faulty;
use crate::support::stage::{NEW, OLD, Stage};

const TIMES: usize = 10;

/// Which of the hooks that `init` installs are left in the settings.
#[derive(Clone, Copy, PartialEq)]
enum Hooks {
    /// All of them.
    All,
    /// Those that are processes.
    Processes,
    /// None.
    Removed,
}

fn keep(stage: &Stage, hooks: Hooks) {
    let file = stage.context.root().join(".claude/settings.json");
    let mut settings: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    match hooks {
        Hooks::All => {}
        Hooks::Processes => {
            let before = settings["hooks"]["PreToolUse"].as_array_mut().unwrap();
            before.retain(|entry| entry["hooks"][0]["type"] == "command");
            assert_eq!(before.len(), 1);
        }
        Hooks::Removed => drop(settings.as_object_mut().unwrap().remove("hooks")),
    }
    fs::write(file, settings.to_string()).unwrap();
}

/// What both agents do: the same calls, again and again.
fn calls(times: usize) -> String {
    let run = json!({"agent_name": "for-main", "prompt": "FAKE result done"});
    let execute = json!({"server": "good", "tool": "echo", "args": {"text": "x"}});
    let round =
        format!("PAR mcp__adjutant__run_subagent {run} ;; mcp__adjutant__execute_tool {execute}\n");
    round.repeat(times)
}

/// Lets both do that at once; what the main agent's stream said. The main agent ends when all calls of both are judged.
fn both(stage: &Stage, times: usize) -> String {
    let task = json!({
        "description": "review", "subagent_type": "code-reviewer", "run_in_background": true,
        "prompt": format!("{}SAY reviewed", calls(times)),
    });
    let judged = "grep -cE '\"operation\":\"(run_subagent|execute_tool)\"' data/audit.jsonl";
    let before = audited(stage, "run_subagent").len() + audited(stage, "execute_tool").len();
    let all = before + 4 * times;
    let wait = json!({ "command": format!(
        "for look in $(seq 300); do [ \"$({judged})\" -ge {all} ] && break; sleep 0.1; done") });
    let script = format!("CALL Task {task}\n{}CALL Bash {wait}\nSAY done", calls(times));
    String::from_utf8_lossy(&main_agent(stage, &script).stdout).into_owned()
}

#[test_case(NEW, Hooks::All; "new, all hooks")]
#[test_case(NEW, Hooks::Processes; "new, processes alone")]
#[test_case(OLD, Hooks::All; "old, all hooks")]
#[test_case(OLD, Hooks::Processes; "old, processes alone")]
fn c4_main_and_subagent_are_told_apart_ten_times_out_of_ten(version: &str, hooks: Hooks) {
    let Some(stage) = stage(version) else { return };
    keep(&stage, hooks);
    let told = both(&stage, TIMES);
    let transcripts = stage.context.home().join(".claude/projects");
    let of_main = used(&transcripts, "/subagents/", false);
    let of_reviewer = used(&transcripts, "/subagents/", true);
    for operation in ["run_subagent", "execute_tool"] {
        let lines = audited(&stage, operation);
        assert!(lines.iter().all(|line| line["known_by"] == "attested"), "{lines:#?}\n{told}");
        let of = |agent: &str, ids: &[String]| -> Vec<Value> {
            let is_of = |line: &&Value| ids.iter().any(|id| line["call_id"] == *id);
            let found: Vec<Value> = lines.iter().filter(is_of).cloned().collect();
            assert!(found.iter().all(|line| line["agent"] == agent), "{found:#?}");
            found
        };
        let (main, reviewer) = (of("main", &of_main), of("code-reviewer", &of_reviewer));
        assert_eq!((main.len(), reviewer.len(), lines.len()), (TIMES, TIMES, 2 * TIMES), "{told}");
        assert!(main.iter().all(|line| line["decision"] == "allow"), "{main:#?}");
        // `allowed_callers: [main]`, and a rule against it, hold for the subagent.
        assert!(reviewer.iter().all(|line| line["decision"] == "deny"), "{reviewer:#?}");
        let time = |line: &Value| line["time"].as_str().unwrap_or_default().to_owned();
        assert!(time(&reviewer[0]) < time(&main[TIMES - 1]), "one after the other");
        assert!(time(&main[0]) < time(&reviewer[TIMES - 1]), "one after the other");
    }
    let log = stage.context.root().join("data/hook.log");
    assert!(!log.exists(), "{}", fs::read_to_string(log).unwrap());
}

#[test_case(NEW)]
#[test_case(OLD)]
fn without_the_hook_both_are_main_and_required_refuses_them(version: &str) {
    let Some(stage) = stage(version) else { return };
    keep(&stage, Hooks::Removed);
    let told = both(&stage, 1);
    let lines = audited(&stage, "run_subagent");
    assert_eq!(lines.len(), 2, "{told}");
    for line in &lines {
        assert_eq!([&line["agent"], &line["known_by"]], ["main", "fallback"], "{line}");
    }
    stage.context.write("agents/defaults.yaml", "identity: required\n");
    let told = both(&stage, 1);
    for operation in ["run_subagent", "execute_tool"] {
        let lines = audited(&stage, operation);
        let refused = lines.iter().skip(lines.len() - 2);
        for line in refused {
            assert_eq!(
                [&line["decision"], &line["error"]],
                ["deny", "CALLER_NOT_ALLOWED"],
                "{told}"
            );
        }
    }
    assert!(told.contains("nothing attests who is calling"), "{told}");
}

/// Finds the call that its agent has just asked for in the transcript, which is written a little later, and says that
/// the main agent makes it.
const FORGE: &str = r#"
for look in $(seq 100); do
    id=$(cat $(find "$CLAUDE_CONFIG_DIR/projects" -path '*subagents*' -name '*.jsonl') /dev/null \
        | grep -o '"id":"toolu_[a-z0-9]*","name":"mcp__adjutant__run_subagent"' | tail -1 | cut -d'"' -f4)
    [ -n "$id" ] && break
    sleep 0.1
done
printf '{"session_id":"%s","hook_event_name":"PreToolUse","tool_name":"mcp__adjutant__run_subagent","tool_use_id":"%s"}' \
    "$CLAUDE_CODE_SESSION_ID" "$id" | ADJUTANT hook
echo "forged $id"
"#;

#[test_case(NEW, Hooks::All; "new, all hooks")]
#[test_case(OLD, Hooks::Processes; "old, processes alone")]
fn c3_a_native_subagent_with_a_shell_cannot_become_main(version: &str, hooks: Hooks) {
    let Some(stage) = stage(version) else { return };
    keep(&stage, hooks);
    let command = FORGE.replace("ADJUTANT", env!("CARGO_BIN_EXE_adjutant"));
    let run = json!({"agent_name": "for-main", "prompt": "FAKE result done"});
    let script = format!(
        "PAR Bash {} ;; mcp__adjutant__run_subagent {run}\nSAY tried",
        json!({ "command": command })
    );
    let task = json!({
        "description": "review", "subagent_type": "code-reviewer", "prompt": script, "run_in_background": false,
    });
    let output = main_agent(&stage, &format!("CALL Task {task}\nSAY done"));
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(told.contains("forged toolu_"), "the attack was made: {told}");
    let lines = audited(&stage, "run_subagent");
    assert_eq!(lines.len(), 1, "{told}");
    assert_eq!([&lines[0]["decision"], &lines[0]["error"]], ["deny", "IDENTITY_MISMATCH"]);
    let why = "two attestations of this call contradict each other";
    assert_eq!(lines[0]["reason"], why, "{}", lines[0]);
}

/// The gateway is all that Claude Code started, under a name of its user's choice.
fn gateway_stage(version: &str) -> Option<Stage> {
    let stage = Stage::new(version)?;
    stage.context.write(
        ".claude/agents/code-reviewer.md",
        "---\nname: code-reviewer\ndescription: Reviews code\n---\nYou review.\n",
    );
    stage.context.write(
        ".mcp-gateway-rules.json",
        r#"{"agents": {"main": {"allow": {"servers": ["good"]}}, "code-reviewer": {"allow": {"servers": ["good"]}}}}"#,
    );
    let behind = json!({ "mcpServers": { "good": { "command": faulty() } } });
    stage.context.write("behind.json", behind.to_string());
    let gateway = json!({
        "command": env!("CARGO_BIN_EXE_adjutant"), "args": ["gateway"],
        "env": { "GATEWAY_MCP_CONFIG": "behind.json" },
    });
    let servers = |servers: Value| json!({ "mcpServers": servers }).to_string();
    stage.context.write(".mcp.json", servers(json!({ "tools": gateway })));
    assert!(stage.context.run(["init"]).status.success());
    stage.context.write(".mcp.json", servers(json!({ "tools": gateway })));
    Some(stage)
}

#[test_case(NEW, Hooks::All; "new, all hooks")]
#[test_case(OLD, Hooks::Processes; "old, processes alone")]
fn the_gateway_alone_tells_them_apart_too(version: &str, hooks: Hooks) {
    let Some(stage) = gateway_stage(version) else { return };
    keep(&stage, hooks);
    let call = |arguments: &Value| format!("CALL mcp__tools__execute_tool {arguments}\n");
    let mut execute = json!({"server": "good", "tool": "echo", "args": {"text": "x"}});
    let mut scripts = call(&execute);
    execute["agent_id"] = "main".into();
    scripts.push_str(&call(&execute));
    let task = json!({
        "description": "review", "subagent_type": "code-reviewer", "prompt": format!("{scripts}SAY reviewed"),
        "run_in_background": false,
    });
    let output = main_agent(&stage, &format!("CALL Task {task}\n{scripts}SAY done"));
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = audited(&stage, "execute_tool");
    let said: Vec<[&str; 4]> = lines
        .iter()
        .map(|line| {
            ["agent", "known_by", "decision", "error"].map(|key| line[key].as_str().unwrap_or(""))
        })
        .collect();
    let expected = [
        ["code-reviewer", "attested", "allow", ""],
        ["code-reviewer", "attested", "deny", "IDENTITY_MISMATCH"],
        ["main", "attested", "allow", ""],
        ["main", "attested", "allow", ""],
    ];
    assert_eq!(said, expected, "{told}");
}
