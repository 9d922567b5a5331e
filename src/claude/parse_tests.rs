//! Tests with lines of the real CLI and with malformed lines.

use proptest::prelude::*;
use serde_json::json;

use super::super::result::{ModelUsage, PermissionDenial, ResultSubtype};
use super::*;
use crate::util::{LineReader, ReadLine};

fn parsed(line: &str) -> OutputFrame {
    parse_line(line.as_bytes()).expect("a frame")
}

#[test]
fn parses_init_of_2_1_325() {
    let frame = parsed(
        r#"{"type":"system","subtype":"init","cwd":"/w","session_id":"f98e","tools":["Bash","mcp__brave__search"],"mcp_servers":[{"name":"brave","status":"connected","source":"sdk"}],"model":"claude-opus-5-5","permissionMode":"default","slash_commands":["compact"],"claude_code_version":"2.1.325"}"#,
    );
    let expected = InitFrame {
        session_id: "f98e".into(),
        model: "claude-opus-5-5".into(),
        tools: vec!["Bash".into(), "mcp__brave__search".into()],
        mcp_servers: vec![ServerStatus { name: "brave".into(), status: "connected".into() }],
        permission_mode: "default".into(),
        version: "2.1.325".into(),
        cwd: "/w".into(),
    };
    assert_eq!(frame, OutputFrame::System(SystemFrame::Init(expected)));
}

#[test]
fn parses_a_tool_use_and_its_denial() {
    let frame = parsed(
        r#"{"type":"assistant","message":{"id":"m1","content":[{"type":"thinking","thinking":"hm"},{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"ls"}}],"usage":{"input_tokens":10,"output_tokens":1}},"parent_tool_use_id":null}"#,
    );
    let OutputFrame::Assistant(message) = frame else { panic!("{frame:?}") };
    let input = json!({"command": "ls"});
    let tool = MessageBlock::ToolUse { id: "t1".into(), name: "Bash".into(), input };
    assert_eq!(message.blocks, [MessageBlock::Other, tool]);
    assert_eq!((message.usage.input_tokens, message.parent_tool_use_id), (10, None));

    let frame = parsed(
        r#"{"type":"user","message":{"role":"user","content":[{"type":"tool_result","content":"no","is_error":true,"tool_use_id":"t1"},{"type":"tool_result","content":[{"type":"text","text":"a"},{"type":"image"},{"type":"text","text":"b"}],"tool_use_id":"t2"}]}}"#,
    );
    let OutputFrame::User(message) = frame else { panic!("{frame:?}") };
    let refused = ToolResult { tool_use_id: "t1".into(), is_error: true, text: "no".into() };
    let found = ToolResult { tool_use_id: "t2".into(), is_error: false, text: "a\nb".into() };
    assert_eq!(message.results, [refused, found]);
}

#[test]
fn parses_a_result_of_2_1_197() {
    let frame = parsed(
        r#"{"type":"result","subtype":"success","is_error":false,"api_error_status":null,"duration_ms":258,"duration_api_ms":130,"num_turns":4,"result":"done","session_id":"s","total_cost_usd":0.0007,"usage":{"input_tokens":40,"output_tokens":20},"modelUsage":{"opus":{"inputTokens":40,"costUSD":0.0007}},"permission_denials":[{"tool_name":"Bash","tool_use_id":"t","tool_input":{"command":"x"}}],"terminal_reason":"completed"}"#,
    );
    let OutputFrame::Result(result) = frame else { panic!("{frame:?}") };
    let usage = TokenUsage { input_tokens: 40, ..TokenUsage::default() };
    let expected = ResultFrame {
        subtype: ResultSubtype::Success,
        is_error: false,
        result: Some("done".into()),
        terminal_reason: Some("completed".into()),
        session_id: "s".into(),
        total_cost_usd: 0.0007,
        num_turns: 4,
        duration_ms: 258,
        duration_api_ms: 130,
        usage: TokenUsage { output_tokens: 20, ..usage },
        model_usage: [("opus".to_owned(), ModelUsage { usage, cost_usd: 0.0007 })].into(),
        permission_denials: vec![PermissionDenial {
            tool_name: "Bash".into(),
            tool_use_id: "t".into(),
            tool_input: json!({"command": "x"}),
        }],
        ..ResultFrame::default()
    };
    assert_eq!(*result, expected);
    assert!(result.is_success());
}

#[test]
fn result_without_is_error_is_not_a_success() {
    for line in [
        r#"{"type":"result","subtype":"success","result":"x"}"#,
        r#"{"type":"result","subtype":"success","is_error":"false","result":"x"}"#,
        r#"{"type":"result","subtype":"success","is_error":true}"#,
        r#"{"type":"result","is_error":false}"#,
        r#"{"type":"result","subtype":"brand_new","is_error":false}"#,
    ] {
        let OutputFrame::Result(result) = parsed(line) else { panic!("{line}") };
        assert!(!result.is_success(), "{line}");
    }
}

#[test]
fn retry_delay_is_truncated_to_milliseconds() {
    let frame = parsed(
        r#"{"type":"system","subtype":"api_retry","attempt":1,"max_retries":10,"retry_delay_ms":623.6008433363514,"error_status":529,"error":"overloaded"}"#,
    );
    let expected = SystemFrame::ApiRetry {
        attempt: 1,
        max_retries: 10,
        delay_ms: 623,
        status: Some(529),
        error: "overloaded".into(),
    };
    assert_eq!(frame, OutputFrame::System(expected));
}

#[test]
fn parses_control_requests() {
    let frame = parsed(
        r#"{"type":"control_request","request_id":"x","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"touch a"},"permission_suggestions":[{"type":"addRules"}],"decision_reason":"why","tool_use_id":"t"}}"#,
    );
    let kind = ControlPayload::CanUseTool(PermissionRequest {
        tool_name: "Bash".into(),
        input: json!({"command": "touch a"}),
        tool_use_id: "t".into(),
        suggestions: vec![json!({"type": "addRules"})],
        reason: Some("why".into()),
    });
    assert_eq!(
        frame,
        OutputFrame::ControlRequest(ControlRequest { request_id: "x".into(), payload: kind })
    );
}

#[test]
fn unknown_frames_are_ignored() {
    assert_eq!(parsed(r#"{"type":"rate_limit_event","x":1}"#), OutputFrame::Other);
    assert_eq!(parsed("{}"), OutputFrame::Other);
    assert_eq!(parsed(r#"{"type":7}"#), OutputFrame::Other);
    assert_eq!(
        parsed(r#"{"type":"assistant","message":"a text"}"#),
        OutputFrame::Assistant(AssistantFrame::default())
    );
    assert_eq!(parse_line(b"npm warn deprecated"), None);
    assert_eq!(parse_line(b"[1,2]"), None);
    assert_eq!(parse_line(b"{\"type\":\"result\",\"res"), None, "torn");
    assert_eq!(parse_line(b""), None);
}

/// JavaScript cuts strings between the two halves of an emoji and escapes the halves.
#[test]
fn lone_surrogates_do_not_lose_the_answer() {
    for (written, read) in [
        (r"cut \ud83d", "cut \u{fffd}"),
        (r"\udc00 cut", "\u{fffd} cut"),
        (r"\ud83d\ud83d\ude00!", "\u{fffd}😀!"),
        (r"\ud83dA", "\u{fffd}A"),
        (r"\\ud83d \ud83d", "\\ud83d \u{fffd}"),
        (r"\ud83d\u0041", "\u{fffd}A"),
    ] {
        let line = format!(r#"{{"type":"result","is_error":false,"result":"{written}"}}"#);
        let OutputFrame::Result(result) = parsed(&line) else { panic!("{line}") };
        assert_eq!(result.result.as_deref(), Some(read));
    }
}

#[test]
fn invalid_utf8_does_not_lose_the_answer() {
    let frame = parse_line(b"{\"type\":\"result\",\"result\":\"a\xffb\"}").unwrap();
    let OutputFrame::Result(result) = frame else { panic!("{frame:?}") };
    assert_eq!(result.result.as_deref(), Some("a\u{fffd}b"));
}

#[test]
fn deep_nesting_still_identifies_the_control_request() {
    let deep = format!("{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
    let line = format!(
        r#"{{"type":"control_request","request_id":"x","request":{{"subtype":"hook_callback","callback_id":"h","input":{deep}}}}}"#
    );
    let kind = ControlPayload::TooDeep { subtype: "hook_callback".into(), callback_id: "h".into() };
    assert_eq!(
        parsed(&line),
        OutputFrame::ControlRequest(ControlRequest { request_id: "x".into(), payload: kind })
    );
    let line = format!(
        r#"{{"type":"result","subtype":"success","is_error":false,"result":"r","structured_output":{deep}}}"#
    );
    let OutputFrame::Result(result) = parsed(&line) else { panic!("no result") };
    assert!(result.is_success());
    assert_eq!(parse_line(deep.as_bytes()), None);
}

/// Splits the bytes at `cuts`; each read returns one piece.
fn read_lines(bytes: &[u8], cuts: &[usize], limit: usize) -> Vec<Vec<u8>> {
    let mut reads = pieces_reader(bytes, cuts);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut reader = LineReader::new(&mut reads, limit);
        let mut lines = Vec::new();
        loop {
            match reader.next().await.unwrap() {
                ReadLine::Complete(line) => lines.push(line.to_vec()),
                ReadLine::TooLong => {
                    lines.push(b"too long".to_vec());
                    return lines;
                }
                ReadLine::End => return lines,
            }
        }
    })
}

struct Pieces(std::collections::VecDeque<Vec<u8>>);

impl tokio::io::AsyncRead for Pieces {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        if let Some(mut piece) = self.0.pop_front() {
            let rest = piece.split_off(piece.len().min(buffer.remaining()));
            buffer.put_slice(&piece);
            if !rest.is_empty() {
                self.0.push_front(rest);
            }
        }
        std::task::Poll::Ready(Ok(()))
    }
}

fn pieces_reader(bytes: &[u8], cuts: &[usize]) -> Pieces {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.sort_unstable();
    cuts.push(bytes.len());
    let mut start = 0;
    let mut pieces = std::collections::VecDeque::new();
    for cut in cuts {
        if cut > start {
            pieces.push_back(bytes[start..cut].to_vec());
            start = cut;
        }
    }
    Pieces(pieces)
}

#[test]
fn line_over_the_limit_is_rejected() {
    assert_eq!(read_lines(b"1234\n12345\n", &[3, 7], 5), [b"1234".to_vec(), b"12345".to_vec()]);
    assert_eq!(read_lines(b"1234\n123456", &[], 5), [b"1234".to_vec(), b"too long".to_vec()]);
    assert_eq!(read_lines(b"123456\n", &[], 5), [b"too long".to_vec()]);
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = parse_line(&bytes);
    }

    #[test]
    fn no_json_panics(text in r#"\{"type":"(system|assistant|user|result|control_request|control_response|stream_event)"(,"(subtype|message|request|response|result|event)":(null|1|"\\ud83d"|\[\]|\{"content":\[\{"type":"text"\}\]\}|\{"subtype":"hook_callback","input":3\}|\{"delta":\{"text":"x"\}\})){0,3}\}"#) {
        prop_assert!(parse_line(text.as_bytes()).is_some(), "{}", text);
    }

    #[test]
    fn chunks_never_change_the_lines(
        text in "[a-zä😀\n]{0,200}",
        cuts in prop::collection::vec(any::<usize>(), 0..20),
    ) {
        let whole = read_lines(text.as_bytes(), &[], 1000);
        prop_assert_eq!(&whole, &read_lines(text.as_bytes(), &cuts, 1000));
        let mut expected: Vec<Vec<u8>> = text.split('\n').map(|l| l.as_bytes().to_vec()).collect();
        if expected.last().is_some_and(Vec::is_empty) {
            expected.pop();
        }
        prop_assert_eq!(whole, expected);
    }

    #[test]
    fn repair_keeps_valid_json_unchanged(text in any::<String>()) {
        let line = serde_json::json!({ "a": text }).to_string();
        prop_assert_eq!(repair(line.as_bytes()), line.as_str());
    }
}
