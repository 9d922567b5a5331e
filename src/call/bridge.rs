//! What Adjutant answers when an agent's process asks: may this tool run, and what do its servers say?

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::interval;

use super::approvals::{Approvals, Verdict};
use super::outlet::Outlet;
use super::recorder::Recorder;
use super::status::StatusBoard;
use crate::base::{one_line, shorten};
use crate::catalog::Agent;
use crate::claude::{
    Approval, ApprovalRequest, BoxFuture, Handle, HookVerdict, Observation, Parent, ToolUse,
};
use crate::gateway::Tunnel;
use crate::outcome::Denial;
use crate::policy::{Evaluation, judge_builtin, judge_mcp_tool};

/// How often a run that waits for a person shows that it lives.
const MOST_SILENCE: Duration = Duration::from_secs(1);
const LEAST_SILENCE: Duration = Duration::from_millis(1);

/// Our side of a process's pipe. It lives as long as the process; what it sees and answers is for the run that uses it now.
pub(super) struct Bridge {
    agent: Arc<Agent>,
    tunnel: Option<Arc<Tunnel>>,
    outlet: Arc<Outlet>,
    errand: Mutex<Arc<Errand>>,
    last_sign: watch::Sender<Instant>,
}

/// What a process does for one run: where it is shown, and what was seen of it.
pub(super) struct Errand {
    board: StatusBoard,
    /// A process that waits for its first run has neither yet.
    recorder: Option<Arc<Recorder>>,
    approvals: Option<Arc<Approvals>>,
    seen: Mutex<Seen>,
}

impl Errand {
    pub(super) fn new(
        board: StatusBoard,
        recorder: Option<Arc<Recorder>>,
        approvals: Option<Arc<Approvals>>,
    ) -> Arc<Self> {
        Arc::new(Self { board, recorder, approvals, seen: Mutex::default() })
    }

    /// A tool of a server says how far it is.
    pub(super) fn tool_says(&self, words: &str) {
        self.board.doing(words);
    }

    /// What was seen so far.
    pub(super) fn seen(&self) -> Seen {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn record<R>(&self, what: impl FnOnce(&Recorder) -> R) -> Option<R> {
        self.recorder.as_deref().map(what)
    }

    fn note(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// What was seen of a run, for its report.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Calls that were refused.
    pub(super) denials: Vec<Denial>,
    /// Whether any tool has run: from then on nothing is tried twice.
    pub(super) tool_ran: bool,
}

impl Bridge {
    pub(super) fn new(
        agent: Arc<Agent>,
        tunnel: Option<Arc<Tunnel>>,
        errand: Arc<Errand>,
    ) -> Arc<Self> {
        let (last_sign, _) = watch::channel(Instant::now());
        let outlet = Arc::default();
        Arc::new(Self { agent, tunnel, outlet, errand: Mutex::new(errand), last_sign })
    }

    /// The process is ready: what its servers say on their own finds the way to it from now on.
    pub(super) fn opened(&self, handle: Handle) {
        self.outlet.open(handle);
        if let Some(tunnel) = &self.tunnel {
            tunnel.tell_changes(&self.outlet.tell(self.errand(), self.last_sign.clone()));
        }
    }

    fn errand(&self) -> Arc<Errand> {
        Arc::clone(&self.errand.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// When the process last gave a sign of life.
    pub(super) fn signs(&self) -> watch::Receiver<Instant> {
        self.last_sign.subscribe()
    }

    fn refuse(&self, tool: &str, rule: &str) {
        let denial = Denial { tool: tool.to_owned(), rule: rule.to_owned() };
        self.errand().note(|seen| {
            if !seen.denials.contains(&denial) {
                seen.denials.push(denial);
            }
        });
    }

    /// Whole tools by the agent's own policy, whatever Claude Code's rules would say.
    fn judge(&self, tool: &str) -> Evaluation {
        match tool.strip_prefix("mcp__").and_then(|rest| rest.split_once("__")) {
            Some((server, name)) => match &self.tunnel {
                Some(tunnel) => tunnel.judge(server, name),
                None => judge_mcp_tool(&self.agent, server, name, None),
            },
            None => judge_builtin(&self.agent, tool),
        }
    }

    fn judge_use(&self, tool_use: &ToolUse) -> HookVerdict {
        let verdict = self.judge(&tool_use.tool_name);
        if verdict.is_allowed() {
            return HookVerdict::Proceed;
        }
        self.refuse(&tool_use.tool_name, verdict.sentence());
        HookVerdict::Deny { reason: verdict.sentence().to_owned() }
    }

    /// Asks a person, where one can be asked. Others go on meanwhile: each question has a task of its own.
    async fn answer(&self, request: &ApprovalRequest, errand: &Errand) -> Approval {
        let Some(approvals) = &errand.approvals else {
            let message = "Denied by Adjutant: no run is going on".to_owned();
            return Approval::Deny { message };
        };
        let deciding = approvals.decide(&self.agent, request, &errand.board);
        match self.awake(deciding).await {
            Verdict::Allowed => Approval::Allow { updated_input: request.input.clone() },
            Verdict::Denied { rule, message } => {
                self.refuse(&request.tool_name, &rule);
                Approval::Deny { message }
            }
        }
    }

    /// Waits for a person, who may take longer than a process may be silent.
    async fn awake<T>(&self, waiting: impl Future<Output = T>) -> T {
        let longest = self.agent.limits.idle_timeout.unwrap_or(MOST_SILENCE);
        let mut signs = interval((longest / 2).clamp(LEAST_SILENCE, MOST_SILENCE));
        tokio::pin!(waiting);
        loop {
            tokio::select! {
                done = &mut waiting => return done,
                _ = signs.tick() => drop(self.last_sign.send_replace(Instant::now())),
            }
        }
    }
}

impl Parent for Bridge {
    fn pre_tool_use(&self, tool_use: ToolUse) -> BoxFuture<'_, HookVerdict> {
        Box::pin(async move {
            let errand = self.errand();
            errand.record(|recorder| recorder.tool_wanted(&tool_use));
            let verdict = self.judge_use(&tool_use);
            if let HookVerdict::Deny { reason } = &verdict {
                let (id, tool) = (&tool_use.tool_use_id, &tool_use.tool_name);
                errand.record(|recorder| recorder.denied(id, tool, reason));
            }
            verdict
        })
    }

    fn can_use_tool(&self, request: ApprovalRequest) -> BoxFuture<'_, Approval> {
        Box::pin(async move {
            let errand = self.errand();
            errand.record(|recorder| recorder.permission_asked(&request));
            let approval = self.answer(&request, &errand).await;
            if let Approval::Deny { message } = &approval {
                let (id, tool) = (&request.tool_use_id, &request.tool_name);
                errand.record(|recorder| recorder.denied(id, tool, message));
            }
            approval
        })
    }

    fn mcp_message(&self, server: String, message: Value) -> BoxFuture<'_, Option<Value>> {
        Box::pin(async move {
            match &self.tunnel {
                Some(tunnel) => {
                    let tell = self.outlet.tell(self.errand(), self.last_sign.clone());
                    tunnel.message(&server, &message, &tell).await
                }
                None => None,
            }
        })
    }

    fn hook_event(&self, event: String, payload: Map<String, Value>) -> BoxFuture<'_, Value> {
        self.errand().record(|recorder| recorder.hook(&event, payload));
        Box::pin(async { json!({}) })
    }

    fn observe(&self, observation: &Observation<'_>) {
        self.last_sign.send_replace(Instant::now());
        let errand = self.errand();
        let board = &errand.board;
        match observation {
            Observation::SessionStarted(init) => {
                errand.record(|recorder| recorder.session_seen(init));
                board.now("thinking");
            }
            Observation::Text(_) => board.now("writing"),
            Observation::ToolStarted { summary, .. } => board.tool(summary),
            Observation::ToolFinished { tool_use_id, is_error, text } => {
                errand.record(|recorder| recorder.tool_seen(tool_use_id, *is_error, text));
                errand.note(|seen| seen.tool_ran |= !is_error);
                board.now("thinking");
            }
            Observation::Turn { turns } => board.turns(*turns),
            Observation::ApiRetry { attempt, max_retries, error, .. } => {
                board.doing(&format!(
                    "waiting for the API: {error} (attempt {attempt} of {max_retries})"
                ));
            }
            Observation::PermissionDenied { tool_name, message } => {
                self.refuse(tool_name, &shorten(&one_line(message), 200));
            }
            Observation::TurnFinished { cost_usd, turns } => board.spent(*turns, *cost_usd),
            Observation::StaleResult => {}
        }
    }
}
