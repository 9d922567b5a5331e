//! Validation of incoming messages against rmcp's types, and audit entries of rejected tool calls.

use rmcp::model::{ClientJsonRpcMessage, ClientNotification, JsonRpcMessage, JsonRpcNotification};
use serde_json::Value;

use crate::audit::AuditEntry;
use crate::identity::Caller;
use crate::jsonrpc::{InvalidMessage, RecoveredNames};
use crate::server::tools::{EXECUTE_TOOL, RUN_SUBAGENT, RUN_SUBAGENTS, gateway};
use crate::util::{one_line, shorten};

/// Longest agent, server or tool name in an entry, in characters.
const MAX_NAME_CHARS: usize = 256;

/// Converts a message to rmcp's type, because rmcp ignores a message that it cannot deserialize, or answers it without an
/// id. `received` is the message as the client sent it, for the error.
///
/// # Errors
///
/// -32700 for a number beyond `f64` or an unpaired surrogate; -32600 for a field with a type that MCP does not allow,
/// and for a `tools/call` without an id.
pub(crate) fn to_typed(
    message: &[u8],
    received: &[u8],
) -> Result<ClientJsonRpcMessage, InvalidMessage> {
    match serde_json::from_slice(message) {
        Ok(parsed) if is_tool_call_without_id(&parsed) => {
            Err(InvalidMessage::invalid_request(received, "a `tools/call` must have an `id`"))
        }
        Ok(parsed) => Ok(parsed),
        Err(error) => Err(match serde_json::from_slice::<Value>(message) {
            Ok(_) => {
                let sentence = format!("a field has a type that MCP does not allow ({error})");
                InvalidMessage::invalid_request(received, &sentence)
            }
            // A number beyond `f64`, or an unpaired surrogate.
            Err(error) => InvalidMessage::parse_error(received, &error.to_string()),
        }),
    }
}

fn is_tool_call_without_id(message: &ClientJsonRpcMessage) -> bool {
    let JsonRpcMessage::Notification(JsonRpcNotification { notification, .. }) = message else {
        return false;
    };
    matches!(notification, ClientNotification::CustomNotification(custom) if custom.method == "tools/call")
}

/// The audit entry of a rejected message; `None` if the message names no tool.
pub(crate) fn rejection_entry(
    refused: &InvalidMessage,
    caller: Option<&Caller>,
) -> Option<AuditEntry> {
    let code = match refused.code {
        InvalidMessage::PARSE_ERROR => "PARSE_ERROR",
        _ => "INVALID_REQUEST",
    };
    let entry = attempted_call_entry(&refused.recovered, caller)?;
    Some(entry.with_denial(code, refused.message.clone()))
}

/// The audit entry of an attempted tool call, without its outcome; `None` if no tool is named.
pub(crate) fn attempted_call_entry(
    named: &RecoveredNames,
    caller: Option<&Caller>,
) -> Option<AuditEntry> {
    let sanitized = |name: &Option<String>| name.as_deref().map(sanitize_name);
    let (operation, server, tool) = match named.called_tool()? {
        // A delegation has the agent as its tool, empty if the message names none.
        RUN_SUBAGENT | RUN_SUBAGENTS => {
            ("run_subagent", None, Some(sanitized(&named.agent_name).unwrap_or_default()))
        }
        EXECUTE_TOOL => {
            (EXECUTE_TOOL, sanitized(&named.target_server), sanitized(&named.target_tool))
        }
        name => (gateway::audit_operation(name), None, Some(sanitize_name(name))),
    };
    let mut entry = AuditEntry::new(operation);
    (entry.server, entry.tool) = (server, tool);
    Some(match caller {
        Some(caller) => entry.with_caller(caller),
        None => entry,
    })
}

fn sanitize_name(name: &str) -> String {
    one_line(&shorten(name, MAX_NAME_CHARS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    fn request(value: &str) -> String {
        let params = format!(
            r#"{{"name":"execute_tool","arguments":{{"server":"s","tool":"t","args":{{"x":{value}}}}}}}"#
        );
        format!(r#"{{"method":"tools/call","params":{params},"jsonrpc":"2.0","id":"a-7"}}"#)
    }

    #[test_case("\"\\ud800\""; "half of a character")]
    #[test_case("1e99999"; "a number beyond a double")]
    #[test_case(&"1".repeat(400); "a whole number beyond a double")]
    #[test_case(&format!("{}e50", "1".repeat(300)); "a large number with an exponent of two digits")]
    fn a_message_that_rmcp_cannot_parse_is_a_parse_error(value: &str) {
        let refused = to_typed(request(value).as_bytes(), request(value).as_bytes()).unwrap_err();
        assert_eq!(refused.code, InvalidMessage::PARSE_ERROR);
        assert_eq!(refused.recovered.id.as_deref(), Some("\"a-7\""));
    }

    #[test_case("\"\\ud83d\\ude00 1e999\""; "a whole character")]
    #[test_case("[[1e308]]"; "a large number")]
    fn numbers_and_strings_that_rmcp_can_parse_are_valid(value: &str) {
        assert!(to_typed(request(value).as_bytes(), request(value).as_bytes()).is_ok());
    }

    #[test_case(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[1]}"# => false; "params that are a list")]
    #[test_case(r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":"x"}"# => false; "params that are text")]
    #[test_case(r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":7}}"# => false; "meta that is a number")]
    #[test_case(r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"x"}}"# => false; "a call without an id")]
    #[test_case(r#"{"jsonrpc":"2.0","id":1,"method":"made/up","params":{"x":1}}"# => true; "an unknown method")]
    #[test_case(r#"{"jsonrpc":"2.0","method":"made/up","params":{"x":1}}"# => true; "an unknown notification")]
    #[test_case(r#"{"jsonrpc":"2.0","id":1,"result":{}}"# => true; "a response")]
    fn messages_are_validated_with_the_types_of_rmcp(message: &str) -> bool {
        to_typed(message.as_bytes(), message.as_bytes())
            .map_err(|refused| assert_eq!(refused.code, -32_600))
            .is_ok()
    }

    #[test]
    fn an_attempted_tool_call_has_an_audit_entry() {
        let refused = InvalidMessage::parse_error(request("1").as_bytes(), "x");
        let entry = rejection_entry(&refused, None).unwrap();
        assert_eq!(entry.operation, "execute_tool");
        assert_eq!((entry.server.as_deref(), entry.tool.as_deref()), (Some("s"), Some("t")));
        assert_eq!(entry.code.as_deref(), Some("PARSE_ERROR"));
        let other = br#"{"id":1,"method":"prompts/get","params":{"name":"x"}"#;
        assert!(rejection_entry(&InvalidMessage::parse_error(other, "x"), None).is_none());
    }
}
