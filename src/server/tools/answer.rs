//! MCP results of `run_subagent` and `run_subagents`.
//!
//! Claude Code shows the model the structured content of a success and the text of an error. An error therefore carries
//! its data twice: as text, and as `_meta["adjutant/error"]` for programs.

use rmcp::model::{CallToolResult, ContentBlock, MetaObject};
use serde_json::{Value, json};

use crate::outcome::{Answer, Failure, Outcome, Report};

/// The result of `run_subagent`: structured content, or an `isError` result if the run failed.
pub(crate) fn run_subagent_result(report: &Report) -> CallToolResult {
    match &report.outcome {
        Outcome::Answered(answer) => CallToolResult::structured(success_object(report, answer)),
        Outcome::Failed(failure) => {
            let text = ContentBlock::text(error_text(report, failure));
            let mut result = CallToolResult::error(vec![text]);
            let meta = result.meta.insert(MetaObject::default());
            meta.insert("adjutant/error".to_owned(), error_object(report, failure));
            result
        }
    }
}

/// The result of `run_subagents`, never `isError`: a failed run is one entry of `results`.
pub(crate) fn run_subagents_result(reports: &[Report]) -> CallToolResult {
    let entries = reports.iter().map(|report| match &report.outcome {
        Outcome::Answered(answer) => success_object(report, answer),
        Outcome::Failed(failure) => error_object(report, failure),
    });
    CallToolResult::structured(json!({ "results": entries.collect::<Vec<_>>() }))
}

fn success_object(report: &Report, answer: &Answer) -> Value {
    let (agent, duration_ms) = (&report.agent, report.duration_ms);
    let mut object = json!({ "result": answer.text, "agent": agent, "duration_ms": duration_ms });
    if let Some(output) = &answer.output {
        object["output"] = output.clone();
    }
    with_optional_fields(report, object)
}

fn error_object(report: &Report, failure: &Failure) -> Value {
    let mut object = json!({
        "agent": report.agent,
        "error": failure.full_message(),
        "code": failure.code.as_str(),
        "duration_ms": report.duration_ms,
    });
    if let Some(partial) = &failure.partial {
        object["partial"] = partial.as_str().into();
    }
    if !failure.errors.is_empty() {
        object["errors"] = json!(failure.errors);
    }
    with_optional_fields(report, object)
}

/// Adds `run_id` and those of the optional fields that have a value.
fn with_optional_fields(report: &Report, mut object: Value) -> Value {
    if let Some(session) = &report.session_id {
        object["session_id"] = session.as_str().into();
    }
    if let Some(cost) = report.cost_usd {
        object["cost_usd"] = cost.into();
    }
    object["run_id"] = report.run_id.to_string().into();
    if !report.denials.is_empty() {
        object["denials"] = json!(report.denials);
    }
    if !report.notes.is_empty() {
        object["note"] = report.notes.join(" ").into();
    }
    object
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
        let head = format!("partial (what `{}` had written, not its answer)", report.agent);
        text.push_str(&format!("\n\n{head}:\n{partial}"));
    }
    text
}
