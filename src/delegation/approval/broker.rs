//! Approval of tool calls that no rule decides: a person is asked; if nobody can be, the call is
//! denied.
//!
//! Every question and every result is written to the audit log before it takes effect.

use std::sync::{Arc, Weak};
use std::time::Instant;

use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::super::pipeline::Run;
use super::super::secrets::server_redactor;
use super::super::status::StatusSender;
use super::grant::ApprovalGrant;
use super::prompt::{ApprovalAnswer, ApprovalPrompt, ApprovalQuestion};
use crate::audit::AuditEntry;
use crate::catalog::{Agent, RuleText};
use crate::claude::{PermissionRequest, summarize_tool};
use crate::gateway::Gateway;
use crate::identity::{Caller, KnownBy};
use crate::policy::Decision;
use crate::util::{Mutex, Pattern, Redactor, RunId, one_line, shorten, strip_control_chars};

/// Characters of the arguments that a person is shown: the first 500 and the last 250, because
/// something harmful could stand at the end.
const ARGUMENT_HEAD_CHARS: usize = 500;
const ARGUMENT_TAIL_CHARS: usize = 250;
const DENIAL_ADVICE: &str = "Do without it, and say so in your answer.";

/// Decides the approvals of one run and holds the grants that a person gave it.
pub(crate) struct ApprovalBroker {
    run: RunId,
    caller: String,
    agent: Arc<Agent>,
    redactor: Redactor,
    /// May outlive the run: a control request in progress keeps the broker until the process exits.
    status: Weak<StatusSender>,
    prompt: Arc<dyn ApprovalPrompt>,
    gateway: Arc<Gateway>,
    grants: Mutex<Vec<ApprovalGrant>>,
    /// Allows one question at a time: an answer "for this run" may decide the next question.
    question_permit: Semaphore,
}

/// Result of a request for approval.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ApprovalResult {
    Allowed,
    Denied {
        rule: String,
        /// Sent to the model.
        message: String,
    },
}

/// Decision with its origin: the rule of the audit entry and its reason.
struct ApprovalDecision {
    decision: Decision,
    rule: &'static str,
    reason: String,
}

impl ApprovalDecision {
    fn allow(rule: &'static str, reason: String) -> Self {
        Self { decision: Decision::Allow, rule, reason }
    }

    fn deny(rule: &'static str, reason: String) -> Self {
        Self { decision: Decision::Deny, rule, reason }
    }

    fn not_audited() -> Self {
        let reason = "the audit log cannot be written, so nothing may be allowed";
        Self::deny("audit", reason.to_owned())
    }
}

impl ApprovalBroker {
    pub(crate) fn new(run: &Run, agent: &Arc<Agent>) -> Arc<Self> {
        Arc::new(Self {
            run: run.id,
            caller: run.caller.name.clone(),
            agent: Arc::clone(agent),
            redactor: server_redactor(agent),
            status: Arc::downgrade(&run.status),
            prompt: Arc::clone(&run.prompt),
            gateway: Arc::clone(&run.services.gateway),
            grants: Mutex::default(),
            question_permit: Semaphore::new(1),
        })
    }

    /// Decides one call: by an earlier grant, or by asking a person.
    ///
    /// The call is denied if the audit entry cannot be written.
    pub(crate) async fn decide(&self, request: &PermissionRequest) -> ApprovalResult {
        let case = ApprovalCase::new(self, request);
        let decided = case.decide().await;
        match self.gateway.write_audit_entry(case.decision_entry(&decided)).await {
            Ok(()) => case.result(&decided),
            Err(_) => case.result(&ApprovalDecision::not_audited()),
        }
    }

    /// Writes the audit entry of a tool call that was denied without asking a person.
    ///
    /// Does not wait for the write, and ignores its errors: the call is denied in any case.
    pub(crate) fn audit_denial(&self, (tool, call): (&str, &str), input: &Value, reason: &str) {
        let entry = self.draft_entry("tool_use", (tool, call), input, reason.to_owned());
        let entry = AuditEntry { decision: Some(Decision::Deny), ..entry };
        self.gateway.try_write_audit_entry(entry);
    }

    fn draft_entry(
        &self,
        operation: &'static str,
        (tool, call): (&str, &str),
        input: &Value,
        reason: String,
    ) -> AuditEntry {
        let who = Caller::new(self.agent.name.as_str(), KnownBy::Pipe);
        AuditEntry {
            tool: Some(tool.to_owned()),
            run_id: Some(self.run),
            call_id: Some(call.to_owned()),
            reason: Some(reason),
            arguments: Some(self.redacted(input)),
            ..AuditEntry::new(operation).with_caller(&who)
        }
    }

    fn redacted(&self, input: &Value) -> Value {
        let mut input = input.clone();
        self.redactor.redact_value(&mut input);
        input
    }
}

/// One call to decide, with the redacted texts that describe it.
struct ApprovalCase<'a> {
    broker: &'a ApprovalBroker,
    request: &'a PermissionRequest,
    summary: String,
    cause: String,
    grant: ApprovalGrant,
    started_at: Instant,
}

impl<'a> ApprovalCase<'a> {
    fn new(broker: &'a ApprovalBroker, request: &'a PermissionRequest) -> Self {
        let PermissionRequest { tool_name, input, .. } = request;
        let mut summary = summarize_tool(tool_name, input);
        broker.redactor.redact_text(&mut summary);
        let suggested = request.suggested_rule().map(|rule| RuleText::split(&rule));
        let rules = suggested.iter().chain(&broker.agent.permissions.ask);
        let grant = ApprovalGrant::for_call(tool_name, input, rules);
        let cause = undecided_reason(&broker.agent, request);
        Self { broker, request, summary, cause, grant, started_at: Instant::now() }
    }

    async fn decide(&self) -> ApprovalDecision {
        if let Some(before) = self.find_grant() {
            return before;
        }
        if let Some(why) = self.broker.prompt.unavailable_reason() {
            return ApprovalDecision::deny("nobody", format!("nobody can be asked: {why}"));
        }
        // The semaphore is never closed; if it were, the call would be denied.
        let Ok(_turn) = self.broker.question_permit.acquire().await else {
            return ApprovalDecision::deny("nobody", "nobody can be asked any more".to_owned());
        };
        match self.find_grant() {
            Some(before) => before,
            None => self.ask_person().await,
        }
    }

    fn find_grant(&self) -> Option<ApprovalDecision> {
        let PermissionRequest { tool_name, input, .. } = self.request;
        let grants = self.broker.grants.lock();
        let grant = grants.iter().find(|grant| grant.covers(tool_name, input))?;
        let (caller, calls) = (&self.broker.caller, grant.describe());
        let reason = format!("the person at `{caller}` allowed {calls} for this run");
        Some(ApprovalDecision::allow("allowed_for_run", reason))
    }

    async fn ask_person(&self) -> ApprovalDecision {
        let broker = self.broker;
        let asked = self.entry("approval_question", self.cause.clone());
        if broker.gateway.write_audit_entry(asked).await.is_err() {
            return ApprovalDecision::not_audited();
        }
        if let Some(status) = broker.status.upgrade() {
            status.set_activity(&format!("waiting for a person to allow {}", self.summary));
        }
        let question = self.question();
        let mut open = PendingQuestion { case: self, is_answered: false };
        let reply = timeout(question.timeout, broker.prompt.ask(&question)).await;
        open.is_answered = true;
        if reply == Ok(ApprovalAnswer::AllowForRun) {
            broker.grants.lock().push(self.grant.clone());
        }
        self.to_decision(reply.ok(), &question)
    }

    fn to_decision(
        &self,
        reply: Option<ApprovalAnswer>,
        question: &ApprovalQuestion,
    ) -> ApprovalDecision {
        let person = format!("the person at `{}`", self.broker.caller);
        let (rule, reason) = match reply {
            Some(ApprovalAnswer::AllowOnce) => {
                return ApprovalDecision::allow("allow_once", format!("{person} allowed it once"));
            }
            Some(ApprovalAnswer::AllowForRun) => {
                let reason = format!("{person} allowed {} for this run", question.grant_scope);
                return ApprovalDecision::allow("allow_for_run", reason);
            }
            Some(ApprovalAnswer::Deny) => ("deny", format!("{person} said no")),
            Some(ApprovalAnswer::Dismissed) => {
                let caller = &self.broker.caller;
                ("dismissed", format!("the question was put away at `{caller}`, unanswered"))
            }
            Some(ApprovalAnswer::Unreachable { why }) => {
                ("nobody", format!("nobody can be asked: {why}"))
            }
            None => {
                let seconds = question.timeout.as_secs_f64();
                ("timeout", format!("nobody answered within {seconds} s"))
            }
        };
        ApprovalDecision::deny(rule, reason)
    }

    fn decision_entry(&self, decided: &ApprovalDecision) -> AuditEntry {
        AuditEntry {
            decision: Some(decided.decision),
            rule: Some(decided.rule.to_owned()),
            duration: Some(self.started_at.elapsed()),
            ..self.entry("approval", format!("{}; {}", self.cause, decided.reason))
        }
    }

    fn entry(&self, operation: &'static str, reason: String) -> AuditEntry {
        let PermissionRequest { tool_name, tool_use_id, input, .. } = self.request;
        self.broker.draft_entry(operation, (tool_name, tool_use_id), input, reason)
    }

    fn question(&self) -> ApprovalQuestion {
        let agent = &self.broker.agent;
        let clean = |text: &str| self.broker.redactor.redact(&one_line(text));
        let said = self.request.reason.as_deref().map(|said| shorten(&one_line(said), 200));
        let said = said.filter(|said| !said.is_empty()).map(|said| format!(" (claude: {said})"));
        ApprovalQuestion {
            agent: agent.name.to_string(),
            tool: shorten(&one_line(&self.request.tool_name), 120),
            redacted_arguments: self.arguments(),
            reason: clean(&format!("{}{}", self.cause, said.unwrap_or_default())),
            grant_scope: clean(&self.grant.describe()),
            timeout: agent.limits.approval_timeout,
        }
    }

    /// Returns the redacted arguments as JSON on one line; of more than 750 characters, the middle is
    /// omitted.
    fn arguments(&self) -> String {
        let text = strip_control_chars(&self.broker.redacted(&self.request.input).to_string());
        let all = text.chars().count();
        if all <= ARGUMENT_HEAD_CHARS + ARGUMENT_TAIL_CHARS {
            return text;
        }
        let hidden = all - ARGUMENT_HEAD_CHARS - ARGUMENT_TAIL_CHARS;
        let before: String = text.chars().take(ARGUMENT_HEAD_CHARS).collect();
        let after: String = text.chars().skip(ARGUMENT_HEAD_CHARS + hidden).collect();
        format!("{before} [… {hidden} characters are not shown …] {after}")
    }

    fn result(&self, decided: &ApprovalDecision) -> ApprovalResult {
        if decided.decision == Decision::Allow {
            return ApprovalResult::Allowed;
        }
        let Self { summary: what, cause: why, .. } = self;
        let (agent, because) = (&self.broker.agent.name, &decided.reason);
        let suggested = self.request.suggested_rule().filter(|_| decided.rule != "deny");
        let suggested = suggested.map(|rule| shorten(&one_line(&rule), 200));
        let help = suggested.as_ref().map_or(String::new(), |rule| {
            format!(" `{rule}` in `permissions.allow` of its agent.md would allow it.")
        });
        ApprovalResult::Denied {
            rule: format!("{}: {why}; {because}", suggested.unwrap_or(format!("`{what}`"))),
            message: format!(
                "Denied by Adjutant: agent `{agent}` wants `{what}`; {why}, and {because}.{help} {DENIAL_ADVICE}"
            ),
        }
    }
}

/// Guard of a question that is being asked.
///
/// Dropped unanswered, it writes a denial `withdrawn` to the audit log.
struct PendingQuestion<'a> {
    case: &'a ApprovalCase<'a>,
    is_answered: bool,
}

impl Drop for PendingQuestion<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            let reason = "the run no longer waited for an answer".to_owned();
            let withdrawn = ApprovalDecision::deny("withdrawn", reason);
            // A denial: nothing waits for its entry.
            self.case.broker.gateway.try_write_audit_entry(self.case.decision_entry(&withdrawn));
        }
    }
}

/// Explains that no rule decides the call.
fn undecided_reason(agent: &Agent, request: &PermissionRequest) -> String {
    let tool = &request.tool_name;
    let asks = agent.permissions.ask.iter().filter(|rule| may_have_asked(rule, request));
    let asks: Vec<String> = asks.map(|rule| format!("`{rule}`")).collect();
    if !asks.is_empty() {
        let rules = asks.join(" or ");
        return format!("{rules} in `permissions.ask` of its agent.md wants a person to decide");
    }
    let server = if tool.starts_with("mcp__") { "its server is not trusted and " } else { "" };
    format!("{server}no rule for `{tool}` in `permissions.allow` of its agent.md allows it")
}

/// Returns `true` if a rule in `permissions.ask` may have triggered the request.
///
/// If `claude` suggests a rule that would allow the call, no built-in rule triggered the request.
fn may_have_asked(rule: &RuleText, request: &PermissionRequest) -> bool {
    let tool = request.tool_name.as_str();
    let is_server = tool.strip_prefix(&rule.tool).is_some_and(|rest| rest.starts_with("__"));
    let is_mcp = tool.starts_with("mcp__");
    (is_mcp && (is_server || Pattern::new(&rule.tool).matches(tool)))
        || (rule.tool == tool && request.suggested_rule().is_none())
}
