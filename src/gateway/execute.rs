//! One call of one tool: who, may it, is it there, is it still what it was, and only then the call.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::ProgressNotificationParam;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::downstream::{Downstream, ToolCall};
use super::error::GatewayError;
use super::files::InForce;
use super::gateway::{Gateway, Who};
use super::ledger::Draft;
use super::tool_list::ToolList;
use super::views::may_use;
use crate::base::nearest;
use crate::identity::Caller;

/// What it is called in the audit log.
pub(super) const EXECUTE: &str = "execute_tool";

/// What `execute_tool` was asked for.
pub struct Execute {
    /// The server.
    pub server: String,
    /// The tool.
    pub tool: String,
    /// The tool's arguments, as they were written; a JSON object.
    pub arguments: Box<RawValue>,
    /// From now to the answer; `None` is the server's own deadline.
    pub timeout: Option<Duration>,
    /// Taken back by the caller.
    pub cancelled: CancellationToken,
    /// Where progress goes.
    pub progress: Option<mpsc::Sender<ProgressNotificationParam>>,
}

impl Gateway {
    /// Calls a tool for an agent and returns what the server returned, unchanged.
    pub async fn execute(
        &self,
        who: &Who,
        request: Execute,
    ) -> Result<Box<RawValue>, GatewayError> {
        let mut draft = self.draft(who, &request);
        let result = self.execute_judged(&mut draft, who, request).await;
        self.ledger.record_soon(draft, result, |raw| raw.get().len()).await
    }

    /// What is known of a request before it is judged.
    pub(super) fn draft(&self, who: &Who, request: &Execute) -> Draft {
        let mut draft = Draft::new(EXECUTE, who);
        draft.server = Some(request.server.clone());
        draft.tool = Some(request.tool.clone());
        draft.bytes_in = request.arguments.get().len();
        draft.arguments = self.ledger.kept_arguments(&request.arguments);
        draft
    }

    async fn execute_judged(
        &self,
        draft: &mut Draft,
        who: &Who,
        request: Execute,
    ) -> Result<Box<RawValue>, GatewayError> {
        let in_force = self.in_force();
        let caller = self.resolve(&in_force, who)?;
        draft.caller = Some(caller.clone());
        draft.judge(&in_force, &caller, &request.server, Some(&request.tool))?;
        self.ledger.ensure_writable()?;
        let server = self.server_for(&in_force, &caller, &request.server)?;
        let allowed = request.timeout.unwrap_or(server.spec.timeout);
        let end = Instant::now() + allowed;
        let at_hand = server.at_hand();
        if !at_hand.is_some_and(|(_, list)| self.has_tool(&server, &list, &request.tool)) {
            // In a box, for it is large and rarely needed: as a part of every call it would be moved around with each.
            let looking = Box::pin(self.find_tool(&in_force, &caller, &server, &request.tool));
            tokio::select! {
                found = timeout_at(end, looking) => found.unwrap_or_else(|_| {
                    Err(GatewayError::Timeout { server: request.server.clone(), after: allowed })
                })?,
                () = request.cancelled.cancelled() => return Err(GatewayError::Cancelled),
            }
        }
        let call = ToolCall {
            tool: request.tool,
            arguments: request.arguments,
            deadline: Some(end.saturating_duration_since(Instant::now())),
            cancelled: request.cancelled,
            progress: request.progress,
        };
        server.note_call();
        // One deadline was set for finding and calling together.
        server.call_tool(call).await.map_err(|error| error.within(allowed))
    }

    /// Whether the tool is there and nothing of the server is withheld.
    pub(super) fn has_tool(&self, server: &Downstream, list: &Arc<ToolList>, tool: &str) -> bool {
        list.get(tool).is_some() && self.withheld(server, list).is_ok_and(|all| all.is_empty())
    }

    /// The tool is on the server's list, and nobody withholds it.
    async fn find_tool(
        &self,
        in_force: &InForce,
        caller: &Caller,
        server: &Arc<Downstream>,
        tool: &str,
    ) -> Result<(), GatewayError> {
        let mut list = server.tools().await?;
        if list.get(tool).is_none() {
            // Some servers change their tools and do not say so.
            list = server.fresh_tools().await?;
        }
        if list.get(tool).is_none() {
            return Err(not_found(in_force, caller, &server.key.server, tool, &list));
        }
        if self.withheld(server, &list)?.iter().any(|name| name == tool) {
            let server = server.key.server.clone();
            return Err(GatewayError::ToolWithheld { server, tool: tool.to_owned() });
        }
        Ok(())
    }
}

fn not_found(
    in_force: &InForce,
    caller: &Caller,
    server: &str,
    tool: &str,
    list: &ToolList,
) -> GatewayError {
    let names = list.tools.iter().map(|tool| tool.name.as_str());
    let visible = names.filter(|name| may_use(in_force, caller, server, name));
    let near = nearest(tool, visible).into_iter().map(str::to_owned).collect();
    GatewayError::ToolNotFound { server: server.to_owned(), tool: tool.to_owned(), near }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{GatewayOptions, Settings};

    #[tokio::test]
    async fn a_call_on_its_way_is_small() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings::resolve(Some(folder.path())).unwrap();
        let gateway = Gateway::start(&settings, GatewayOptions::default());
        let request = Execute {
            server: "s".to_owned(),
            tool: "t".to_owned(),
            arguments: RawValue::from_string("{}".to_owned()).unwrap(),
            timeout: None,
            cancelled: CancellationToken::new(),
            progress: None,
        };
        let who = Who::default();
        // It is moved several times before it begins; what it rarely needs belongs into a box.
        let bytes = std::mem::size_of_val(&gateway.execute(&who, request));
        assert!(bytes < 3_000, "{bytes}");
    }
}
