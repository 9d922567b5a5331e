//! The tools that Adjutant offers. Descriptions are short: every word stands in the caller's context.

use std::sync::Arc;

use rmcp::model::{JsonObject, MetaObject, Tool};
use serde_json::{Value, json};

use crate::base::{one_line, shorten};
use crate::catalog::Agent;

/// The name of the tool for one task.
pub(super) const RUN_SUBAGENT: &str = "run_subagent";
/// The name of the tool for several tasks at once.
pub(super) const RUN_SUBAGENTS: &str = "run_subagents";

/// The most that Claude Code takes of one result before it cuts it.
const MAX_RESULT_CHARS: u32 = 500_000;
/// How much of an agent's description stands in the list.
const MAX_DESCRIPTION: usize = 200;

/// Both tools, with the agents that this caller may call.
pub(super) fn definitions<'a>(agents: impl Iterator<Item = &'a Agent>) -> Vec<Tool> {
    let one = described(RUN_SUBAGENT, run_subagent_text(agents), task_schema(true), one_result());
    let many = described(
        RUN_SUBAGENTS,
        "Run several run_subagent tasks side by side; results in the same order.".to_owned(),
        json!({
            "type": "object",
            "properties": { "tasks": { "type": "array", "minItems": 1, "items": task_schema(false) } },
            "required": ["tasks"],
        }),
        json!({
            "type": "object",
            "properties": { "results": { "type": "array", "items": { "type": "object" } } },
            "required": ["results"],
        }),
    );
    vec![one, many]
}

fn run_subagent_text<'a>(agents: impl Iterator<Item = &'a Agent>) -> String {
    let lines: Vec<String> = agents
        .map(|agent| {
            let about = shorten(&one_line(&agent.description), MAX_DESCRIPTION);
            format!("\n- {}: {about}", agent.name)
        })
        .collect();
    if lines.is_empty() {
        return "Hand a task to a specialist agent. None can be called now.".to_owned();
    }
    format!("Hand a task to a specialist agent with rights and tools of its own.{}", lines.concat())
}

fn task_schema(with_fresh: bool) -> Value {
    let mut properties = json!({
        "agent_name": { "type": "string" },
        "prompt": { "type": "string", "description": "The whole task: it sees nothing else" },
        "context": { "type": "string", "description": "Background, kept apart" },
        "session_key": { "type": "string", "description": "Which conversation" },
    });
    if let (true, Some(properties)) = (with_fresh, properties.as_object_mut()) {
        let fresh = json!({ "type": "boolean", "description": "Start it over" });
        properties.insert("fresh".to_owned(), fresh);
    }
    json!({ "type": "object", "properties": properties, "required": ["agent_name", "prompt"] })
}

fn one_result() -> Value {
    json!({
        "type": "object",
        "properties": {
            "result": { "type": "string" },
            "agent": { "type": "string" },
            "duration_ms": { "type": "integer" },
            "output": {},
            "session_id": { "type": "string" },
            "cost_usd": { "type": "number" },
            "run_id": { "type": "string" },
            "denials": { "type": "array" },
            "note": { "type": "string" },
        },
        "required": ["result", "agent", "duration_ms"],
    })
}

fn described(name: &'static str, text: String, input: Value, output: Value) -> Tool {
    let mut tool = Tool::new(name, text, object(input));
    tool.output_schema = Some(object(output));
    let mut meta = MetaObject::default();
    meta.insert("anthropic/maxResultSizeChars".to_owned(), MAX_RESULT_CHARS.into());
    tool.meta = Some(meta);
    tool
}

fn object(value: Value) -> Arc<JsonObject> {
    Arc::new(match value {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    })
}
