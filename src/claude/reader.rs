//! The loop that reads. It waits for nothing but the stream.

use std::sync::Arc;

use tokio::io::AsyncRead;

use super::answers::Answers;
use super::frame::{Assistant, Block, ControlReply, Frame, Init, System, User};
use super::lines::{Line, LineReader};
use super::observation::{Observation, summarize_tool};
use super::parent::{ANSWER_TOOL, Parent};
use super::parse::parse_line;
use super::result::ResultFrame;
use super::shared::{Ending, Phase, Shared};

pub(super) struct Reader<R> {
    pub(super) lines: LineReader<R>,
    pub(super) line_limit: usize,
    pub(super) parent: Arc<dyn Parent>,
    pub(super) shared: Arc<Shared>,
    pub(super) answers: Answers,
    pub(super) initialize_id: String,
    pub(super) expected_session: Option<String>,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// Reads to the end of the stream, and says how it ended.
    pub(super) async fn run(mut self) {
        let ending = loop {
            if let Some(ending) = self.step().await {
                break ending;
            }
        };
        self.shared.set_phase(Phase::Over(ending));
    }

    async fn step(&mut self) -> Option<Ending> {
        let line = tokio::select! {
            line = self.lines.next() => line,
            () = self.answers.finish_one() => return None,
        };
        let frame = match line {
            Ok(Line::Whole(line)) => parse_line(line),
            Ok(Line::TooLong) => return Some(Ending::LineTooLong { limit: self.line_limit }),
            Ok(Line::End) => return Some(Ending::StreamEnded),
            Err(error) => return Some(Ending::ReadFailed { message: error.to_string() }),
        };
        let Some(frame) = frame else {
            self.shared.state().tracker.progress.skipped_lines += 1;
            return None;
        };
        self.take(frame)
    }

    fn take(&mut self, frame: Frame) -> Option<Ending> {
        match frame {
            Frame::System(system) => return self.take_system(&system),
            Frame::Assistant(message) => self.take_assistant(&message),
            Frame::User(message) => self.take_user(&message),
            Frame::Result(result) => return self.take_result(result),
            Frame::ControlRequest(request) => self.answers.begin(request),
            Frame::ControlReply(reply) => self.take_reply(reply),
            Frame::ControlCancel { request_id } => self.answers.cancel(&request_id),
            Frame::TextDelta { text } => {
                self.shared.state().tracker.note_delta(&text);
                self.parent.observe(&Observation::Writing);
            }
            Frame::MessageStarted { parent_tool_use_id, message_id, model, usage } => {
                let speaker = parent_tool_use_id.as_deref();
                self.shared.state().tracker.begin_spending(speaker, &message_id, &model, usage);
                self.parent.observe(&Observation::MessageStarted);
            }
            Frame::MessageEnded { parent_tool_use_id, usage, wants_tools } => {
                let cost_usd =
                    self.shared.state().tracker.end_spending(parent_tool_use_id.as_deref(), usage);
                // A native subagent that has ended is a tool that has: the agent goes on.
                let goes_on = wants_tools || parent_tool_use_id.is_some();
                self.parent.observe(&Observation::Spent { cost_usd, goes_on });
            }
            Frame::Writing => self.parent.observe(&Observation::Writing),
            Frame::Other => {}
        }
        None
    }

    fn take_system(&mut self, system: &System) -> Option<Ending> {
        match system {
            System::Init(init) => return self.take_init(init),
            System::ApiRetry { attempt, max_retries, delay_ms, status, error } => {
                self.parent.observe(&Observation::ApiRetry {
                    attempt: *attempt,
                    max_retries: *max_retries,
                    delay_ms: *delay_ms,
                    status: *status,
                    error,
                });
            }
            System::PermissionDenied { tool_name, message } => {
                self.parent.observe(&Observation::PermissionDenied { tool_name, message });
            }
            System::Other { .. } => {}
        }
        None
    }

    fn take_init(&mut self, init: &Init) -> Option<Ending> {
        if let Some(wrong) = self.wrong_session(&init.session_id) {
            return Some(wrong);
        }
        // Whatever the session is called where nobody asked for one: it stays the same.
        if self.expected_session.is_none() && !init.session_id.is_empty() {
            self.expected_session = Some(init.session_id.clone());
        }
        self.shared.state().tracker.progress.session_id = Some(init.session_id.clone());
        self.parent.observe(&Observation::SessionStarted(init));
        None
    }

    fn take_assistant(&mut self, message: &Assistant) {
        // What a native subagent says is not the agent's answer, but its tools are its doing.
        let own = message.parent_tool_use_id.is_none();
        if own {
            let turns = {
                let tracker = &mut self.shared.state().tracker;
                tracker.note_message(message).then_some(tracker.progress.turns)
            };
            if let Some(turns) = turns {
                self.parent.observe(&Observation::Turn { turns });
            }
        }
        for block in &message.blocks {
            self.take_block(block, own);
        }
    }

    fn take_block(&mut self, block: &Block, own: bool) {
        match block {
            Block::Text(text) if own => self.parent.observe(&Observation::Text(text)),
            Block::ToolUse { id, name, input } => {
                let summary = summarize_tool(name, input);
                {
                    let progress = &mut self.shared.state().tracker.progress;
                    progress.last_tool = Some(summary.clone());
                    if own && name == ANSWER_TOOL {
                        progress.structured = Some(input.clone());
                    }
                }
                self.parent.observe(&Observation::ToolStarted {
                    tool_use_id: id,
                    name,
                    input,
                    summary: &summary,
                });
            }
            Block::Text(_) | Block::Other => {}
        }
    }

    fn take_user(&mut self, message: &User) {
        for result in &message.results {
            self.parent.observe(&Observation::ToolFinished {
                tool_use_id: &result.tool_use_id,
                is_error: result.is_error,
                text: &result.text,
            });
        }
    }

    fn take_result(&mut self, mut result: Box<ResultFrame>) -> Option<Ending> {
        if let Some(wrong) = self.wrong_session(&result.session_id) {
            return Some(wrong);
        }
        let noted = {
            let mut state = self.shared.state();
            if state.phase == Phase::Opening {
                // An unknown session to resume: the CLI says so in a result, unasked, and ends.
                return Some(Ending::Result(result));
            }
            let waited_for = state.phase == Phase::Running && !result.is_unasked();
            if waited_for {
                state.tracker.note_result(&mut result);
            }
            waited_for.then_some((state.tracker.progress.cost_usd, state.tracker.progress.turns))
        };
        match noted {
            Some((cost_usd, turns)) => {
                self.parent.observe(&Observation::TurnFinished { cost_usd, turns });
                self.shared.set_phase(Phase::Finished(result));
            }
            None => self.parent.observe(&Observation::StaleResult),
        }
        None
    }

    fn take_reply(&mut self, reply: ControlReply) {
        if reply.request_id != self.initialize_id {
            return;
        }
        match reply.outcome {
            Ok(_) => self.shared.set_phase(Phase::Idle),
            Err(error) => self.shared.set_phase(Phase::Refused(error)),
        }
    }

    fn wrong_session(&self, found: &str) -> Option<Ending> {
        let expected = self.expected_session.as_deref()?;
        // A frame without an id says nothing about it.
        (!found.is_empty() && found != expected).then(|| Ending::WrongSession {
            expected: expected.to_owned(),
            found: found.to_owned(),
        })
    }
}
