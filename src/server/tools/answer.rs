//! From a report to an MCP answer. A model sees the structured part of a success and the text of a failure.

use rmcp::model::{CallToolResult, ContentBlock, MetaObject};
use serde_json::{Map, Value, json};

use crate::outcome::{Answer, Failure, Outcome, Report};

/// The answer to `run_subagent`.
pub(super) fn one(report: &Report) -> CallToolResult {
    match &report.outcome {
        Outcome::Answered(answer) => CallToolResult::structured(success(report, answer)),
        Outcome::Failed(failure) => {
            let mut result = CallToolResult::error(vec![ContentBlock::text(text(report, failure))]);
            let mut meta = MetaObject::default();
            meta.insert("adjutant/error".to_owned(), error(report, failure));
            result.meta = Some(meta);
            result
        }
    }
}

/// The answer to `run_subagents`: a failure is one entry among the others.
pub(super) fn many(reports: &[Report]) -> CallToolResult {
    let entries: Vec<Value> = reports
        .iter()
        .map(|report| match &report.outcome {
            Outcome::Answered(answer) => success(report, answer),
            Outcome::Failed(failure) => error(report, failure),
        })
        .collect();
    CallToolResult::structured(json!({ "results": entries }))
}

fn success(report: &Report, answer: &Answer) -> Value {
    let mut object = Map::new();
    object.insert("result".to_owned(), answer.text.clone().into());
    object.insert("agent".to_owned(), report.agent.clone().into());
    object.insert("duration_ms".to_owned(), report.duration_ms.into());
    if let Some(output) = &answer.output {
        object.insert("output".to_owned(), output.clone());
    }
    extras(report, &mut object);
    Value::Object(object)
}

fn error(report: &Report, failure: &Failure) -> Value {
    let mut object = Map::new();
    object.insert("agent".to_owned(), report.agent.clone().into());
    object.insert("error".to_owned(), failure.sentence().into());
    object.insert("code".to_owned(), failure.code.as_str().into());
    object.insert("duration_ms".to_owned(), report.duration_ms.into());
    if let Some(partial) = &failure.partial {
        object.insert("partial".to_owned(), partial.clone().into());
    }
    if !failure.errors.is_empty() {
        object.insert("errors".to_owned(), json!(failure.errors));
    }
    extras(report, &mut object);
    Value::Object(object)
}

/// What stands there only where it says something.
fn extras(report: &Report, object: &mut Map<String, Value>) {
    if let Some(session) = &report.session_id {
        object.insert("session_id".to_owned(), session.clone().into());
    }
    if let Some(cost) = report.cost_usd {
        object.insert("cost_usd".to_owned(), cost.into());
    }
    object.insert("run_id".to_owned(), report.run_id.to_string().into());
    if !report.denials.is_empty() {
        object.insert("denials".to_owned(), json!(report.denials));
    }
    if !report.notes.is_empty() {
        object.insert("note".to_owned(), report.notes.join(" ").into());
    }
}

/// A failure as a model reads it.
fn text(report: &Report, failure: &Failure) -> String {
    let mut text = failure.sentence();
    for note in &report.notes {
        text.push_str(&format!("\nnote: {note}"));
    }
    for denial in &report.denials {
        text.push_str(&format!("\ndenied: {} ({})", denial.tool, denial.rule));
    }
    if let Some(session) = &report.session_id {
        text.push_str(&format!("\nsession_id: {session}"));
    }
    if let Some(cost) = report.cost_usd {
        text.push_str(&format!("\ncost_usd: {cost}"));
    }
    if let Some(partial) = &failure.partial {
        text.push_str(&format!(
            "\n\npartial (what `{}` had written, not its answer):\n{partial}",
            report.agent
        ));
    }
    text
}
