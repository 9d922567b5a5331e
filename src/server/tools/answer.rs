//! MCP results of `run_subagent` and `run_subagents`.
//!
//! Claude Code shows the model the structured content of a success and the text of an error. An error therefore carries
//! its data twice: as text, and as `_meta["adjutant/error"]` for programs.

use rmcp::model::{CallToolResult, ContentBlock, MetaObject};
use serde_json::{Map, Value, json};

use crate::outcome::{Answer, Failure, Outcome, Report};

/// The result of `run_subagent`: structured content, or an `isError` result if the run failed.
pub(crate) fn run_subagent_result(report: &Report) -> CallToolResult {
    match &report.outcome {
        Outcome::Answered(answer) => CallToolResult::structured(success_object(report, answer)),
        Outcome::Failed(failure) => {
            let mut result =
                CallToolResult::error(vec![ContentBlock::text(error_text(report, failure))]);
            let mut meta = MetaObject::default();
            meta.insert("adjutant/error".to_owned(), error_object(report, failure));
            result.meta = Some(meta);
            result
        }
    }
}

/// The result of `run_subagents`, never `isError`: a failed run is one entry of `results`.
pub(crate) fn run_subagents_result(reports: &[Report]) -> CallToolResult {
    let entries: Vec<Value> = reports
        .iter()
        .map(|report| match &report.outcome {
            Outcome::Answered(answer) => success_object(report, answer),
            Outcome::Failed(failure) => error_object(report, failure),
        })
        .collect();
    CallToolResult::structured(json!({ "results": entries }))
}

fn success_object(report: &Report, answer: &Answer) -> Value {
    let mut object = Map::new();
    object.insert("result".to_owned(), answer.text.clone().into());
    object.insert("agent".to_owned(), report.agent.clone().into());
    object.insert("duration_ms".to_owned(), report.duration_ms.into());
    if let Some(output) = &answer.output {
        object.insert("output".to_owned(), output.clone());
    }
    insert_optional_fields(report, &mut object);
    Value::Object(object)
}

fn error_object(report: &Report, failure: &Failure) -> Value {
    let mut object = Map::new();
    object.insert("agent".to_owned(), report.agent.clone().into());
    object.insert("error".to_owned(), failure.full_message().into());
    object.insert("code".to_owned(), failure.code.as_str().into());
    object.insert("duration_ms".to_owned(), report.duration_ms.into());
    if let Some(partial) = &failure.partial {
        object.insert("partial".to_owned(), partial.clone().into());
    }
    if !failure.errors.is_empty() {
        object.insert("errors".to_owned(), json!(failure.errors));
    }
    insert_optional_fields(report, &mut object);
    Value::Object(object)
}

/// Inserts `run_id` and those of the optional fields that have a value.
fn insert_optional_fields(report: &Report, object: &mut Map<String, Value>) {
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

/// The text of a failed run, for the model.
fn error_text(report: &Report, failure: &Failure) -> String {
    let mut text = failure.full_message();
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
