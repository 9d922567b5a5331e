use std::time::Duration;

use super::*;
use test_case::test_case;

fn hook(on_failure: OnFailure) -> UserHook {
    UserHook {
        event: "PreToolUse".to_owned(),
        matcher: None,
        command: "./check.sh".to_owned(),
        timeout: Duration::from_secs(5),
        on_failure,
    }
}

fn command_output(code: i32, stdout: &str, stderr: &str) -> CommandOutput {
    CommandOutput {
        end: CommandEnd::Exited(ProcessEnd::Exited(code)),
        stdout: stdout.to_owned(),
        stderr: stderr.to_owned(),
    }
}

fn effect(said: CommandOutput) -> HookEffect {
    parse_result(&hook(OnFailure::Block), Ok(said)).effect
}

#[test_case("" => HookEffect::NoObjection)]
#[test_case("all is well" => HookEffect::NoObjection)]
#[test_case(r#"{"hookSpecificOutput":{"permissionDecision":"allow"}}"# => HookEffect::NoObjection; "allow grants nothing")]
#[test_case(r#"{"decision":"approve"}"# => HookEffect::NoObjection)]
#[test_case(r#"{"hookSpecificOutput":{"permissionDecision":"deny","permissionDecisionReason":"no"}}"# => HookEffect::Block("no".to_owned()))]
#[test_case(r#"{"hookSpecificOutput":{"permissionDecision":"ask","permissionDecisionReason":"hm"}}"# => HookEffect::Ask("hm".to_owned()))]
#[test_case(r#"{"decision":"block","reason":"old form"}"# => HookEffect::Block("old form".to_owned()))]
#[test_case(r#"{"continue":false,"stopReason":"enough"}"# => HookEffect::Stop("enough".to_owned()))]
#[test_case(r#"{"hookSpecificOutput":{"decision":{"behavior":"deny","message":"not you"}}}"# => HookEffect::Block("not you".to_owned()); "as for a permission request")]
fn decisions_are_parsed(stdout: &str) -> HookEffect {
    effect(command_output(0, stdout, ""))
}

#[test]
fn exit_2_blocks_with_its_stderr() {
    assert_eq!(
        effect(command_output(2, "{}", "not on a Friday\n")),
        HookEffect::Block("not on a Friday".to_owned())
    );
}

#[test]
fn a_failing_hook_blocks_unless_on_failure_is_allow() {
    let broken = [
        command_output(1, "", "oops"),
        command_output(0, "{\"decision\": \"blo", ""),
        CommandOutput { end: CommandEnd::TimedOut, ..command_output(0, "", "") },
    ];
    for said in broken {
        assert!(
            matches!(effect(said.clone()), HookEffect::Block(reason) if reason.contains("./check.sh"))
        );
        assert_eq!(parse_result(&hook(OnFailure::Allow), Ok(said)).effect, HookEffect::NoObjection);
    }
}

#[test]
fn the_strictest_hook_wins_and_contexts_are_joined() {
    let answer =
        |stdout: &str| parse_result(&hook(OnFailure::Block), Ok(command_output(0, stdout, "")));
    let answers = vec![
        answer(
            r#"{"hookSpecificOutput":{"permissionDecision":"allow","additionalContext":"one"}}"#,
        ),
        answer(
            r#"{"hookSpecificOutput":{"permissionDecision":"deny","permissionDecisionReason":"no"}}"#,
        ),
        answer(r#"{"hookSpecificOutput":{"permissionDecision":"ask","additionalContext":"two"}}"#),
    ];
    let all = HookResult::combine(answers);
    assert_eq!(all.clone().decision(), HookDecision::Deny { reason: "no".to_owned() });
    assert_eq!(
        all.output("PostToolUse"),
        json!({
            "decision": "block", "reason": "no",
            "hookSpecificOutput": { "hookEventName": "PostToolUse", "additionalContext": "one\ntwo" },
        })
    );
}
