//! Calls of `execute_tool`, whose arguments and results stay JSON text.
//!
//! Every way in ends here: a stdio line, an HTTP body without a session, and rmcp's typed handler, which gets the first
//! request of a connection, requests of HTTP sessions, and requests that rmcp has to check. All of them parse the
//! arguments, refuse, execute and answer with the functions of this file. Everything that is not `execute_tool` is typed.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolResponse, CallToolResult, ErrorCode, ErrorData, ProgressNotificationParam,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::callers::{CallerResolver, McpResult, RequestContext, call_id, is_tool_use_id};
use super::packed_result;
use crate::gateway::{Gateway, GatewayError, RequestIdentity, ToolCall, forward_progress};
use crate::identity::{AttestationError, Caller};
use crate::jsonrpc::{Frame, Id, LineJson};
use crate::server::tools::EXECUTE_TOOL;
use crate::server::tools::gateway::{self, RawArguments, ToolArguments};

/// Queued progress notifications per call; with a full queue, new ones are dropped.
const MAX_QUEUED_PROGRESS: usize = 64;

/// The result of a call as JSON text, or the JSON-RPC error of the downstream server.
pub(crate) type CallAnswer = McpResult<LineJson>;

/// The kind of MCP revision a message is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProtocolRevision {
    /// Up to 2025-11-25: the connection begins with `initialize`.
    Handshake,
    /// 2026-07-28: every request names its protocol version, client and capabilities in `_meta`.
    Stateless,
}

impl ProtocolRevision {
    /// The protocol version of [`Self::Stateless`].
    pub(crate) const STATELESS_VERSION: &str = "2026-07-28";
}

/// Executes `execute_tool` for the clients of one connection or HTTP server.
#[derive(Clone)]
pub(crate) struct CallRouter {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) callers: CallerResolver,
    /// Set if the gateway's tools are offered only while there are servers.
    pub(crate) needs_servers: bool,
}

/// A call of `execute_tool` that needs none of rmcp's checks; its arguments are not parsed yet.
pub(crate) struct ExecuteToolCall<'a> {
    pub(crate) revision: ProtocolRevision,
    pub(crate) tool_use_id: Option<String>,
    pub(crate) progress_token: Option<&'a RawValue>,
    arguments: Option<&'a RawValue>,
}

/// An authenticated call with parsed arguments.
pub(crate) struct ParsedCall {
    who: RequestIdentity,
    call: ToolCall,
}

/// A call with invalid arguments, which is not audited yet.
pub(crate) struct InvalidCall {
    who: RequestIdentity,
    error: GatewayError,
}

impl CallRouter {
    /// Returns true if the gateway's tools are offered.
    pub(crate) fn is_offered(&self) -> bool {
        !self.needs_servers || self.gateway.has_servers()
    }

    /// Parses the arguments of an ordinary call; consumes its attestation.
    ///
    /// # Errors
    ///
    /// The arguments are invalid: [`Self::refuse`] answers the call.
    pub(crate) fn parse(
        &self,
        id: &Id,
        call: &ExecuteToolCall<'_>,
        sender: impl FnOnce() -> Caller,
        cancelled: CancellationToken,
    ) -> Result<ParsedCall, Box<InvalidCall>> {
        let tool_use_id = call.tool_use_id.clone();
        let call_id = tool_use_id.clone().unwrap_or_else(|| id.unquoted().into_owned());
        let caller = self.callers.resolve_tool_use(EXECUTE_TOOL, tool_use_id, sender);
        parse_arguments(caller, call_id, call.arguments, cancelled)
    }

    /// Answers a call that rmcp has checked.
    pub(crate) async fn answer_typed(
        &self,
        caller: Result<Caller, AttestationError>,
        context: &RequestContext,
    ) -> McpResult<CallToolResponse> {
        let arguments = RawArguments::of(context);
        let arguments = arguments.as_ref().map(RawArguments::as_raw);
        let answer = match parse_arguments(caller, call_id(context), arguments, context.ct.clone())
        {
            Err(invalid) => self.refuse(invalid).await,
            Ok(call) => match context.meta.get_progress_token() {
                None => self.execute_and_wait(call).await,
                Some(token) => {
                    let tell = |mut news: ProgressNotificationParam| {
                        news.progress_token = token.clone();
                        let told = context.peer.notify_progress(news);
                        async move { drop(told.await) }
                    };
                    self.execute_with_progress(call, tell).await
                }
            },
        };
        Ok(packed_result::pack(&answer?, CallToolResult::success(Vec::new())).into())
    }

    /// Audits a call that is not executed and returns its answer.
    pub(crate) async fn refuse(&self, invalid: Box<InvalidCall>) -> CallAnswer {
        let InvalidCall { who, error } = *invalid;
        encode(Err(self.gateway.reject(EXECUTE_TOOL, &who, error).await))
    }

    /// Starts a call; `on_answer` runs exactly once, after the audit entry is written.
    pub(crate) fn execute(
        &self,
        call: ParsedCall,
        on_answer: impl FnOnce(CallAnswer) + Send + 'static,
    ) {
        let on_result = Box::new(move |result| on_answer(encode(result)));
        self.gateway.execute(call.who, call.call, on_result);
    }

    /// Executes a call. Dropping the future cancels it.
    pub(crate) async fn execute_and_wait(&self, call: ParsedCall) -> CallAnswer {
        let cancel_on_drop = call.call.cancelled.clone().drop_guard();
        let (sender, receiver) = oneshot::channel();
        self.execute(call, move |answer| drop(sender.send(answer)));
        // The sender is dropped without an answer only when the process exits.
        let answer = receiver.await.unwrap_or_else(|_| encode(Err(GatewayError::Cancelled)));
        cancel_on_drop.disarm();
        answer
    }

    /// Executes a call and passes its progress to `tell`, all of it before the answer.
    pub(crate) async fn execute_with_progress<Told: Future<Output = ()>>(
        &self,
        mut call: ParsedCall,
        tell: impl Fn(ProgressNotificationParam) -> Told,
    ) -> CallAnswer {
        let (sender, progress) = mpsc::channel(MAX_QUEUED_PROGRESS);
        call.call.progress = Some(sender);
        forward_progress(self.execute_and_wait(call), progress, tell).await
    }
}

fn parse_arguments(
    caller: Result<Caller, AttestationError>,
    call_id: String,
    arguments: Option<&RawValue>,
    cancelled: CancellationToken,
) -> Result<ParsedCall, Box<InvalidCall>> {
    let arguments = ToolArguments::parse(arguments);
    let (who, claimed) = gateway::request_identity(caller, arguments.agent_id(), call_id);
    match claimed.and_then(|()| tool_call(&arguments, cancelled)) {
        Ok(call) => Ok(ParsedCall { who, call }),
        Err(error) => Err(Box::new(InvalidCall { who, error })),
    }
}

/// Parses the arguments of `execute_tool` except for `agent_id`.
fn tool_call(
    arguments: &ToolArguments<'_>,
    cancelled: CancellationToken,
) -> Result<ToolCall, GatewayError> {
    let timeout = arguments.number("timeout_ms")?;
    if timeout == Some(0) {
        return Err(gateway::invalid_argument("timeout_ms", "more than 0"));
    }
    Ok(ToolCall {
        server: arguments.required_string("server")?,
        tool: arguments.required_string("tool")?,
        arguments: arguments.object("args")?,
        timeout: timeout.map(Duration::from_millis),
        cancelled,
        progress: None,
    })
}

/// The answer to a call. A JSON-RPC error of the downstream server stays one; other failures are `isError` results.
fn encode(result: Result<LineJson, GatewayError>) -> CallAnswer {
    match result {
        Ok(result) => Ok(result),
        Err(GatewayError::Downstream { code, message, data }) => {
            Err(ErrorData::new(ErrorCode(code), message, data))
        }
        Err(error) => Ok(gateway::error_result_json(&error)),
    }
}

/// The response with this answer.
pub(crate) fn response_frame(id: &Id, revision: ProtocolRevision, answer: CallAnswer) -> Frame {
    match (answer, revision) {
        (Ok(result), ProtocolRevision::Handshake) => Frame::result(id, &result),
        (Ok(result), ProtocolRevision::Stateless) => {
            let required = [("resultType", "\"complete\"")].into_iter();
            Frame::result(id, &packed_result::with_missing_fields(result, required))
        }
        (Err(error), _) => {
            Frame::error(&id.to_string(), error.code.0, &error.message, error.data.as_ref())
        }
    }
}

/// The parameters of an ordinary call.
// `deny_unknown_fields` here and in `_meta`: a request with other fields goes to rmcp.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OrdinaryParams<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta", default)]
    meta: Option<CallMeta<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallMeta<'a> {
    #[serde(borrow, rename = "io.modelcontextprotocol/protocolVersion", default)]
    protocol_version: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "io.modelcontextprotocol/clientInfo", default)]
    client_info: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/clientCapabilities", default)]
    client_capabilities: Option<&'a RawValue>,
    #[serde(borrow, rename = "claudecode/toolUseId", default)]
    tool_use_id: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "progressToken", default)]
    progress_token: Option<&'a RawValue>,
}

impl CallMeta<'_> {
    /// Returns the revision; `None` if only some of the three stateless fields are present, or the version is another.
    fn revision(&self) -> Option<ProtocolRevision> {
        let is_object = |raw: Option<&RawValue>| raw.is_some_and(is_object);
        match self.protocol_version.as_deref() {
            None if self.client_info.is_none() && self.client_capabilities.is_none() => {
                Some(ProtocolRevision::Handshake)
            }
            Some(ProtocolRevision::STATELESS_VERSION)
                if is_object(self.client_info) && is_object(self.client_capabilities) =>
            {
                Some(ProtocolRevision::Stateless)
            }
            _ => None,
        }
    }
}

impl<'a> ExecuteToolCall<'a> {
    /// Parses the parameters of a `tools/call`; `None` for another tool, and if rmcp has to check the request.
    pub(crate) fn parse(params: Option<&'a RawValue>) -> Option<Self> {
        let OrdinaryParams { name, arguments, meta } = serde_json::from_str(params?.get()).ok()?;
        let meta = meta.unwrap_or_default();
        let is_ordinary = name == EXECUTE_TOOL
            && arguments.is_none_or(is_object)
            && meta.progress_token.is_none_or(|token| Id::parse(token.get()).is_some());
        let revision = meta.revision()?;
        is_ordinary.then(|| Self {
            revision,
            tool_use_id: meta.tool_use_id.map(Cow::into_owned).filter(|id| is_tool_use_id(id)),
            progress_token: meta.progress_token,
            arguments,
        })
    }
}

fn is_object(raw: &RawValue) -> bool {
    raw.get().starts_with('{')
}

#[derive(Deserialize)]
struct NamedArguments<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    arguments: &'a RawValue,
}

/// Returns the message for rmcp and the arguments that it must not read; `None` if the message can go to rmcp as it is.
///
/// The arguments of the gateway's tools are parsed from text, and rmcp gets `{}` in their place: its types would rewrite
/// numbers and refuse those beyond a double.
pub(crate) fn without_raw_arguments(
    message: &[u8],
    params: Option<&RawValue>,
) -> Option<(Vec<u8>, RawArguments)> {
    let NamedArguments { name, arguments } = serde_json::from_str(params?.get()).ok()?;
    if !gateway::is_gateway_tool(&name, true) || !is_object(arguments) {
        return None;
    }
    // `params` borrows from the message.
    let text = arguments.get().as_bytes();
    let start = (text.as_ptr() as usize).checked_sub(message.as_ptr() as usize)?;
    let (before, after) = (message.get(..start)?, message.get(start + text.len()..)?);
    Some(([before, b"{}", after].concat(), RawArguments::new(arguments)))
}

/// Returns `true` if this first request makes the connection stateless: it has all three `_meta` fields, and its method
/// is not `initialize`, `server/discover` or `ping`.
pub(crate) fn is_stateless_start(method: &str, params: Option<&RawValue>) -> bool {
    #[derive(Deserialize)]
    struct MetaOnlyParams<'a> {
        #[serde(borrow, rename = "_meta")]
        meta: CallMeta<'a>,
    }
    let read = |params: &RawValue| {
        serde_json::from_str::<MetaOnlyParams<'_>>(params.get())
            .is_ok_and(|head| head.meta.revision() == Some(ProtocolRevision::Stateless))
    };
    !matches!(method, "initialize" | "server/discover" | "ping") && params.is_some_and(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    fn parsed(arguments: &RawValue) -> Result<ToolCall, GatewayError> {
        let arguments = ToolArguments::parse(Some(arguments));
        arguments.agent_id().and_then(|_| tool_call(&arguments, CancellationToken::new()))
    }

    const ARGUMENTS: &str = r#"{"server":"s","tool":"t","args":{"b": 1e2,"a":"\u00e9"}}"#;

    #[test]
    fn a_call_is_parsed_and_its_arguments_stay_verbatim() {
        let meta = r#"{"claudecode/toolUseId":"toolu_1","progressToken":"p"}"#;
        let params =
            raw(&format!(r#"{{"name":"execute_tool","arguments":{ARGUMENTS},"_meta":{meta}}}"#));
        let call = ExecuteToolCall::parse(Some(&params)).unwrap();
        assert_eq!(call.tool_use_id.as_deref(), Some("toolu_1"));
        assert_eq!(call.progress_token.unwrap().get(), "\"p\"");
        let parsed = parsed(call.arguments.unwrap()).unwrap();
        assert_eq!(parsed.arguments.as_str(), r#"{"b": 1e2,"a":"\u00e9"}"#);
    }

    #[test_case(r#"{"name":"list_servers","arguments":{}}"#; "another tool")]
    #[test_case(r#"{"name":"execute_tool","arguments":[]}"#; "arguments that are a list")]
    #[test_case(r#"{"name":"execute_tool","arguments":{},"requestState":"x"}"#; "a further round")]
    #[test_case(r#"{"name":"execute_tool","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#; "the newest revision, not all of it")]
    #[test_case(r#"{"name":"execute_tool","arguments":{},"_meta":{"io.modelcontextprotocol/clientInfo":{}}}"#; "no revision")]
    #[test_case(r#"{"name":"execute_tool","arguments":{},"_meta":{"x":1}}"#; "unknown meta")]
    #[test_case(r#"{"name":"execute_tool","name":"x","arguments":{}}"#; "a key twice")]
    fn requests_that_rmcp_checks_are_left_to_it(params: &str) {
        assert!(ExecuteToolCall::parse(Some(&raw(params))).is_none());
    }

    #[test_case(r#"{"tool":"t"}"# => "`server` is missing")]
    #[test_case(r#"{"server":"","tool":"t"}"# => "`server` is missing")]
    #[test_case(r#"{"server":"s","tool":null}"# => "`tool` is missing")]
    #[test_case(r#"{"server":"s","tool":"t","args":[1]}"# => "`args` must be an object")]
    #[test_case(r#"{"server":"s","tool":"t","args":"[1]"}"# => "`args` must be an object"; "text with a list")]
    #[test_case(r#"{"server":"s","tool":"t","timeout_ms":0}"# => "`timeout_ms` must be more than 0")]
    #[test_case(r#"{"server":"s","tool":"t","timeout_ms":1.5}"# => "`timeout_ms` must be a whole number")]
    #[test_case(r#"{"server":"s","tool":"t","agent_id":7}"# => "`agent_id` must be text")]
    #[test_case(r#"{"server":"s","tool":"t","serv\u0065r":"x"}"# => "`server` is given twice"; "a name in two spellings")]
    fn invalid_arguments_are_named(arguments: &str) -> String {
        parsed(&raw(arguments)).err().unwrap().to_string()
    }

    #[test]
    fn an_object_inside_a_string_keeps_its_text_and_is_nested_no_deeper_than_a_message() {
        let with_args = |text: &str| {
            let args = serde_json::Value::from(text);
            raw(&format!(r#"{{"server":"s","tool":"t","args":{args}}}"#))
        };
        let call = parsed(&with_args("{ \"a\":1e2 }")).unwrap();
        assert_eq!(call.arguments.as_str(), "{ \"a\":1e2 }");
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(1000), "]".repeat(1000));
        assert!(parsed(&with_args(&deep)).is_err());
    }

    #[test]
    fn rmcp_does_not_get_the_arguments() {
        let message = format!(
            "{{\"method\":\"tools/call\",\"params\":\n{{\"name\":\"execute_tool\",\"x\":1,\"arguments\" : {ARGUMENTS} }}}}"
        );
        let params = &message[message.find('\n').unwrap() + 1..message.len() - 1];
        let params: &RawValue = serde_json::from_str(params).unwrap();
        let (text, arguments) = without_raw_arguments(message.as_bytes(), Some(params)).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), message.replace(ARGUMENTS, "{}"));
        assert_eq!(arguments.as_raw().get(), ARGUMENTS);
        let elsewhere = b"another message".as_slice();
        assert!(without_raw_arguments(elsewhere, Some(params)).is_none());
    }

    const META: &str = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{},"io.modelcontextprotocol/clientCapabilities":{}}"#;

    #[test_case("tools/list", META, true; "a request that says everything")]
    #[test_case("server/discover", META, false; "the question what there is")]
    #[test_case("initialize", META, false; "a handshake")]
    #[test_case("tools/list", r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#, false; "not all of it")]
    #[test_case("tools/list", "{}", false; "nothing")]
    fn the_first_complete_stateless_request_starts_the_connection(
        method: &str,
        meta: &str,
        begins: bool,
    ) {
        let params = raw(&format!(r#"{{"_meta":{meta}}}"#));
        assert_eq!(is_stateless_start(method, Some(&params)), begins);
    }
}
