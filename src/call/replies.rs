//! What a run says after a result: what was wrong with the answer, or, once, the same again where the API was not there.

use std::sync::Arc;

use super::judge::trouble;
use super::meter::Meter;
use super::wanted::Wanted;
use crate::claude::ResultFrame;

/// What is wrong with a good result, while the agent may still try again.
type Objections<'a> = Box<dyn FnMut(&ResultFrame) -> Option<String> + Send + 'a>;

/// The replies of one run, in one conversation.
pub(super) struct Replies<'a> {
    message: String,
    meter: Option<Arc<Meter>>,
    objections: Objections<'a>,
    /// What the API said when the message was sent once more.
    pub(super) tried_again_after: Option<String>,
}

impl<'a> Replies<'a> {
    pub(super) fn new(message: &str, wanted: &'a Wanted, meter: Option<Arc<Meter>>) -> Self {
        Self {
            message: message.to_owned(),
            meter,
            objections: Box::new(wanted.objections()),
            tried_again_after: None,
        }
    }

    /// What is said to this result, if anything.
    pub(super) fn to(&mut self, result: &ResultFrame) -> Option<String> {
        if result.is_success() { (self.objections)(result) } else { self.try_again(result) }
    }

    /// Once, while nothing was done: a tool that has run would run twice.
    fn try_again(&mut self, result: &ResultFrame) -> Option<String> {
        let was_used = self.meter.as_ref().is_none_or(|meter| meter.tool_was_used());
        if was_used || self.tried_again_after.is_some() || !trouble(result).may_pass() {
            return None;
        }
        self.tried_again_after = Some(result.result.clone().unwrap_or_default());
        Some(self.message.clone())
    }
}
