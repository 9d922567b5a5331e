//! The spans of one run: the run itself, and each tool call below it.

use std::env;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::base::{Timestamp, now};
use crate::config::env_vars;
use crate::record::{Collector, RunSubject, Span, SpanExporter, TraceContext};

/// The way to the collector, if the environment names one.
pub(super) fn exporter() -> Option<Arc<SpanExporter>> {
    let text = |name: &str| env::var(name).ok().filter(|text| !text.trim().is_empty());
    let collector = Collector {
        endpoint: text(env_vars::OTEL_EXPORTER_OTLP_ENDPOINT)?,
        headers: text(env_vars::OTEL_EXPORTER_OTLP_HEADERS).unwrap_or_default(),
        service: text(env_vars::OTEL_SERVICE_NAME).unwrap_or_else(|| "adjutant".to_owned()),
    };
    SpanExporter::start(&collector).map(Arc::new)
}

/// Where a run stands in its trace.
pub(super) struct RunTrace {
    exporter: Arc<SpanExporter>,
    context: TraceContext,
    parent: Option<TraceContext>,
    began: Timestamp,
}

impl RunTrace {
    /// A span below the one that `TRACEPARENT` names, or one that begins a trace. None where that trace is not recorded.
    pub(super) fn begin(exporter: &Arc<SpanExporter>) -> Option<Self> {
        let parent: Option<TraceContext> =
            env::var(env_vars::TRACEPARENT).ok().and_then(|text| text.parse().ok());
        let context = TraceContext::below(parent);
        context.is_sampled().then(|| Self {
            exporter: Arc::clone(exporter),
            context,
            parent,
            began: now(),
        })
    }

    /// What the run's process gets, so that its own spans hang on ours.
    pub(super) fn traceparent(&self) -> String {
        self.context.to_string()
    }

    pub(super) fn tool(&self, tool: &str, id: &str, began: Timestamp, error: Option<String>) {
        self.exporter.send(Span {
            name: format!("execute_tool {tool}"),
            context: TraceContext::below(Some(self.context)),
            parent: Some(self.context),
            began,
            ended: now(),
            attributes: vec![
                ("gen_ai.operation.name", "execute_tool".into()),
                ("gen_ai.tool.name", tool.into()),
                ("gen_ai.tool.call.id", id.into()),
            ],
            error,
        });
    }

    /// The run is over, with these details of `RunEnded`.
    pub(super) fn end(&self, subject: &RunSubject, details: &Value) {
        let outcome = details.get("outcome").and_then(Value::as_str).unwrap_or_default();
        let get = |pointer: &str| details.pointer(pointer).cloned().unwrap_or_default();
        let caller = subject.caller.as_ref().map(|caller| caller.name.clone());
        self.exporter.send(Span {
            name: format!("invoke_agent {}", subject.agent),
            context: self.context,
            parent: self.parent,
            began: self.began,
            ended: now(),
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
