//! Processes that waited and then do not answer as they should, with the fake `claude`: in doubt, cold.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use test_case::test_case;

use crate::support::TestContext;
use crate::support::fake::fake_claude;
use crate::support::mcp::{McpClient, text};
use crate::support::waiting::{ask, gone, one_waits, pids, waiting};

/// A warm one has never seen a prompt; a live one has a conversation.
#[derive(Clone, Copy)]
enum Kind {
    Warm,
    Live,
}

/// A server with a process that waits for the next call.
struct House {
    context: TestContext,
    server: McpClient,
    waits: u64,
    /// How many runs there were before.
    runs: usize,
}

impl House {
    fn new(kind: Kind, settings: &str) -> Self {
        let context = TestContext::new();
        let way = match kind {
            Kind::Warm => "warm: 1",
            Kind::Live => "session: true",
        };
        let file = format!("---\nname: helper\ndescription: Helps\n{way}\n{settings}---\nHelp.\n");
        context.agent("helper", &file);
        let mut command = context.adjutant(["serve"]);
        command.env("ADJUTANT_CLAUDE", fake_claude());
        let mut server = McpClient::connect(command);
        let runs = match kind {
            Kind::Warm => 0,
            Kind::Live => {
                ask(&mut server, "helper", "FAKE result first");
                1
            }
        };
        let waits = one_waits(&context);
        Self { context, server, waits, runs }
    }

    fn mark(&self) -> PathBuf {
        self.context.root().join("done-once")
    }

    fn once(&self, fault: &str) -> String {
        format!("FAKE once {} {fault}", self.mark().display())
    }

    /// The processes of the last call.
    fn used(&self, count: usize) -> Vec<u64> {
        pids(&self.context.root(), self.runs + count).split_off(self.runs)
    }

    fn fails(&mut self, prompt: &str) -> Value {
        let call = json!({ "agent_name": "helper", "prompt": prompt });
        let answer = self.server.call("run_subagent", call);
        assert_eq!(answer["isError"], true, "{answer}");
        assert!(text(&answer).starts_with("CLAUDE_FAILED: "), "{answer}");
        answer
    }
}

#[test_case(Kind::Warm, "crash"; "a warm one dies")]
#[test_case(Kind::Live, "crash"; "a live one dies")]
#[test_case(Kind::Warm, "no-result"; "a warm one ends")]
#[test_case(Kind::Live, "torn-line"; "a live one breaks off in a line")]
#[test_case(Kind::Warm, "wrong-session"; "a warm one answers for another session")]
#[test_case(Kind::Live, "wrong-session"; "a live one answers for another session")]
#[test_case(Kind::Warm, "late-result old"; "a warm one gives a result before its turn")]
#[test_case(Kind::Live, "late-result old"; "a live one gives the late result of an earlier turn")]
fn what_is_odd_is_thrown_away_and_the_call_repeated_cold(kind: Kind, fault: &str) {
    let mut house = House::new(kind, "");
    let prompt = format!("{}\nFAKE result right", house.once(fault));
    let answer = ask(&mut house.server, "helper", &prompt);
    assert_eq!(answer["result"], "right", "{answer}");
    assert_eq!(fs::read_to_string(house.mark()).unwrap(), house.waits.to_string());
    let used = house.used(2);
    assert_eq!((used[0], used.len()), (house.waits, 2), "the one that waited, and one more");
    assert_ne!(used[1], house.waits);
    gone(house.waits);
    if let Kind::Live = kind {
        let recalled = ask(&mut house.server, "helper", "FAKE recall");
        assert_eq!(recalled["session_id"], answer["session_id"], "the conversation went on");
        assert!(recalled["result"].as_str().unwrap().starts_with("FAKE result first|"));
    }
}

#[test_case(Kind::Warm)]
#[test_case(Kind::Live)]
fn a_call_is_repeated_once(kind: Kind) {
    let mut house = House::new(kind, "");
    house.fails("FAKE crash");
    assert_eq!(house.used(2).len(), 2);
}

#[test_case(Kind::Warm, "tool"; "warm, the tool has run")]
#[test_case(Kind::Live, "tool"; "live, the tool has run")]
#[test_case(Kind::Warm, "tool-begun"; "warm, it died while the tool ran")]
#[test_case(Kind::Live, "tool-begun"; "live, it died while the tool ran")]
fn nothing_is_repeated_after_a_tool_was_asked_for(kind: Kind, tool: &str) {
    let mut house = House::new(kind, "");
    let prompt = format!("FAKE {tool} Bash\n{}\nFAKE result twice", house.once("crash"));
    house.fails(&prompt);
    assert_eq!(house.used(1), [house.waits]);
}

/// A frame that comes while nobody waits for one: whoever sent it gets no call.
#[test]
fn a_warm_process_that_speaks_unasked_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("spoke");
    let settings = format!("env: {{ FAKE_CLAUDE: \"once {} stray-result\" }}\n", mark.display());
    let mut house = House::new(Kind::Warm, &settings);
    let odd: u64 = fs::read_to_string(&mark).unwrap().parse().unwrap();
    gone(odd);
    assert!(waiting(&house.context).iter().all(|card| card["pid"] != odd));
    assert_eq!(ask(&mut house.server, "helper", "FAKE result right")["result"], "right");
    assert_ne!(house.used(1), [odd]);
}

#[test]
fn a_live_process_that_speaks_after_its_turn_is_not_used() {
    let mut house = House::new(Kind::Live, "");
    let first = ask(&mut house.server, "helper", "FAKE result right\nFAKE stale-result");
    assert_eq!(first["result"], "right", "{first}");
    gone(house.waits);
    let second = ask(&mut house.server, "helper", "FAKE result second");
    assert_eq!(
        (&second["result"], &second["session_id"]),
        (&json!("second"), &first["session_id"])
    );
    assert!(!house.used(2).ends_with(&[house.waits]));
}
