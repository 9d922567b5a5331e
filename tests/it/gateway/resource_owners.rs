//! Lookup of the server that owns a resource: which servers are asked or started for it.

use serde_json::{Value, json};

use super::{GatewayContext, call_tool_text, execute, faulty};
use crate::support::mcp::McpClient;

/// Servers that log the methods they receive.
///
/// Each has `faulty://<name>`, `faulty://<name>/{id}` and a resource per line of the file `listed-<name>`.
fn recording_servers(names: &[&str]) -> GatewayContext {
    let entry = |name: &&str| {
        ((*name).to_owned(), json!({ "command": faulty(), "args": ["records", name] }))
    };
    let fixture =
        GatewayContext::new(&names.iter().map(entry).collect::<serde_json::Map<_, _>>().into());
    fixture.rules(
        r#"{"agents": {"dev": {"allow": {"servers": ["*"]}}, "guest": {"allow": {"servers": ["a"]}}}}"#,
    );
    fixture
}

impl GatewayContext {
    /// Number of requests of this method to a server; 0 if it was never started.
    fn request_count(&self, server: &str, method: &str) -> usize {
        let asked = std::fs::read_to_string(self.context.root().join(format!("asked-{server}")));
        asked.unwrap_or_default().lines().filter(|line| *line == method).count()
    }

    /// Number of starts of each server that was started.
    fn start_counts(&self) -> Vec<(&'static str, usize)> {
        let starts =
            ["a", "b", "c"].map(|server| (server, self.request_count(server, "initialize")));
        starts.into_iter().filter(|(_, starts)| *starts > 0).collect()
    }

    /// Servers from which resources were read, in order.
    fn read_servers(&self) -> Vec<String> {
        let entries = self.context.audit_entries().into_iter();
        let reads = entries.filter(|line| line["operation"] == "resources/read");
        reads.map(|line| line["server"].as_str().unwrap_or("none").to_owned()).collect()
    }
}

fn read(client: &mut McpClient, agent: &str, uri: &str) -> Value {
    let params = json!({ "uri": uri, "_meta": { "agent_id": agent } });
    client.request("resources/read", params)
}

#[track_caller]
fn assert_read(client: &mut McpClient, uri: &str) {
    let contents = json!([{ "uri": uri, "text": "the content", "extra": 1 }]);
    assert_eq!(read(client, "dev", uri)["contents"], contents);
}

#[test]
fn defect_25_reading_a_resource_of_a_running_server_starts_no_other() {
    let fixture = recording_servers(&["a", "b", "c"]);
    let mut client = fixture.connect();
    call_tool_text(&mut client, "b", "pid");
    assert_read(&mut client, "faulty://b");
    assert_read(&mut client, "faulty://b/7");
    assert_eq!(fixture.start_counts(), [("b", 1)]);
}

#[test]
fn defect_25_servers_are_started_in_order_until_one_has_the_resource() {
    let fixture = recording_servers(&["a", "b", "c"]);
    let mut client = fixture.connect();
    assert_read(&mut client, "faulty://a");
    assert_eq!(fixture.start_counts(), [("a", 1)]);
    assert_read(&mut client, "faulty://b/7");
    assert_eq!(fixture.start_counts(), [("a", 1), ("b", 1)]);
}

#[test]
fn defect_25_lists_are_read_once_until_they_change() {
    let fixture = recording_servers(&["a", "b"]);
    let mut client = fixture.connect();
    for _ in 0..3 {
        assert_read(&mut client, "faulty://b");
    }
    let lists = |server: &str| fixture.request_count(server, "resources/list");
    assert_eq!((lists("a"), lists("b"), fixture.request_count("b", "resources/read")), (1, 1, 3));
    execute(&mut client, "b", "announce", json!({ "list": "resources" }));
    client.wait_for_notification(|notification| {
        notification["method"] == "notifications/resources/list_changed"
    });
    assert_read(&mut client, "faulty://b");
    assert_eq!((lists("a"), lists("b")), (1, 2));
}

#[test]
fn defect_25_a_stopped_server_is_started_only_for_its_own_resources() {
    let fixture = recording_servers(&["a", "b", "c"]);
    let mut client = fixture.connect();
    let all = client.request("resources/list", json!({ "_meta": { "agent_id": "dev" } }));
    assert_eq!(all["resources"].as_array().map(Vec::len), Some(3), "{all}");
    for server in ["a", "b", "c"] {
        execute(&mut client, server, "die", json!({}));
    }
    assert_read(&mut client, "faulty://b");
    assert_eq!(fixture.start_counts(), [("a", 1), ("b", 2), ("c", 1)]);
}

#[test]
fn a_resource_added_without_a_list_changed_notification_is_found() {
    let fixture = recording_servers(&["a", "b"]);
    let mut client = fixture.connect();
    assert_read(&mut client, "faulty://b");
    fixture.write("listed-b", "added");
    assert_read(&mut client, "faulty://added");
    assert_eq!(fixture.read_servers(), ["b", "b"]);
}

#[test]
fn of_two_servers_with_the_same_resource_the_first_in_the_file_is_read() {
    let fixture = recording_servers(&["a", "b"]);
    for server in ["a", "b"] {
        fixture.write(format!("listed-{server}"), "common\nb/7");
    }
    let mut client = fixture.connect();
    client.request("resources/list", json!({ "_meta": { "agent_id": "dev" } }));
    assert_read(&mut client, "faulty://common");
    // `a` lists the resource and a template of `b` matches: the listed one wins.
    assert_read(&mut client, "faulty://b/7");
    assert_eq!(fixture.read_servers(), ["a", "a"]);
}

#[test]
fn resources_of_denied_servers_are_not_found() {
    let fixture = recording_servers(&["a", "b"]);
    let mut client = fixture.connect();
    assert_read(&mut client, "faulty://b");
    let refused = read(&mut client, "guest", "faulty://b");
    assert_eq!(
        refused["error"]["message"],
        "NOT_FOUND: no server that you may use has the resource `faulty://b`. List them to see what there is.",
    );
    assert_eq!(fixture.request_count("b", "resources/read"), 1);
}
