//! What an author reads when an agent is refused something, and what nobody has to wait for.

use serde_json::Value;
use test_case::test_case;

use crate::support::TestContext;
use crate::support::fake::fake_claude;
use crate::support::stage::report;

/// `adjutant run helper PROMPT --json`, for an agent with these settings besides its name.
fn run(settings: &str, prompt: &str) -> Value {
    let context = TestContext::new();
    let text = format!("---\nname: helper\ndescription: Helps\n{settings}\n---\nYou help.\n");
    context.agent("helper", &text);
    let mut command = context.adjutant(["run", "helper", prompt, "--json"]);
    report(&command.env("ADJUTANT_CLAUDE", fake_claude()).output().expect("it runs"))
}

#[test_case("permissions: {ask: [\"Edit(notes/**)\"], allow: [\"Edit\"]}", "FAKE ask Edit {\"file_path\":\"x\"}",
    "`Edit(notes/**)` in `permissions.ask`"; "a person would have to be asked")]
#[test_case("permissions: {allow: [\"Bash(curl:*)\"]}", "FAKE ask Bash {\"command\":\"rm x\"}",
    "no rule for `Bash` in `permissions.allow`"; "no rule and no suggestion")]
fn a_refusal_names_the_rule_to_agent_and_caller(settings: &str, prompt: &str, rule: &str) {
    let report = run(settings, prompt);
    let told_agent = report["result"].as_str().unwrap();
    let told_caller = report["denials"][0]["rule"].as_str().unwrap();
    assert!(told_agent.contains(rule), "{told_agent}");
    assert!(told_agent.contains("nobody can be asked"), "{told_agent}");
    assert!(told_caller.contains(rule), "{told_caller}");
}

#[test_case("env: {KEY: \"${ADJUTANT_TEST_UNSET}\"}",
    "`env.KEY` of agent `helper` needs the variable `ADJUTANT_TEST_UNSET`, which is not set. \
     Set it where Adjutant is started, or write `${ADJUTANT_TEST_UNSET:-a default}` in "; "an unset variable")]
#[test_case("cwd: ./nowhere", "the working folder `./nowhere` of agent `helper` cannot be used"; "no such folder")]
fn what_cannot_start_says_so_once_and_starts_nothing(settings: &str, says: &str) {
    let report = run(settings, "hello");
    assert_eq!(report["code"], "SPAWN_FAILED", "{report}");
    let error = report["error"].as_str().unwrap();
    assert!(error.contains(says) && error.contains("agent.md"), "{error}");
    assert_eq!(report.get("turns"), None, "{report}");
}

#[test]
fn a_default_takes_the_place_of_an_unset_variable() {
    let report = run("env: {KEY: \"${ADJUTANT_TEST_UNSET:-plum}\"}", "FAKE report");
    let told = report["result"].as_str().unwrap();
    assert!(told.contains("KEY"), "{told}");
}
