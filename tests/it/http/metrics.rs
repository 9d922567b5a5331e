//! `/metrics`, parsed by the Python client of Prometheus.

use std::fs::File;
use std::process::Command;

use serde_json::{Value, json};

use super::project;
use crate::gateway_real::{python_program, test_source};
use crate::support::fake_claude::fake_claude;
use crate::support::http::{HttpRequest, HttpServer, stateless_post};

/// Returns the metric families of a page; `None` with a message if there is no Python.
fn parse_metrics(context: &crate::support::TestContext, page: &str) -> Option<Vec<Value>> {
    let python = python_program("python")?;
    context.write("page", page);
    let mut reading = Command::new(python);
    reading.arg(test_source("metrics.py")).stdin(File::open(context.root().join("page")).unwrap());
    let output = reading.output().unwrap();
    assert!(output.status.success(), "{}: {page}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn the_prometheus_client_parses_the_metrics() {
    let context = project();
    let token = context.create_token("bot");
    let away = json!({ "mcpServers": { "away": { "command": "/no/such/program" } } });
    context.write(".mcp.json", away.to_string());
    context
        .write(".mcp-gateway-rules.json", r#"{"agents":{"bot":{"allow":{"servers":["away"]}}}}"#);
    let mut command = context.adjutant(["serve", "--http", "127.0.0.1:0"]);
    command.env("ADJUTANT_CLAUDE", fake_claude());
    let server = HttpServer::start(command);
    let call = |name: &str, arguments: Value| {
        let params = json!({ "name": name, "arguments": arguments });
        server.send(&stateless_post(&token, 1, "tools/call", params)).message()
    };
    call("run_subagent", json!({ "agent_name": "helper", "prompt": "FAKE result fine" }));
    call("run_subagent", json!({ "agent_name": "helper", "prompt": "FAKE exit 3 broken" }));
    call("run_subagent", json!({ "agent_name": "made-up", "prompt": "Help!" }));
    call("execute_tool", json!({ "server": "away", "tool": "t" }));
    let forged = "other\"} 1\nforged 2\\";
    call("execute_tool", json!({ "server": forged, "tool": "t" }));

    let page = server.send(&HttpRequest::get("/metrics"));
    let kind = page.header("content-type").unwrap();
    assert!(kind.starts_with("text/plain") && kind.contains("version=0.0.4"), "{kind}");
    let Some(families) = parse_metrics(&context, &page.body) else { return };
    let is_typed = |family: &Value| family["type"] != "unknown" && family["help"] != "";
    assert!(families.iter().all(is_typed), "each says what it is: {families:#?}");
    let samples: Vec<&Value> =
        families.iter().flat_map(|family| family["samples"].as_array().unwrap()).collect();
    let value = |name: &str, labels: Value| {
        let mut found = samples.iter().filter(|sample| sample[0] == name && sample[1] == labels);
        let value = found.next().and_then(|sample| sample[2].as_f64());
        assert!(found.next().is_none(), "twice: {name} {labels}");
        value.unwrap_or_else(|| panic!("no {name} {labels} in {samples:#?}"))
    };
    let is = |name: &str, labels: Value, expected: f64| {
        let found = value(name, labels.clone());
        assert!((found - expected).abs() < 1e-9, "{name} {labels} is {found}");
    };
    let run = |agent: &str, outcome: &str| json!({ "agent": agent, "outcome": outcome });
    is("adjutant_runs_total", run("helper", "SUCCESS"), 1.0);
    is("adjutant_runs_total", run("helper", "CLAUDE_FAILED"), 1.0);
    is("adjutant_runs_total", run("(unknown)", "AGENT_NOT_FOUND"), 1.0);
    let gateway = |server: &str, decision: &str, outcome: &str| json!({ "agent": "bot", "server": server, "tool": "t", "decision": decision, "outcome": outcome });
    is("adjutant_gateway_calls_total", gateway("away", "allow", "failed"), 1.0);
    is("adjutant_gateway_calls_total", gateway(forged, "deny", "denied"), 1.0);
    is("adjutant_runs_running", json!({}), 0.0);
    is("adjutant_runs_waiting", json!({}), 0.0);
    is("adjutant_pool_processes", json!({ "kind": "warm" }), 0.0);
    assert!(value("process_resident_memory_bytes", json!({})) > 1e6);
    // Histogram buckets are cumulative.
    let mut last = 0.0;
    let buckets = samples.iter().filter(|sample| {
        sample[0] == "adjutant_run_duration_seconds_bucket"
            && sample[1]["agent"] == "helper"
            && sample[1]["outcome"] == "SUCCESS"
    });
    for bucket in buckets {
        let count = bucket[2].as_f64().unwrap();
        assert!(count >= last, "{bucket} after {last}");
        last = count;
    }
    assert!(last > 0.0, "{samples:#?}");
    let known = families.iter().map(|family| family["name"].as_str().unwrap()).collect::<Vec<_>>();
    for name in ["adjutant_run_cost_usd", "adjutant_downstream_state", "adjutant_http_sessions"] {
        assert!(known.contains(&name), "no {name} in {known:?}");
    }
}
