//! What is written down about a request: who, what, by which rule, how long, how it ended.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use serde_json::value::RawValue;

use super::batch::{Batch, SoundLog};
use super::error::GatewayError;
use super::files::InForce;
use super::gateway::Who;
use crate::base::RunId;
use crate::identity::Caller;
use crate::policy::{Decision, Evaluation};
use crate::record::{AuditLine, AuditOptions, CallCount, Ending, Measured, Metrics, MetricsReport};

/// A request on its way, as far as it is known.
pub(super) struct Draft {
    pub(super) operation: &'static str,
    pub(super) claimed: Option<String>,
    pub(super) caller: Option<Caller>,
    pub(super) server: Option<String>,
    /// Whether there is the server whose use was denied.
    server_exists: bool,
    pub(super) tool: Option<String>,
    pub(super) evaluation: Option<Arc<Evaluation>>,
    pub(super) bytes_in: usize,
    pub(super) arguments: Option<Value>,
    pub(super) call_id: Option<String>,
    pub(super) run: Option<RunId>,
    started: Instant,
}

impl Draft {
    pub(super) fn new(operation: &'static str, who: &Who) -> Self {
        Self::begun(Instant::now(), operation, who.clone())
    }

    /// A request that came a moment ago.
    pub(super) fn begun(started: Instant, operation: &'static str, who: Who) -> Self {
        Self {
            operation,
            claimed: who.agent_id,
            caller: who.caller,
            server: None,
            server_exists: false,
            tool: None,
            evaluation: None,
            bytes_in: 0,
            arguments: None,
            call_id: who.call_id,
            run: None,
            started,
        }
    }

    /// May this agent use this server, or this tool of it? The verdict is noted.
    pub(super) fn judge(
        &mut self,
        in_force: &InForce,
        caller: &Caller,
        server: &str,
        tool: Option<&str>,
    ) -> Result<(), GatewayError> {
        let evaluation = in_force.verdicts.of(&in_force.rules, &caller.name, server, tool);
        let evaluation = self.evaluation.insert(evaluation);
        if evaluation.is_allowed() {
            return Ok(());
        }
        self.server_exists = in_force.servers.get(server).is_some();
        let sentence = match &in_force.gap {
            None => evaluation.sentence().to_owned(),
            Some(gap) => format!("{}; {gap}", evaluation.sentence()),
        };
        Err(GatewayError::DeniedByPolicy { sentence })
    }
}

/// The audit log and the counts of one gateway.
pub(super) struct Ledger {
    log: Arc<SoundLog>,
    batch: Batch,
    metrics: Metrics,
}

impl Ledger {
    pub(super) fn new(path: &Path, options: AuditOptions) -> Self {
        let log = Arc::new(SoundLog::open(path, options));
        Self { batch: Batch::new(Arc::clone(&log)), log, metrics: Metrics::default() }
    }

    /// Whether the last line could be written.
    pub(super) fn is_sound(&self) -> bool {
        self.log.is_sound()
    }

    /// Refuses while the log cannot be written: what cannot be recorded is not done.
    pub(super) fn ensure_writable(&self) -> Result<(), GatewayError> {
        if self.is_sound() {
            return Ok(());
        }
        self.write(&AuditLine::new("gateway_start"))
    }

    /// What is kept of a request's arguments, if anything is to be.
    pub(super) fn kept_arguments(&self, arguments: &RawValue) -> Option<Value> {
        let wanted = self.log.wants_arguments();
        wanted.then(|| serde_json::from_str(arguments.get()).unwrap_or_default())
    }

    /// A request that could not even be judged, because it makes no sense: it has its line all the same.
    pub(super) fn refuse(
        &self,
        operation: &'static str,
        who: &Who,
        error: GatewayError,
    ) -> GatewayError {
        let refused: Result<Infallible, GatewayError> = Err(error);
        let Err(error) = self.record(Draft::new(operation, who), refused, |never| match *never {});
        error
    }

    /// A line about something that no request asked for.
    pub(super) fn note(
        &self,
        operation: &'static str,
        server: &str,
        tool: Option<&str>,
        reason: &str,
    ) {
        let mut line = AuditLine::new(operation).on(server, tool);
        line.reason = Some(reason.to_owned());
        self.add(&line);
    }

    /// A line as it is.
    pub(super) fn add(&self, line: &AuditLine) {
        // A log that cannot be written stops the next request.
        let _ = self.write(line);
    }

    pub(super) fn calls(&self) -> Vec<CallCount> {
        self.metrics.calls()
    }

    pub(super) fn metrics(&self) -> MetricsReport {
        self.metrics.report()
    }

    pub(super) fn problem(&self) -> Option<String> {
        self.log.problem()
    }

    pub(super) fn write(&self, line: &AuditLine) -> Result<(), GatewayError> {
        self.log.write(std::slice::from_ref(line))
    }

    /// Writes the line and only then lets the answer go.
    pub(super) fn record<T>(
        &self,
        draft: Draft,
        result: Result<T, GatewayError>,
        size: impl FnOnce(&T) -> usize,
    ) -> Result<T, GatewayError> {
        let line = self.line(draft, &result, size);
        self.write(&line)?;
        result
    }

    /// The same, together with the lines of all who have one at this moment. What waits for that is small: the line is
    /// handed over at once.
    pub(super) fn record_soon<T>(
        &self,
        draft: Draft,
        result: Result<T, GatewayError>,
        size: impl FnOnce(&T) -> usize,
    ) -> impl Future<Output = Result<T, GatewayError>> {
        let written = self.batch.add(self.line(draft, &result, size));
        async move { written.await.and(result) }
    }

    /// The same, for whom nobody waits.
    pub(super) fn record_then<T: Send + 'static>(
        &self,
        draft: Draft,
        result: Result<T, GatewayError>,
        size: impl FnOnce(&T) -> usize,
        then: impl FnOnce(Result<T, GatewayError>) + Send + 'static,
    ) {
        let line = self.line(draft, &result, size);
        self.batch.add_then(line, Box::new(move |written| then(written.and(result))));
    }

    /// What is written down of a request that has come to its end.
    fn line<T>(
        &self,
        draft: Draft,
        result: &Result<T, GatewayError>,
        size: impl FnOnce(&T) -> usize,
    ) -> AuditLine {
        let latency = draft.started.elapsed();
        self.count(&draft, result, latency);
        let mut line = AuditLine::new(draft.operation);
        if let Some(caller) = draft.caller {
            line.agent = Some(caller.name);
            line.known_by = Some(caller.known_by);
        }
        line.server = draft.server;
        line.tool = draft.tool;
        line.latency_us = u64::try_from(latency.as_micros()).ok();
        line.request_bytes = Some(draft.bytes_in as u64);
        line.call_id = draft.call_id;
        line.run_id = draft.run;
        line.arguments = draft.arguments;
        match result {
            Ok(answer) => line.response_bytes = Some(size(answer) as u64),
            Err(error) => {
                line.error = Some(error.code().to_owned());
                line.agent = line.agent.or(draft.claimed);
                line.reason = Some(error.sentence_for_the_log());
                if draft.evaluation.is_none() && is_refusal(error) {
                    line.decision = Some(Decision::Deny);
                }
            }
        }
        line.verdict = draft.evaluation;
        line
    }

    fn count<T>(&self, draft: &Draft, result: &Result<T, GatewayError>, latency: Duration) {
        // Names that callers make up would only fill the table.
        let Some(caller) = &draft.caller else { return };
        let ending = match result {
            Ok(_) => Ending::Answered,
            Err(error) if is_refusal(error) => Ending::Denied,
            Err(_) => Ending::Failed,
        };
        self.metrics.count(&Measured {
            agent: &caller.name,
            server: draft.server.as_deref(),
            server_exists: draft.server_exists,
            tool: draft.tool.as_deref(),
            ending,
            latency,
        });
    }
}

/// Whether a person's rule, rather than a fault, stood in the way.
fn is_refusal(error: &GatewayError) -> bool {
    matches!(
        error,
        GatewayError::DeniedByPolicy { .. }
            | GatewayError::ToolWithheld { .. }
            | GatewayError::IdentityMismatch { .. }
            | GatewayError::Doubtful(_)
            | GatewayError::NotAttested
            | GatewayError::Agent(_)
            | GatewayError::NoRules(_)
    )
}
