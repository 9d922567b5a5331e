//! Audit entries and metrics of gateway requests: caller, server, tool, rule, latency, outcome.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::error::GatewayError;
use super::gateway::RequestIdentity;
use crate::audit::{AuditBatcher, AuditEntry, AuditLog, AuditOptions};
use crate::identity::{Caller, KnownBy};
use crate::jsonrpc::LineJson;
use crate::policy::{Decision, Verdict};
use crate::telemetry::{CallOutcome, CallSample, Metrics};
use crate::util::RunId;

/// Audit entry of a request whose outcome is not known yet.
pub(crate) struct AuditDraft {
    pub(crate) operation: &'static str,
    pub(crate) claimed: Option<String>,
    pub(crate) caller: Option<Caller>,
    pub(crate) server: Option<String>,
    /// Set if the server of a denied request exists.
    pub(crate) server_exists: bool,
    pub(crate) tool: Option<String>,
    pub(crate) verdict: Option<Arc<Verdict>>,
    pub(crate) request_bytes: usize,
    pub(crate) arguments: Option<Value>,
    pub(crate) call_id: Option<String>,
    pub(crate) run: Option<RunId>,
    pub(crate) started: Instant,
}

impl AuditDraft {
    /// Creates the draft of a request that arrives now.
    pub(crate) fn new(operation: &'static str, who: RequestIdentity) -> Self {
        Self {
            operation,
            claimed: who.agent_id,
            caller: who.caller,
            server: None,
            server_exists: false,
            tool: None,
            verdict: None,
            request_bytes: 0,
            arguments: None,
            call_id: who.call_id,
            run: None,
            started: Instant::now(),
        }
    }
}

/// Writes audit entries of gateway requests and counts the requests.
pub(crate) struct AuditTrail {
    pub(crate) batcher: AuditBatcher,
    pub(crate) metrics: Metrics,
}

impl AuditTrail {
    pub(crate) fn new(path: &Path, options: AuditOptions) -> Self {
        let batcher = AuditBatcher::new(AuditLog::open(path, options));
        Self { batcher, metrics: Metrics::default() }
    }

    /// Returns true if the last write succeeded.
    pub(crate) fn is_writable(&self) -> bool {
        self.batcher.is_writable()
    }

    /// Returns an error while the audit log cannot be written, because unlogged requests are not executed.
    ///
    /// After a failure, writes a `gateway_start` entry to test the log.
    pub(crate) async fn ensure_writable(&self) -> Result<(), GatewayError> {
        if self.is_writable() {
            return Ok(());
        }
        self.write(AuditEntry::new("gateway_start")).await
    }

    /// Returns the arguments to log; `None` unless the audit log is configured to keep arguments.
    pub(crate) fn arguments_to_log(&self, arguments: &LineJson) -> Option<Value> {
        let wanted = self.batcher.log().logs_arguments();
        wanted.then(|| serde_json::from_str(arguments.as_str()).unwrap_or_default())
    }

    /// Writes the audit entry of an invalid request and returns its error.
    pub(crate) async fn reject(
        &self,
        operation: &'static str,
        who: &RequestIdentity,
        error: GatewayError,
    ) -> GatewayError {
        let refused: Result<Infallible, GatewayError> = Err(error);
        let draft = AuditDraft::new(operation, who.clone());
        let Err(error) = self.record_batched(draft, refused, |never| match *never {}).await;
        error
    }

    /// Writes an entry for which no answer waits, and ignores errors. Does not block.
    ///
    /// After a failed write, `ensure_writable` rejects the next request.
    pub(crate) fn try_write(&self, line: AuditEntry) {
        self.batcher.append_detached(line);
    }

    pub(crate) fn last_error(&self) -> Option<String> {
        self.batcher.log().problem()
    }

    pub(crate) async fn write(&self, line: AuditEntry) -> Result<(), GatewayError> {
        Ok(self.batcher.append(line).await?)
    }

    /// Writes the entry of a request, then returns its result.
    ///
    /// The entry is queued before the function returns, so that the future stays small.
    pub(crate) fn record_batched<T>(
        &self,
        draft: AuditDraft,
        result: Result<T, GatewayError>,
        size: impl FnOnce(&T) -> usize,
    ) -> impl Future<Output = Result<T, GatewayError>> {
        let written = self.batcher.append(self.build_entry(draft, &result, size));
        async move { written.await.map_err(GatewayError::from).and(result) }
    }

    /// Like [`Self::record_batched`], for a result that is a JSON value.
    pub(crate) async fn record_value(
        &self,
        draft: AuditDraft,
        result: Result<Value, GatewayError>,
    ) -> Result<Value, GatewayError> {
        self.record_batched(draft, result, |value| value.to_string().len()).await
    }

    /// Like [`Self::record_batched`], with a callback instead of a future.
    pub(crate) fn record_then<T: Send + 'static>(
        &self,
        draft: AuditDraft,
        result: Result<T, GatewayError>,
        size: impl FnOnce(&T) -> usize,
        then: impl FnOnce(Result<T, GatewayError>) + Send + 'static,
    ) {
        let line = self.build_entry(draft, &result, size);
        self.batcher.append_then(
            line,
            Box::new(move |written| then(written.map_err(GatewayError::from).and(result))),
        );
    }

    /// Builds the entry of a request that has finished.
    fn build_entry<T>(
        &self,
        draft: AuditDraft,
        result: &Result<T, GatewayError>,
        size: impl FnOnce(&T) -> usize,
    ) -> AuditEntry {
        let latency = draft.started.elapsed();
        self.count(&draft, result, latency);
        let mut line = AuditEntry::new(draft.operation);
        line.caller = draft.caller;
        line.server = draft.server;
        line.tool = draft.tool;
        line.duration = Some(latency);
        line.request_bytes = Some(draft.request_bytes as u64);
        line.call_id = draft.call_id;
        line.run_id = draft.run;
        line.arguments = draft.arguments;
        match result {
            Ok(answer) => line.response_bytes = Some(size(answer) as u64),
            Err(error) => {
                line.code = Some(error.code().to_owned());
                let claimed = draft.claimed.map(|name| Caller::new(name, KnownBy::Asserted));
                line.caller = line.caller.or(claimed);
                line.reason = Some(error.audit_message());
                if draft.verdict.is_none() && is_denial(error) {
                    line.decision = Some(Decision::Deny);
                }
            }
        }
        line.verdict = draft.verdict;
        line
    }

    fn count<T>(&self, draft: &AuditDraft, result: &Result<T, GatewayError>, latency: Duration) {
        // Unresolved names are invented by callers and would fill the table.
        let Some(caller) = &draft.caller else { return };
        let ending = match result {
            Ok(_) => CallOutcome::Answered,
            Err(error) if is_denial(error) => CallOutcome::Denied,
            Err(_) => CallOutcome::Failed,
        };
        self.metrics.count_in(&CallSample {
            agent: &caller.name,
            server: draft.server.as_deref(),
            server_exists: draft.server_exists,
            tool: draft.tool.as_deref(),
            outcome: ending,
            latency,
        });
    }
}

/// Returns true if a rule or a missing identity stopped the request, and not a fault.
fn is_denial(error: &GatewayError) -> bool {
    matches!(
        error,
        GatewayError::DeniedByPolicy { .. }
            | GatewayError::ToolBlockedByPin { .. }
            | GatewayError::IdentityMismatch { .. }
            | GatewayError::InvalidAttestation(_)
            | GatewayError::NotAttested
            | GatewayError::AgentNotResolved(_)
            | GatewayError::NoRules(_)
    )
}
