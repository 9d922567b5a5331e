//! Reader task: reads frames, updates the shared state, dispatches control requests.
//! Never waits for an answer.

use std::sync::Arc;

use tokio::io::AsyncRead;

use super::control_handler::{ControlHandler, STRUCTURED_OUTPUT_TOOL};
use super::control_requests::ControlRequests;
use super::frame::{
    AssistantFrame, ControlResponse, InitFrame, MessageBlock, OutputFrame, SystemFrame, UserFrame,
};
use super::observation::{Observation, summarize_tool};
use super::parse::parse_line;
use super::result::ResultFrame;
use super::state::{ClientPhase, SharedClient, TurnResult};
use crate::util::{LineReader, ReadLine};

pub(crate) struct FrameReader<R> {
    pub(crate) lines: LineReader<R>,
    pub(crate) max_line_bytes: usize,
    pub(crate) handler: Arc<dyn ControlHandler>,
    pub(crate) shared: Arc<SharedClient>,
    pub(crate) control_requests: ControlRequests,
    pub(crate) initialize_id: String,
    pub(crate) expected_session: Option<String>,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Reads to the end of the stream and closes the client with the cause.
    pub(crate) async fn run(mut self) {
        let turn_result = loop {
            if let Some(turn_result) = self.handle_next_line().await {
                break turn_result;
            }
        };
        self.shared.set_phase(ClientPhase::Closed(turn_result));
    }

    async fn handle_next_line(&mut self) -> Option<TurnResult> {
        let (lines, outgoing) = (&mut self.lines, &self.shared.outgoing);
        let next_line = async {
            // A CLI that does not read the answers to its requests is not read either. A broken pipe ends with the stream.
            let _ = outgoing.wait_for_room().await;
            lines.next().await
        };
        let line = tokio::select! {
            line = next_line => line,
            () = self.control_requests.join_next() => return None,
        };
        let frame = match line {
            Ok(ReadLine::Complete(line)) => parse_line(line),
            Ok(ReadLine::TooLong) => {
                return Some(TurnResult::LineTooLong { limit: self.max_line_bytes });
            }
            Ok(ReadLine::End) => return Some(TurnResult::StreamEnded),
            Err(error) => return Some(TurnResult::ReadFailed { message: error.to_string() }),
        };
        let Some(frame) = frame else {
            self.shared.state().tracker.progress.skipped_lines += 1;
            return None;
        };
        self.handle_frame(frame)
    }

    fn handle_frame(&mut self, frame: OutputFrame) -> Option<TurnResult> {
        match frame {
            OutputFrame::System(system) => return self.handle_system(&system),
            OutputFrame::Assistant(message) => self.handle_assistant(&message),
            OutputFrame::User(message) => self.handle_user(&message),
            OutputFrame::Result(result) => return self.handle_result(result),
            OutputFrame::ControlRequest(request) => self.control_requests.start(request),
            OutputFrame::ControlResponse(reply) => self.handle_control_response(reply),
            OutputFrame::ControlCancel { request_id } => self.control_requests.cancel(&request_id),
            OutputFrame::TextDelta { text } => {
                self.shared.state().tracker.append_delta(&text);
                self.handler.observe(&Observation::PartialContent);
            }
            OutputFrame::MessageStarted { parent_tool_use_id, message_id, model, usage } => {
                let parent = parent_tool_use_id.as_deref();
                self.shared.state().tracker.begin_message(parent, &message_id, &model, usage);
                self.handler.observe(&Observation::MessageStarted);
            }
            OutputFrame::MessageEnded { parent_tool_use_id, usage, wants_tools } => {
                let cost_usd =
                    self.shared.state().tracker.end_message(parent_tool_use_id.as_deref(), usage);
                // The end of a native subagent's message is a finished tool call of the agent, whose turn continues.
                let continues = wants_tools || parent_tool_use_id.is_some();
                self.handler.observe(&Observation::MessageEnded { cost_usd, continues });
            }
            OutputFrame::PartialContent => self.handler.observe(&Observation::PartialContent),
            OutputFrame::Other => {}
        }
        None
    }

    fn handle_system(&mut self, system: &SystemFrame) -> Option<TurnResult> {
        match system {
            SystemFrame::Init(init) => return self.handle_init(init),
            SystemFrame::ApiRetry { attempt, max_retries, delay_ms, status, error } => {
                self.handler.observe(&Observation::ApiRetry {
                    attempt: *attempt,
                    max_retries: *max_retries,
                    delay_ms: *delay_ms,
                    status: *status,
                    error,
                });
            }
            SystemFrame::PermissionDenied { tool_name, message } => {
                self.handler.observe(&Observation::PermissionDenied { tool_name, message });
            }
            SystemFrame::Other { .. } => {}
        }
        None
    }

    fn handle_init(&mut self, init: &InitFrame) -> Option<TurnResult> {
        if let Some(wrong) = self.check_session(&init.session_id) {
            return Some(wrong);
        }
        // If no session id was given, the first one reported is pinned.
        if self.expected_session.is_none() && !init.session_id.is_empty() {
            self.expected_session = Some(init.session_id.clone());
        }
        self.shared.state().tracker.progress.session_id = Some(init.session_id.clone());
        self.handler.observe(&Observation::SessionStarted(init));
        None
    }

    fn handle_assistant(&mut self, message: &AssistantFrame) {
        // Text of a native subagent is not the agent's answer; its tool calls count as the agent's.
        let own = message.parent_tool_use_id.is_none();
        if own {
            let turns = {
                let tracker = &mut self.shared.state().tracker;
                tracker.record_message(message).then_some(tracker.progress.turns)
            };
            if let Some(turns) = turns {
                self.handler.observe(&Observation::Turn { turns });
            }
        }
        for block in &message.blocks {
            self.handle_block(block, own);
        }
    }

    fn handle_block(&mut self, block: &MessageBlock, own: bool) {
        match block {
            MessageBlock::Text(text) if own => self.handler.observe(&Observation::Text(text)),
            MessageBlock::ToolUse { id, name, input } => {
                let summary = summarize_tool(name, input);
                {
                    let progress = &mut self.shared.state().tracker.progress;
                    progress.last_tool = Some(summary.clone());
                    if own && name == STRUCTURED_OUTPUT_TOOL {
                        progress.structured_output = Some(input.clone());
                    }
                }
                self.handler.observe(&Observation::ToolStarted {
                    tool_use_id: id,
                    name,
                    input,
                    summary: &summary,
                });
            }
            MessageBlock::Text(_) | MessageBlock::Other => {}
        }
    }

    fn handle_user(&mut self, message: &UserFrame) {
        for result in &message.results {
            self.handler.observe(&Observation::ToolFinished {
                tool_use_id: &result.tool_use_id,
                is_error: result.is_error,
                text: &result.text,
            });
        }
    }

    fn handle_result(&mut self, mut result: Box<ResultFrame>) -> Option<TurnResult> {
        if let Some(wrong) = self.check_session(&result.session_id) {
            return Some(wrong);
        }
        let recorded = {
            let mut state = self.shared.state();
            if state.phase == ClientPhase::Opening {
                // `--resume` with an unknown session: the CLI sends a result before any prompt and exits.
                return Some(TurnResult::Result(result));
            }
            let is_awaited = state.phase == ClientPhase::Running && !result.is_background_turn();
            if is_awaited {
                state.tracker.record_result(&mut result);
            }
            is_awaited.then_some((state.tracker.progress.cost_usd, state.tracker.progress.turns))
        };
        match recorded {
            Some((cost_usd, turns)) => {
                self.handler.observe(&Observation::TurnFinished { cost_usd, turns });
                self.shared.set_phase(ClientPhase::Finished(result));
            }
            None => self.handler.observe(&Observation::StaleResult),
        }
        None
    }

    fn handle_control_response(&mut self, reply: ControlResponse) {
        if reply.request_id != self.initialize_id {
            return;
        }
        match reply.outcome {
            Ok(_) => self.shared.set_phase(ClientPhase::Idle),
            Err(error) => self.shared.set_phase(ClientPhase::Refused(error)),
        }
    }

    fn check_session(&self, found: &str) -> Option<TurnResult> {
        let expected = self.expected_session.as_deref()?;
        // Frames without a session id are not checked.
        (!found.is_empty() && found != expected).then(|| TurnResult::WrongSession {
            expected: expected.to_owned(),
            found: found.to_owned(),
        })
    }
}
