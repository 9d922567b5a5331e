//! Approval of tool calls that no rule decides: a person is asked; if nobody can be, the call is
//! denied.
//!
//! Every question and every result is written to the audit log before it takes effect.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::super::secrets::{redact, redact_value, server_secrets};
use super::super::status::WeakStatusSender;
use super::grant::ApprovalGrant;
use super::prompt::{ApprovalAnswer, ApprovalPrompt, ApprovalQuestion};
use crate::audit::AuditEntry;
use crate::catalog::{Agent, RuleText};
use crate::claude::{PermissionRequest, summarize_tool};
use crate::gateway::Gateway;
use crate::identity::{Caller, KnownBy};
use crate::policy::Decision;
use crate::util::{Mutex, Pattern, RunId, Secret, one_line, shorten, strip_control_chars};

/// Characters of the arguments that a person is shown: the first 500 and the last 250, because
/// something harmful could stand at the end.
const ARGUMENT_HEAD_CHARS: usize = 500;
const ARGUMENT_TAIL_CHARS: usize = 250;
const DENIAL_ADVICE: &str = "Do without it, and say so in your answer.";

/// Decides the approvals of one run and holds the grants that a person gave it.
pub(crate) struct ApprovalBroker {
    run: RunId,
    caller: String,
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

/// Decision with its origin: `by` is the rule of the audit entry, `because` its reason.
struct ApprovalDecision {
    decision: Decision,
    rule: &'static str,
    reason: String,
}

impl ApprovalBroker {
    pub(crate) fn new(
        run: RunId,
        caller: &Caller,
        asker: Arc<dyn ApprovalPrompt>,
        gateway: &Arc<Gateway>,
    ) -> Arc<Self> {
        Arc::new(Self {
            run,
            caller: caller.name.clone(),
            prompt: asker,
            gateway: Arc::clone(gateway),
            grants: Mutex::default(),
            question_permit: Semaphore::new(1),
        })
    }

    /// Decides one call: by an earlier grant, or by asking a person.
    ///
    /// The call is denied if the audit entry cannot be written.
    pub(crate) async fn decide(
        &self,
        agent: &Agent,
        request: &PermissionRequest,
        status: &WeakStatusSender,
    ) -> ApprovalResult {
        let case = ApprovalCase::new(agent, request);
        let decided = self.decide_unaudited(&case, status).await;
        match self.write_audit_entry(&case, &decided).await {
            Ok(()) => case.result(&decided),
            Err(unwritten) => case.result(&unwritten),
        }
    }

    /// Writes the audit entry of a tool call that was denied without asking a person.
    ///
    /// Does not wait for the write, and ignores its errors: the call is denied in any case.
    pub(crate) fn audit_denial(
        &self,
        agent: &Agent,
        (tool, call): (&str, &str),
        input: &Value,
        reason: &str,
    ) {
        let mut arguments = input.clone();
        redact_value(&mut arguments, &server_secrets(agent));
        let mut line = self.draft_entry("tool_use", agent, tool, call);
        line.decision = Some(Decision::Deny);
        line.reason = Some(reason.to_owned());
        line.arguments = Some(arguments);
        self.gateway.try_write_audit_entry(line);
    }

    async fn decide_unaudited(
        &self,
        matter: &ApprovalCase<'_>,
        status: &WeakStatusSender,
    ) -> ApprovalDecision {
        if let Some(before) = self.find_grant(matter) {
            return before;
        }
        if let Some(why) = self.prompt.unavailable_reason() {
            return denied("nobody", format!("nobody can be asked: {why}"));
        }
        // The semaphore is never closed; if it were, the call would be denied.
        let Ok(_turn) = self.question_permit.acquire().await else {
            return denied("nobody", "nobody can be asked any more".to_owned());
        };
        match self.find_grant(matter) {
            Some(before) => before,
            None => self.ask_person(matter, status).await,
        }
    }

    fn find_grant(&self, matter: &ApprovalCase<'_>) -> Option<ApprovalDecision> {
        let request = matter.request;
        let granted = self.grants.lock();
        let covers = |scope: &&ApprovalGrant| scope.covers(&request.tool_name, &request.input);
        let scope = granted.iter().find(covers)?;
        let because =
            format!("the person at `{}` allowed {} for this run", self.caller, scope.describe());
        Some(ApprovalDecision {
            decision: Decision::Allow,
            rule: "allowed_for_run",
            reason: because,
        })
    }

    async fn ask_person(
        &self,
        matter: &ApprovalCase<'_>,
        status: &WeakStatusSender,
    ) -> ApprovalDecision {
        let asked = self.case_entry("approval_question", matter);
        if self.gateway.write_audit_entry(asked).await.is_err() {
            return audit_failed();
        }
        if let Some(status) = status.upgrade() {
            status.set_activity(&format!("waiting for a person to allow {}", matter.summary));
        }
        let question = matter.question();
        let mut open = PendingQuestion { broker: self, case: matter, is_answered: false };
        let reply = timeout(question.timeout, self.prompt.ask(&question)).await;
        open.is_answered = true;
        if reply == Ok(ApprovalAnswer::AllowForRun) {
            let mut granted = self.grants.lock();
            granted.push(matter.grant.clone());
        }
        self.to_decision(reply.ok(), &question)
    }

    fn to_decision(
        &self,
        reply: Option<ApprovalAnswer>,
        question: &ApprovalQuestion,
    ) -> ApprovalDecision {
        let caller = &self.caller;
        let allow =
            |by, because| ApprovalDecision { decision: Decision::Allow, rule: by, reason: because };
        match reply {
            Some(ApprovalAnswer::AllowOnce) => {
                allow("allow_once", format!("the person at `{caller}` allowed it once"))
            }
            Some(ApprovalAnswer::AllowForRun) => allow(
                "allow_for_run",
                format!("the person at `{caller}` allowed {} for this run", question.grant_scope),
            ),
            Some(ApprovalAnswer::Deny) => {
                denied("deny", format!("the person at `{caller}` said no"))
            }
            Some(ApprovalAnswer::Dismissed) => {
                denied("dismissed", format!("the question was put away at `{caller}`, unanswered"))
            }
            Some(ApprovalAnswer::Unreachable { why }) => {
                denied("nobody", format!("nobody can be asked: {why}"))
            }
            None => {
                let seconds = question.timeout.as_secs_f64();
                denied("timeout", format!("nobody answered within {seconds} s"))
            }
        }
    }

    async fn write_audit_entry(
        &self,
        matter: &ApprovalCase<'_>,
        decided: &ApprovalDecision,
    ) -> Result<(), ApprovalDecision> {
        let entry = self.decision_entry(matter, decided);
        self.gateway.write_audit_entry(entry).await.map_err(|_| audit_failed())
    }

    fn decision_entry(&self, matter: &ApprovalCase<'_>, decided: &ApprovalDecision) -> AuditEntry {
        let mut line = self.case_entry("approval", matter);
        line.decision = Some(decided.decision);
        line.rule = Some(decided.rule.to_owned());
        line.reason = Some(format!("{}; {}", matter.cause, decided.reason));
        line.latency_us = u64::try_from(matter.started_at.elapsed().as_micros()).ok();
        line
    }

    fn case_entry(&self, operation: &'static str, matter: &ApprovalCase<'_>) -> AuditEntry {
        let request = matter.request;
        let mut line =
            self.draft_entry(operation, matter.agent, &request.tool_name, &request.tool_use_id);
        line.reason = Some(matter.cause.clone());
        let mut arguments = matter.request.input.clone();
        redact_value(&mut arguments, &matter.secrets);
        line.arguments = Some(arguments);
        line
    }

    fn draft_entry(
        &self,
        operation: &'static str,
        agent: &Agent,
        tool: &str,
        call: &str,
    ) -> AuditEntry {
        let who = Caller::new(agent.name.as_str(), KnownBy::Pipe);
        let mut line = AuditEntry::new(operation).with_caller(&who);
        line.tool = Some(tool.to_owned());
        line.run_id = Some(self.run);
        line.call_id = Some(call.to_owned());
        line
    }
}

/// Guard of a question that is being asked.
///
/// Dropped unanswered, it writes a denial `withdrawn` to the audit log.
struct PendingQuestion<'a> {
    broker: &'a ApprovalBroker,
    case: &'a ApprovalCase<'a>,
    is_answered: bool,
}

impl Drop for PendingQuestion<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            let gone = denied("withdrawn", "the run no longer waited for an answer".to_owned());
            // A denial: nothing waits for its entry.
            self.broker.gateway.try_write_audit_entry(self.broker.decision_entry(self.case, &gone));
        }
    }
}

/// One call to decide, with the redacted texts that describe it.
struct ApprovalCase<'a> {
    agent: &'a Agent,
    request: &'a PermissionRequest,
    secrets: Vec<Secret>,
    summary: String,
    cause: String,
    grant: ApprovalGrant,
    started_at: Instant,
}

impl<'a> ApprovalCase<'a> {
    fn new(agent: &'a Agent, request: &'a PermissionRequest) -> Self {
        let secrets = server_secrets(agent);
        let mut summary = summarize_tool(&request.tool_name, &request.input);
        redact(&mut summary, &secrets);
        let suggested = request.suggested_rule().map(|rule| parse_rule(&rule));
        let asks = agent.permissions.ask.iter();
        let grant = ApprovalGrant::for_call(
            &request.tool_name,
            &request.input,
            suggested.iter().chain(asks),
        );
        let cause = undecided_reason(agent, request);
        Self { agent, request, secrets, summary, cause, grant, started_at: Instant::now() }
    }

    fn question(&self) -> ApprovalQuestion {
        let clean = |text: &str| {
            let mut text = one_line(text);
            redact(&mut text, &self.secrets);
            text
        };
        let said = self.request.reason.as_deref().map(|said| shorten(&one_line(said), 200));
        let said = said.filter(|said| !said.is_empty()).map(|said| format!(" (claude: {said})"));
        ApprovalQuestion {
            agent: self.agent.name.to_string(),
            tool: shorten(&one_line(&self.request.tool_name), 120),
            redacted_arguments: self.arguments(),
            reason: clean(&format!("{}{}", self.cause, said.unwrap_or_default())),
            grant_scope: clean(&self.grant.describe()),
            timeout: approval_timeout(self.agent),
        }
    }

    /// Returns the redacted arguments as JSON on one line; of more than 750 characters, the middle is
    /// omitted.
    fn arguments(&self) -> String {
        let mut arguments = self.request.input.clone();
        redact_value(&mut arguments, &self.secrets);
        let text = strip_control_chars(&arguments.to_string());
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
        let Self { agent, summary: what, cause: why, .. } = self;
        let ApprovalDecision { reason: because, .. } = decided;
        let suggested = self.request.suggested_rule().filter(|_| decided.rule != "deny");
        let suggested = suggested.map(|rule| shorten(&one_line(&rule), 200));
        let help = suggested.as_ref().map(|rule| {
            format!(" `{rule}` in `permissions.allow` of its agent.md would allow it.")
        });
        let help = help.unwrap_or_default();
        ApprovalResult::Denied {
            rule: format!("{}: {why}; {because}", suggested.unwrap_or(format!("`{what}`"))),
            message: format!(
                "Denied by Adjutant: agent `{}` wants `{what}`; {why}, and {because}.{help} {DENIAL_ADVICE}",
                agent.name
            ),
        }
    }
}

/// Returns the time within which a person must answer.
fn approval_timeout(agent: &Agent) -> Duration {
    agent.limits.approval_timeout
}

/// Explains that no rule decides the call.
fn undecided_reason(agent: &Agent, request: &PermissionRequest) -> String {
    let tool = &request.tool_name;
    let asks: Vec<String> =
        matching_ask_rules(agent, request).map(|rule| format!("`{rule}`")).collect();
    if !asks.is_empty() {
        let rules = asks.join(" or ");
        return format!("{rules} in `permissions.ask` of its agent.md wants a person to decide");
    }
    match tool.starts_with("mcp__") {
        true => format!(
            "its server is not trusted and no rule for `{tool}` in `permissions.allow` of its agent.md allows it"
        ),
        false => format!("no rule for `{tool}` in `permissions.allow` of its agent.md allows it"),
    }
}

/// Returns the rules in `permissions.ask` that may have triggered the request.
///
/// If `claude` suggests a rule that would allow the call, no built-in rule triggered the request.
fn matching_ask_rules<'a>(
    agent: &'a Agent,
    request: &'a PermissionRequest,
) -> impl Iterator<Item = &'a RuleText> {
    let tool = request.tool_name.as_str();
    let speaks_of = move |rule: &&RuleText| {
        let is_server = tool.strip_prefix(&rule.tool).is_some_and(|rest| rest.starts_with("__"));
        let is_mcp = tool.starts_with("mcp__");
        (is_mcp && (is_server || Pattern::new(&rule.tool).matches(tool)))
            || (rule.tool == tool && request.suggested_rule().is_none())
    };
    agent.permissions.ask.iter().filter(speaks_of)
}

/// Splits a rule such as `Bash(git push:*)` into tool and specifier.
fn parse_rule(rule: &str) -> RuleText {
    let parts = rule.strip_suffix(')').and_then(|rule| rule.split_once('('));
    match parts {
        Some((tool, specifier)) => {
            RuleText { tool: tool.to_owned(), specifier: Some(specifier.to_owned()) }
        }
        None => RuleText { tool: rule.to_owned(), specifier: None },
    }
}

fn denied(by: &'static str, because: String) -> ApprovalDecision {
    ApprovalDecision { decision: Decision::Deny, rule: by, reason: because }
}

fn audit_failed() -> ApprovalDecision {
    denied("audit", "the audit log cannot be written, so nothing may be allowed".to_owned())
}
