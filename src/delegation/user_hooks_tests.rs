use std::time::Duration;

use super::*;
use test_case::test_case;

fn hook(on_failure: OnFailure) -> Hook {
    Hook {
        event: "PreToolUse".to_owned(),
        matcher: None,
        command: "./check.sh".to_owned(),
        timeout: Duration::from_secs(5),
        on_failure,
    }
}

fn said(code: i32, stdout: &str, stderr: &str) -> Said {
    Said {
        end: BriefEnd::Ended(ProcessEnd::Exited(code)),
        stdout: stdout.to_owned(),
        stderr: stderr.to_owned(),
    }
}

fn wish(said: Said) -> Wish {
    read_answer(&hook(OnFailure::Block), Ok(said)).wish
}

#[test_case("" => Wish::Nothing)]
#[test_case("all is well" => Wish::Nothing)]
#[test_case(r#"{"hookSpecificOutput":{"permissionDecision":"allow"}}"# => Wish::Nothing; "allow grants nothing")]
#[test_case(r#"{"decision":"approve"}"# => Wish::Nothing)]
#[test_case(r#"{"hookSpecificOutput":{"permissionDecision":"deny","permissionDecisionReason":"no"}}"# => Wish::Block("no".to_owned()))]
#[test_case(r#"{"hookSpecificOutput":{"permissionDecision":"ask","permissionDecisionReason":"hm"}}"# => Wish::Ask("hm".to_owned()))]
#[test_case(r#"{"decision":"block","reason":"old form"}"# => Wish::Block("old form".to_owned()))]
#[test_case(r#"{"continue":false,"stopReason":"enough"}"# => Wish::Stop("enough".to_owned()))]
#[test_case(r#"{"hookSpecificOutput":{"decision":{"behavior":"deny","message":"not you"}}}"# => Wish::Block("not you".to_owned()); "as for a permission request")]
fn decisions(stdout: &str) -> Wish {
    wish(said(0, stdout, ""))
}

#[test]
fn exit_2_blocks_with_its_stderr() {
    assert_eq!(wish(said(2, "{}", "not on a Friday\n")), Wish::Block("not on a Friday".to_owned()));
}

#[test]
fn a_failure_blocks_unless_it_may_not() {
    let broken = [
        said(1, "", "oops"),
        said(0, "{\"decision\": \"blo", ""),
        Said { end: BriefEnd::TimedOut, ..said(0, "", "") },
    ];
    for said in broken {
        assert!(matches!(wish(said.clone()), Wish::Block(reason) if reason.contains("./check.sh")));
        assert_eq!(read_answer(&hook(OnFailure::Allow), Ok(said)).wish, Wish::Nothing);
    }
}

#[test]
fn the_strictest_of_several_counts_and_what_is_told_is_told_together() {
    let answer = |stdout: &str| read_answer(&hook(OnFailure::Block), Ok(said(0, stdout, "")));
    let answers = vec![
        answer(
            r#"{"hookSpecificOutput":{"permissionDecision":"allow","additionalContext":"one"}}"#,
        ),
        answer(
            r#"{"hookSpecificOutput":{"permissionDecision":"deny","permissionDecisionReason":"no"}}"#,
        ),
        answer(r#"{"hookSpecificOutput":{"permissionDecision":"ask","additionalContext":"two"}}"#),
    ];
    let all = Together::of(answers);
    assert_eq!(all.clone().verdict(), HookVerdict::Deny { reason: "no".to_owned() });
    assert_eq!(
        all.output("PostToolUse"),
        json!({
            "decision": "block", "reason": "no",
            "hookSpecificOutput": { "hookEventName": "PostToolUse", "additionalContext": "one\ntwo" },
        })
    );
}
