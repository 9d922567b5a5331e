//! A call of `execute_tool` as its caller writes it, and the line that answers it: as bytes, past rmcp's typed values.
//!
//! Only calls with nothing out of the ordinary are read here; whatever else there is, rmcp knows what to say.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use memchr::memmem;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::gateway_tools::{self, EXECUTE_TOOL};
use super::who::is_tool_use_id;
use crate::gateway::{Execute, GatewayError, Who};
use crate::identity::{Caller, Doubt};

/// A call of `execute_tool` with nothing out of the ordinary.
pub(super) struct Call {
    /// As it was written.
    pub(super) id: Arc<str>,
    pub(super) tool_use_id: Option<String>,
    pub(super) progress_token: Option<Box<RawValue>>,
    pub(super) agent_id: Option<String>,
    pub(super) execute: Execute,
    pub(super) revision: Revision,
}

/// Which revision of the protocol a call is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Revision {
    /// One that begins with a handshake.
    Handshake,
    /// The newest, which says everything with every request.
    Sessionless,
}

impl Revision {
    /// The newest, as it is written.
    pub(super) const SESSIONLESS: &str = "2026-07-28";
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    jsonrpc: Cow<'a, str>,
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    params: Params<'a>,
}

/// Whatever else it has makes it rmcp's.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    arguments: Arguments<'a>,
    #[serde(borrow, rename = "_meta", default)]
    meta: Meta<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments<'a> {
    #[serde(borrow, default)]
    agent_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    server: Cow<'a, str>,
    #[serde(borrow)]
    tool: Cow<'a, str>,
    #[serde(borrow)]
    args: &'a RawValue,
    #[serde(default)]
    timeout_ms: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Meta<'a> {
    #[serde(borrow, rename = "io.modelcontextprotocol/protocolVersion", default)]
    version: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "io.modelcontextprotocol/clientInfo", default)]
    client: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/clientCapabilities", default)]
    capabilities: Option<&'a RawValue>,
    #[serde(borrow, rename = "claudecode/toolUseId", default)]
    tool_use_id: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "progressToken", default)]
    progress_token: Option<&'a RawValue>,
}

impl Meta<'_> {
    /// `None` where it is neither the one nor the other.
    fn revision(&self) -> Option<Revision> {
        let is_object = |raw: Option<&RawValue>| raw.is_some_and(|raw| raw.get().starts_with('{'));
        match self.version.as_deref() {
            None if self.client.is_none() && self.capabilities.is_none() => {
                Some(Revision::Handshake)
            }
            Some(Revision::SESSIONLESS)
                if is_object(self.client) && is_object(self.capabilities) =>
            {
                Some(Revision::Sessionless)
            }
            _ => None,
        }
    }
}

impl Call {
    pub(super) fn read(line: &[u8]) -> Option<Self> {
        let Message { jsonrpc, id, method, params } = serde_json::from_slice(line).ok()?;
        let Params { name, arguments, meta } = params;
        let ordinary = jsonrpc == "2.0"
            && method == "tools/call"
            && name == EXECUTE_TOOL
            && is_id(id.get())
            && meta.tool_use_id.as_deref().is_none_or(is_tool_use_id)
            && meta.progress_token.is_none_or(|token| is_id(token.get()))
            && !arguments.server.is_empty()
            && !arguments.tool.is_empty()
            && arguments.args.get().starts_with('{')
            && arguments.timeout_ms != Some(0);
        let revision = meta.revision()?;
        ordinary.then(|| Self {
            revision,
            id: id.get().into(),
            tool_use_id: meta.tool_use_id.map(Cow::into_owned),
            progress_token: meta.progress_token.map(RawValue::to_owned),
            agent_id: arguments.agent_id.map(Cow::into_owned).filter(|id| !id.is_empty()),
            execute: Execute {
                server: arguments.server.into_owned(),
                tool: arguments.tool.into_owned(),
                arguments: arguments.args.to_owned(),
                timeout: arguments.timeout_ms.map(Duration::from_millis),
                cancelled: CancellationToken::new(),
                progress: None,
            },
        })
    }
}

impl Call {
    /// Who makes it, where `caller` is what is known of that.
    pub(super) fn who(&mut self, caller: Result<Caller, Doubt>) -> Who {
        let call_id = self.tool_use_id.take();
        let call_id = call_id.unwrap_or_else(|| self.id.trim_matches('"').to_owned());
        gateway_tools::who(caller, self.agent_id.take(), call_id)
    }
}

/// The whole line that answers a call.
pub(super) fn answer(
    id: &str,
    revision: Revision,
    result: Result<Box<RawValue>, GatewayError>,
) -> String {
    let result = match revision {
        Revision::Handshake => result,
        Revision::Sessionless => complete(result),
    };
    match result {
        Ok(raw) => {
            let mut line = String::with_capacity(40 + id.len() + raw.get().len());
            line.push_str(r#"{"jsonrpc":"2.0","id":"#);
            line.push_str(id);
            line.push_str(r#","result":"#);
            line.push_str(raw.get());
            line.push_str("}\n");
            line
        }
        Err(GatewayError::Downstream { code, message, data }) => {
            let mut error = json!({ "code": code, "message": message });
            if let (Some(data), Some(error)) = (data, error.as_object_mut()) {
                error.insert("data".to_owned(), data);
            }
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}\n")
        }
        Err(error) => {
            let result = gateway_tools::failure_json(&error);
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n")
        }
    }
}

/// Numbers and texts identify; whatever else there is, rmcp knows what to say.
fn is_id(raw: &str) -> bool {
    raw.starts_with(|first: char| first == '"' || first == '-' || first.is_ascii_digit())
}

/// A result as the newest revision has it: it says that nothing follows.
fn complete(result: Result<Box<RawValue>, GatewayError>) -> Result<Box<RawValue>, GatewayError> {
    let raw = match result {
        Ok(raw) => raw,
        Err(error @ GatewayError::Downstream { .. }) => return Err(error),
        Err(error) => {
            RawValue::from_string(gateway_tools::failure_json(&error)).map_err(|_| error)?
        }
    };
    let Some(fields) = raw.get().strip_suffix('}').filter(|_| !says_so(&raw)) else {
        return Ok(raw);
    };
    let comma = if fields.trim_end() == "{" { "" } else { "," };
    let whole = format!("{fields}{comma}\"resultType\":\"complete\"}}");
    Ok(RawValue::from_string(whole).unwrap_or(raw))
}

/// Whether a result has the field already; the same word deeper down is somebody else's.
fn says_so(raw: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Fields {
        #[serde(rename = "resultType")]
        kind: Option<IgnoredAny>,
    }
    // Most results do not have the word, and are not read for it.
    memmem::find(raw.get().as_bytes(), b"\"resultType\"").is_some()
        && serde_json::from_str::<Fields>(raw.get()).is_ok_and(|fields| fields.kind.is_some())
}

/// Whether a line makes a connection one without a handshake: the first request that says everything by itself, other than
/// the question what there is.
pub(super) fn begins_sessionless(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Head<'a> {
        #[serde(borrow)]
        method: Cow<'a, str>,
        #[serde(borrow)]
        params: HeadParams<'a>,
    }
    #[derive(Deserialize)]
    struct HeadParams<'a> {
        #[serde(borrow, rename = "_meta")]
        meta: Meta<'a>,
    }
    let says_version = memmem::find(line, Revision::SESSIONLESS.as_bytes()).is_some();
    says_version
        && serde_json::from_slice::<Head<'_>>(line).is_ok_and(|head| {
            !matches!(&*head.method, "initialize" | "server/discover" | "ping")
                && head.params.meta.revision() == Some(Revision::Sessionless)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    fn line(params: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#)
    }

    const ARGUMENTS: &str = r#"{"server":"s","tool":"t","args":{"b": 1.0,"a":"\u00e9"}}"#;

    #[test]
    fn an_ordinary_call_is_read_and_its_arguments_stay_as_they_are_written() {
        let meta = r#"{"claudecode/toolUseId":"toolu_1","progressToken":"p"}"#;
        let params = format!(r#"{{"name":"execute_tool","arguments":{ARGUMENTS},"_meta":{meta}}}"#);
        let call = Call::read(line(&params).as_bytes()).unwrap();
        assert_eq!(&*call.id, "1");
        assert_eq!(call.tool_use_id.as_deref(), Some("toolu_1"));
        assert_eq!(call.progress_token.unwrap().get(), "\"p\"");
        assert_eq!(call.execute.arguments.get(), r#"{"b": 1.0,"a":"\u00e9"}"#);
    }

    #[test_case(r#"{"name":"list_servers","arguments":{}}"#; "another tool")]
    #[test_case(r#"{"name":"execute_tool","arguments":{"server":"s","tool":"t","args":"{}"}}"#; "arguments as a text")]
    #[test_case(r#"{"name":"execute_tool","arguments":{"server":"s","tool":"t","args":[]}}"#; "arguments that are a list")]
    #[test_case(r#"{"name":"execute_tool","arguments":{"server":"","tool":"t","args":{}}}"#; "no server")]
    #[test_case(r#"{"name":"execute_tool","arguments":{"server":"s","tool":"t"}}"#; "no arguments")]
    #[test_case(r#"{"name":"execute_tool","arguments":{"agent_id":7,"server":"s","tool":"t","args":{}}}"#; "an agent that is a number")]
    #[test_case(r#"{"name":"execute_tool","arguments":{"server":"s","tool":"t","args":{},"timeout_ms":0}}"#; "no time")]
    #[test_case(r#"{"name":"execute_tool","arguments":{"server":"s","tool":"t","args":{}},"requestState":"x"}"#; "a further round")]
    #[test_case(r#"{"name":"execute_tool","arguments":{"server":"s","tool":"t","args":{}},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#; "the newest revision, not all of it")]
    #[test_case(r#"{"name":"execute_tool","arguments":{"server":"s","tool":"t","args":{}},"_meta":{"io.modelcontextprotocol/clientInfo":{}}}"#; "no revision")]
    #[test_case(r#"{"name":"execute_tool","name":"x","arguments":{"server":"s","tool":"t","args":{}}}"#; "a key twice")]
    fn what_is_out_of_the_ordinary_is_left_to_rmcp(params: &str) {
        assert!(Call::read(line(params).as_bytes()).is_none());
    }

    #[test_case("null"; "no id")]
    #[test_case("[1]"; "a list")]
    #[test_case("{}"; "an object")]
    fn an_odd_id_is_left_to_rmcp(id: &str) {
        let ordinary = line(&format!(r#"{{"name":"execute_tool","arguments":{ARGUMENTS}}}"#));
        assert!(Call::read(ordinary.as_bytes()).is_some());
        let odd = ordinary.replace(r#""id":1"#, &format!(r#""id":{id}"#));
        assert!(Call::read(odd.as_bytes()).is_none());
    }

    #[test_case(r#"{"content":[]}"#, r#"{"content":[],"resultType":"complete"}"#; "a result")]
    #[test_case("{ }", r#"{ "resultType":"complete"}"#; "nothing")]
    #[test_case(r#"{"x":{"resultType":1}}"#, r#"{"x":{"resultType":1},"resultType":"complete"}"#; "the word deeper down")]
    #[test_case(r#"{"resultType":"input_required"}"#, r#"{"resultType":"input_required"}"#; "one that says so itself")]
    fn a_result_says_that_nothing_follows(raw: &str, expected: &str) {
        let raw = RawValue::from_string(raw.to_owned()).unwrap();
        assert_eq!(complete(Ok(raw)).unwrap().get(), expected);
    }

    const META: &str = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{},"io.modelcontextprotocol/clientCapabilities":{}}"#;

    #[test_case("tools/list", META, true; "a request that says everything")]
    #[test_case("server/discover", META, false; "the question what there is")]
    #[test_case("initialize", META, false; "a handshake")]
    #[test_case("tools/list", r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#, false; "not all of it")]
    #[test_case("tools/list", "{}", false; "nothing")]
    fn the_first_request_that_says_everything_begins(method: &str, meta: &str, begins: bool) {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"_meta":{meta}}}}}"#
        );
        assert_eq!(begins_sessionless(line.as_bytes()), begins);
    }
}
