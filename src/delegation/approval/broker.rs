//! Approval: a call that no rule decides goes to a person, and without one it is refused. Every question and answer is audited.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::approval_scope::Scope;
use super::asking::{Asker, Question, Reply};
use super::prepare;
use super::redact::{redact, redact_value};
use super::status::StatusBoard;
use crate::base::{RunId, one_line, shorten, without_controls};
use crate::catalog::{Agent, RuleText};
use crate::claude::{ApprovalRequest, summarize_tool};
use crate::gateway::Gateway;
use crate::identity::{Caller, KnownBy};
use crate::policy::{Decision, Pattern};
use crate::record::{AuditLine, Secret};

/// How much of the arguments a person sees; the end counts too, since something could hide there.
const SHOWN_BEFORE: usize = 500;
const SHOWN_AFTER: usize = 250;
const ADVICE: &str = "Do without it, and say so in your answer.";

/// What one run may ask of people, and what they have allowed it.
pub(super) struct Approvals {
    run: RunId,
    caller: String,
    asker: Arc<dyn Asker>,
    gateway: Arc<Gateway>,
    granted: Mutex<Vec<Scope>>,
    /// One question at a time: the answer to one may answer the next.
    turn: Semaphore,
}

/// How a request for approval ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Allowed,
    Denied {
        /// For the report.
        rule: String,
        /// For the model.
        message: String,
    },
}

/// A decision, with how it came to be: `by` for the audit log's rule, `because` for its sentence.
struct Decided {
    decision: Decision,
    by: &'static str,
    because: String,
}

impl Approvals {
    pub(super) fn new(
        run: RunId,
        caller: &Caller,
        asker: Arc<dyn Asker>,
        gateway: &Arc<Gateway>,
    ) -> Arc<Self> {
        Arc::new(Self {
            run,
            caller: caller.name.clone(),
            asker,
            gateway: Arc::clone(gateway),
            granted: Mutex::default(),
            turn: Semaphore::new(1),
        })
    }

    /// Allowed before, allowed now, or refused.
    pub(super) async fn decide(
        &self,
        agent: &Agent,
        request: &ApprovalRequest,
        board: &StatusBoard,
    ) -> Verdict {
        let matter = Matter::new(agent, request);
        let decided = self.decided(&matter, board).await;
        match self.write_down(&matter, &decided) {
            Ok(()) => matter.verdict(&decided),
            Err(unwritten) => matter.verdict(&unwritten),
        }
    }

    /// Writes down a tool that was refused before anybody could be asked. It stays refused where that cannot be written.
    pub(super) fn refused(
        &self,
        agent: &Agent,
        (tool, call): (&str, &str),
        input: &Value,
        reason: &str,
    ) {
        let mut arguments = input.clone();
        redact_value(&mut arguments, &prepare::secrets(agent));
        let mut line = self.draft("tool_use", agent, tool, call);
        line.decision = Some(Decision::Deny);
        line.reason = Some(reason.to_owned());
        line.arguments = Some(arguments);
        let _ = self.gateway.write_down(&line);
    }

    async fn decided(&self, matter: &Matter<'_>, board: &StatusBoard) -> Decided {
        if let Some(before) = self.allowed_before(matter) {
            return before;
        }
        if let Some(why) = self.asker.absence() {
            return denied("nobody", format!("nobody can be asked: {why}"));
        }
        // Closed by nobody; a permit that does not come is a refusal all the same.
        let Ok(_turn) = self.turn.acquire().await else {
            return denied("nobody", "nobody can be asked any more".to_owned());
        };
        match self.allowed_before(matter) {
            Some(before) => before,
            None => self.ask(matter, board).await,
        }
    }

    fn allowed_before(&self, matter: &Matter<'_>) -> Option<Decided> {
        let request = matter.request;
        let granted = self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        let covers = |scope: &&Scope| scope.covers(&request.tool_name, &request.input);
        let scope = granted.iter().find(covers)?;
        let because =
            format!("the person at `{}` allowed {} for this run", self.caller, scope.words());
        Some(Decided { decision: Decision::Allow, by: "allowed_for_run", because })
    }

    async fn ask(&self, matter: &Matter<'_>, board: &StatusBoard) -> Decided {
        let asked = self.line("approval_question", matter);
        if self.gateway.write_down(&asked).is_err() {
            return unwritten();
        }
        board.doing(&format!("waiting for a person to allow {}", matter.what));
        let question = matter.question();
        let mut open = Open { approvals: self, matter, answered: false };
        let reply = timeout(question.patience, self.asker.ask(&question)).await;
        open.answered = true;
        if reply == Ok(Reply::AllowForRun) {
            let mut granted = self.granted.lock().unwrap_or_else(PoisonError::into_inner);
            granted.push(matter.scope.clone());
        }
        self.meaning(reply.ok(), &question)
    }

    fn meaning(&self, reply: Option<Reply>, question: &Question) -> Decided {
        let caller = &self.caller;
        let allow = |by, because| Decided { decision: Decision::Allow, by, because };
        match reply {
            Some(Reply::AllowOnce) => {
                allow("allow_once", format!("the person at `{caller}` allowed it once"))
            }
            Some(Reply::AllowForRun) => allow(
                "allow_for_run",
                format!("the person at `{caller}` allowed {} for this run", question.lasting),
            ),
            Some(Reply::Deny) => denied("deny", format!("the person at `{caller}` said no")),
            Some(Reply::Dismissed) => {
                denied("dismissed", format!("the question was put away at `{caller}`, unanswered"))
            }
            Some(Reply::Unreachable { why }) => {
                denied("nobody", format!("nobody can be asked: {why}"))
            }
            None => {
                let seconds = question.patience.as_secs_f64();
                denied("timeout", format!("nobody answered within {seconds} s"))
            }
        }
    }

    fn write_down(&self, matter: &Matter<'_>, decided: &Decided) -> Result<(), Decided> {
        let mut line = self.line("approval", matter);
        line.decision = Some(decided.decision);
        line.rule = Some(decided.by.to_owned());
        line.reason = Some(format!("{}; {}", matter.why, decided.because));
        line.latency_us = u64::try_from(matter.since.elapsed().as_micros()).ok();
        self.gateway.write_down(&line).map_err(|_| unwritten())
    }

    fn line(&self, operation: &'static str, matter: &Matter<'_>) -> AuditLine {
        let request = matter.request;
        let mut line =
            self.draft(operation, matter.agent, &request.tool_name, &request.tool_use_id);
        line.reason = Some(matter.why.clone());
        let mut arguments = matter.request.input.clone();
        redact_value(&mut arguments, &matter.secrets);
        line.arguments = Some(arguments);
        line
    }

    fn draft(&self, operation: &'static str, agent: &Agent, tool: &str, call: &str) -> AuditLine {
        let who = Caller::new(agent.name.as_str(), KnownBy::Pipe);
        let mut line = AuditLine::new(operation).by(&who);
        line.tool = Some(tool.to_owned());
        line.run_id = Some(self.run);
        line.call_id = Some(call.to_owned());
        line
    }
}

/// A question on its way. Where the run ends before the answer, that is written down.
struct Open<'a> {
    approvals: &'a Approvals,
    matter: &'a Matter<'a>,
    answered: bool,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if !self.answered {
            let gone = denied("withdrawn", "the run no longer waited for an answer".to_owned());
            // Nothing is allowed by it, so a log that cannot be written changes nothing.
            let _ = self.approvals.write_down(self.matter, &gone);
        }
    }
}

/// What is to be decided, with everything that is said about it.
struct Matter<'a> {
    agent: &'a Agent,
    request: &'a ApprovalRequest,
    secrets: Vec<Secret>,
    what: String,
    why: String,
    scope: Scope,
    since: Instant,
}

impl<'a> Matter<'a> {
    fn new(agent: &'a Agent, request: &'a ApprovalRequest) -> Self {
        let secrets = prepare::secrets(agent);
        let mut what = summarize_tool(&request.tool_name, &request.input);
        redact(&mut what, &secrets);
        let suggested = request.suggested_rule().map(|rule| parsed(&rule));
        let asks = agent.permissions.ask.iter();
        let scope = Scope::of(&request.tool_name, &request.input, suggested.iter().chain(asks));
        let why = why(agent, request);
        Self { agent, request, secrets, what, why, scope, since: Instant::now() }
    }

    fn question(&self) -> Question {
        let clean = |text: &str| {
            let mut text = one_line(text);
            redact(&mut text, &self.secrets);
            text
        };
        let said = self.request.reason.as_deref().map(|said| shorten(&one_line(said), 200));
        let said = said.filter(|said| !said.is_empty()).map(|said| format!(" (claude: {said})"));
        Question {
            agent: self.agent.name.to_string(),
            tool: shorten(&one_line(&self.request.tool_name), 120),
            arguments: self.arguments(),
            reason: clean(&format!("{}{}", self.why, said.unwrap_or_default())),
            lasting: clean(&self.scope.words()),
            patience: patience(self.agent),
        }
    }

    /// The arguments as JSON on one line; of very long ones the beginning and the end.
    fn arguments(&self) -> String {
        let mut arguments = self.request.input.clone();
        redact_value(&mut arguments, &self.secrets);
        let text = without_controls(&arguments.to_string());
        let all = text.chars().count();
        if all <= SHOWN_BEFORE + SHOWN_AFTER {
            return text;
        }
        let hidden = all - SHOWN_BEFORE - SHOWN_AFTER;
        let before: String = text.chars().take(SHOWN_BEFORE).collect();
        let after: String = text.chars().skip(SHOWN_BEFORE + hidden).collect();
        format!("{before} [… {hidden} characters are not shown …] {after}")
    }

    fn verdict(&self, decided: &Decided) -> Verdict {
        if decided.decision == Decision::Allow {
            return Verdict::Allowed;
        }
        let Self { agent, what, why, .. } = self;
        let Decided { because, .. } = decided;
        let suggested = self.request.suggested_rule().filter(|_| decided.by != "deny");
        let suggested = suggested.map(|rule| shorten(&one_line(&rule), 200));
        let help = suggested.as_ref().map(|rule| {
            format!(" `{rule}` in `permissions.allow` of its agent.md would allow it.")
        });
        let help = help.unwrap_or_default();
        Verdict::Denied {
            rule: format!("{}: {why}; {because}", suggested.unwrap_or(format!("`{what}`"))),
            message: format!(
                "Denied by Adjutant: agent `{}` wants `{what}`; {why}, and {because}.{help} {ADVICE}",
                agent.name
            ),
        }
    }
}

/// How long a person has.
fn patience(agent: &Agent) -> Duration {
    agent.limits.approval_timeout
}

/// Why no rule decides.
fn why(agent: &Agent, request: &ApprovalRequest) -> String {
    let tool = &request.tool_name;
    let asks: Vec<String> = asking_rules(agent, request).map(|rule| format!("`{rule}`")).collect();
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

/// The rules in `permissions.ask` that may have asked. Where `claude` names a rule that would help, none of them did.
fn asking_rules<'a>(
    agent: &'a Agent,
    request: &'a ApprovalRequest,
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

/// `Bash(git push:*)` in its two parts.
fn parsed(rule: &str) -> RuleText {
    let parts = rule.strip_suffix(')').and_then(|rule| rule.split_once('('));
    match parts {
        Some((tool, specifier)) => {
            RuleText { tool: tool.to_owned(), specifier: Some(specifier.to_owned()) }
        }
        None => RuleText { tool: rule.to_owned(), specifier: None },
    }
}

fn denied(by: &'static str, because: String) -> Decided {
    Decided { decision: Decision::Deny, by, because }
}

fn unwritten() -> Decided {
    denied("audit", "the audit log cannot be written, so nothing may be allowed".to_owned())
}
