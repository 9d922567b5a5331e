//! OpenTelemetry spans of one run: the run, and each tool call below it.

use std::env;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::config::env_vars;
use crate::events::RunSubject;
use crate::telemetry::{OtlpCollector, SpanExporter, TraceContext, TraceSpan};
use crate::util::{Timestamp, now};

/// Returns the span exporter if the environment names a collector.
pub(crate) fn exporter_from_environment() -> Option<Arc<SpanExporter>> {
    let text = |name: &str| env::var(name).ok().filter(|text| !text.trim().is_empty());
    let collector = OtlpCollector {
        endpoint: text(env_vars::OTEL_EXPORTER_OTLP_ENDPOINT)?,
        headers: text(env_vars::OTEL_EXPORTER_OTLP_HEADERS).unwrap_or_default(),
        service: text(env_vars::OTEL_SERVICE_NAME).unwrap_or_else(|| "adjutant".to_owned()),
    };
    SpanExporter::start(&collector).map(Arc::new)
}

/// Trace context of one run.
pub(crate) struct RunTrace {
    exporter: Arc<SpanExporter>,
    context: TraceContext,
    parent: Option<TraceContext>,
    started_at: Timestamp,
}

impl RunTrace {
    /// Starts the span of a run below `TRACEPARENT`, or a new trace. `None` if the parent is not sampled.
    pub(crate) fn start(exporter: &Arc<SpanExporter>) -> Option<Self> {
        let parent: Option<TraceContext> =
            env::var(env_vars::TRACEPARENT).ok().and_then(|text| text.parse().ok());
        let context = TraceContext::child_of(parent);
        context.is_sampled().then(|| Self {
            exporter: Arc::clone(exporter),
            context,
            parent,
            started_at: now(),
        })
    }

    /// Returns the `TRACEPARENT` for the run's process.
    pub(crate) fn traceparent(&self) -> String {
        self.context.to_string()
    }

    pub(crate) fn send_tool_span(
        &self,
        tool: &str,
        id: &str,
        began: Timestamp,
        error: Option<String>,
    ) {
        self.exporter.post_spans(TraceSpan {
            name: format!("execute_tool {tool}"),
            context: TraceContext::child_of(Some(self.context)),
            parent: Some(self.context),
            start: began,
            end: now(),
            attributes: vec![
                ("gen_ai.operation.name", "execute_tool".into()),
                ("gen_ai.tool.name", tool.into()),
                ("gen_ai.tool.call.id", id.into()),
            ],
            error,
        });
    }

    /// Sends the span of the run, with the details of its `RunEnded` event.
    pub(crate) fn send_run_span(&self, subject: &RunSubject, details: &Value) {
        let outcome = details.get("outcome").and_then(Value::as_str).unwrap_or_default();
        let get = |pointer: &str| details.pointer(pointer).cloned().unwrap_or_default();
        let caller = subject.caller.as_ref().map(|caller| caller.name.clone());
        self.exporter.post_spans(TraceSpan {
            name: format!("invoke_agent {}", subject.agent),
            context: self.context,
            parent: self.parent,
            start: self.started_at,
            end: now(),
            attributes: vec![
                ("gen_ai.operation.name", "invoke_agent".into()),
                ("gen_ai.agent.name", subject.agent.clone().into()),
                ("gen_ai.agent.id", subject.run.to_string().into()),
                ("gen_ai.conversation.id", json!(subject.session_id)),
                ("gen_ai.usage.input_tokens", get("/tokens/input")),
                ("gen_ai.usage.output_tokens", get("/tokens/output")),
                ("adjutant.caller", json!(caller)),
                ("adjutant.outcome", outcome.into()),
                ("adjutant.cost_usd", get("/cost_usd")),
                ("adjutant.turns", get("/turns")),
            ],
            error: (outcome != "SUCCESS").then(|| outcome.to_owned()),
        });
    }
}
