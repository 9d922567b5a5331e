//! Tool calls on a connection: as bytes over a server's pipes, as requests of rmcp everywhere else.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rmcp::model::{NumberOrString, ProgressToken};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::connection::{Connection, FAREWELL, RequestOptions, downstream};
use super::error::GatewayError;
use super::shortcut::{Answered, NoResult, Progress, Sent, Shortcut};
use super::tapped::ProgressSink;

impl Connection {
    /// Calls a tool and returns the result as the server wrote it.
    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: &RawValue,
        options: RequestOptions,
    ) -> Result<Box<RawValue>, GatewayError> {
        if let Some(shortcut) = &self.shortcut {
            return self.call_over(shortcut, tool, arguments, options).await;
        }
        let arguments: Value = serde_json::from_str(arguments.get()).map_err(|error| {
            let sentence = format!("the arguments cannot be read: {error}");
            GatewayError::InvalidArgument { sentence }
        })?;
        let params = json!({ "name": tool, "arguments": arguments });
        // In a box: the shorter way needs no room for it.
        let result = Box::pin(self.request("tools/call", params, options)).await?;
        to_raw_value(&result).map_err(|error| self.no_json(&error))
    }

    async fn call_over(
        &self,
        shortcut: &Shortcut,
        tool: &str,
        arguments: &RawValue,
        options: RequestOptions,
    ) -> Result<Box<RawValue>, GatewayError> {
        let id = shortcut.issue();
        let progress = match options.progress {
            Some(_) => Progress::Wanted,
            None => Progress::Unwanted,
        };
        let _book = options.progress.map(|sink| {
            let token = ProgressToken(NumberOrString::Number(i64::from(id)));
            self.progress.opened(token, ProgressSink(sink))
        });
        match shortcut.send(id, tool, arguments, progress) {
            Ok(sent) => self.answer_to(sent, options.deadline, &options.cancelled).await,
            Err(_) => Err(Box::pin(self.unsent()).await),
        }
    }

    /// The answer to a call that was sent, at most `deadline` from now.
    pub(super) async fn answer_to(
        &self,
        mut sent: Sent,
        deadline: Duration,
        cancelled: &CancellationToken,
    ) -> Result<Box<RawValue>, GatewayError> {
        tokio::select! {
            // An answer that is there counts, whatever else happened meanwhile.
            biased;
            answer = &mut sent.answer => match answer {
                Ok(answered) => self.called(answered),
                Err(_) => Err(Box::pin(self.gone()).await),
            },
            () = self.life.ended.cancelled() => Err(Box::pin(self.gone()).await),
            () = cancelled.cancelled() => {
                sent.take_back("cancelled by the caller");
                Err(GatewayError::Cancelled)
            }
            () = sleep_until(Instant::now() + deadline) => {
                sent.take_back("the deadline passed");
                Err(GatewayError::Timeout { server: self.server.to_string(), after: deadline })
            }
        }
    }

    /// What an answer means.
    pub(super) fn called(&self, answered: Answered) -> Result<Box<RawValue>, GatewayError> {
        self.worked.store(true, Ordering::Relaxed);
        answered.map_err(|no_result| match no_result {
            NoResult::Error(error) => downstream(error),
            NoResult::Unusable(reason) => self.bad_answer(reason),
        })
    }

    /// A call could not even be sent: the server is gone, or does not read its stdin.
    pub(super) async fn unsent(&self) -> GatewayError {
        // A pipe breaks a moment before the process is known to have ended, which says more.
        if timeout(FAREWELL, self.ended()).await.is_ok() {
            return self.gone().await;
        }
        self.stale.store(true, Ordering::Relaxed);
        GatewayError::unavailable(&self.server, "it does not read its stdin")
    }
}
