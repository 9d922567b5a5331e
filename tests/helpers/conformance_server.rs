//! An MCP server with the fixtures that the official conformance suite expects, behind Adjutant's HTTP server.
//!
//! The suite tests Adjutant's authentication, HTTP sessions and limits this way. Prints the address on stderr, as
//! `adjutant serve --http` does.

#![expect(deprecated, reason = "the older revision has log levels, and the suite asks for them")]
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::unnecessary_wraps,
    clippy::needless_pass_by_value,
    clippy::too_many_lines,
    reason = "a fixture: it may panic, and its tables are long"
)]

use std::sync::LazyLock;
use std::time::Duration;

use adjutant::config::{GatewayOptions, Settings};
use adjutant::gateway::Gateway;
use adjutant::server::{HealthProbe, HttpOptions, HttpServer, HttpShutdown};
use rmcp::RoleServer;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities,
    CompleteRequestParams, CompleteResult, ErrorData, GetPromptRequestParams, GetPromptResponse,
    GetPromptResult, Implementation, InputRequiredResult, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, ServerConfig, ServerNotification, ServerRequest, SetLevelRequestParams,
    SubscribeRequestParams, SubscriptionFilter, Tool, UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// One red pixel.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
/// A WAV file without samples.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";
/// Prefix of every `requestState`. Stands in for a signature, which a server with secrets would use.
const STATE_PREFIX: &str = "sealed:";

static CHANGED_URIS: LazyLock<broadcast::Sender<&'static str>> =
    LazyLock::new(|| broadcast::channel(16).0);

#[tokio::main]
async fn main() {
    let settings = Settings::resolve(None).expect("a project");
    let mut options = HttpOptions::at("127.0.0.1:0").expect("an address");
    options.insecure_local = true;
    options.requests_per_second = 0;
    let server = HttpServer::bind(&settings.data_dir(), options).expect("a port");
    eprintln!("serving MCP at {}", server.url());
    let gateway = Gateway::start(&settings, GatewayOptions::default());
    let never = CancellationToken::new();
    let end = HttpShutdown { stopping: never.clone(), ending: never };
    server.serve(HealthProbe { gateway, orchestrator: None }, || ConformanceHandler, end).await;
}

struct ConformanceHandler;

type Context = RequestContext<RoleServer>;

fn from_json<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("the fixture is written right")
}

/// Deserializes a result of revision 2026-07-28; rmcp drops `resultType` for clients of older revisions.
fn complete_result<T: DeserializeOwned>(mut value: Value) -> T {
    value["resultType"] = "complete".into();
    from_json(value)
}

fn text(text: impl Into<String>) -> Value {
    json!({ "content": [{ "type": "text", "text": text.into() }] })
}

fn tool_result(value: Value) -> Result<CallToolResponse, ErrorData> {
    Ok(complete_result::<CallToolResult>(value).into())
}

fn image() -> Value {
    json!({ "type": "image", "data": PNG, "mimeType": "image/png" })
}

fn tools() -> Vec<Tool> {
    let none = json!({ "type": "object", "properties": {} });
    let with = |name: &str| json!({ "type": "object", "properties": { name: { "type": "string" } }, "required": [name] });
    let plain = [
        "test_simple_text",
        "test_image_content",
        "test_audio_content",
        "test_embedded_resource",
        "test_multiple_content_types",
        "test_error_handling",
        "test_tool_with_logging",
        "test_tool_with_progress",
        "test_elicitation_sep1034_defaults",
        "test_elicitation_sep1330_enums",
        "test_reconnection",
        "test_missing_capability",
        "test_logging_tool",
        "test_streaming_elicitation",
        "test_trigger_tool_change",
        "test_trigger_prompt_change",
        "test_input_required_result_elicitation",
        "test_input_required_result_sampling",
        "test_input_required_result_list_roots",
        "test_input_required_result_request_state",
        "test_input_required_result_multiple_inputs",
        "test_input_required_result_multi_round",
        "test_input_required_result_tampered_state",
        "test_input_required_result_capabilities",
    ];
    let mut tools: Vec<(&str, Value)> = plain.map(|name| (name, none.clone())).into();
    tools.push(("test_sampling", with("prompt")));
    tools.push(("test_elicitation", with("message")));
    tools.push(("json_schema_2020_12_tool", full_schema()));
    tools.push((
        "test_custom_headers",
        json!({ "type": "object", "properties": {
        "region": { "type": "string", "x-mcp-header": "Region" },
    } }),
    ));
    let tool = |(name, schema)| {
        from_json(
            json!({ "name": name, "description": "Asked for by the suite", "inputSchema": schema }),
        )
    };
    tools.into_iter().map(tool).collect()
}

fn full_schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": { "address": { "$anchor": "addressDef", "type": "object", "properties": {
            "street": { "type": "string" }, "city": { "type": "string" },
        } } },
        "properties": {
            "name": { "type": "string" }, "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" }, "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}

/// Sends a request to the client, for revisions in which servers may send requests.
async fn request_client(
    context: &Context,
    method: &str,
    params: Value,
) -> Result<Value, ErrorData> {
    let request: ServerRequest = from_json(json!({ "method": method, "params": params }));
    let answer = context.peer.send_request(request).await;
    let answer = answer.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    Ok(serde_json::to_value(answer).unwrap_or_default())
}

async fn elicit(context: &Context, properties: Value) -> Result<CallToolResponse, ErrorData> {
    let schema = json!({ "type": "object", "properties": properties });
    let params =
        json!({ "mode": "form", "message": "Please fill this in", "requestedSchema": schema });
    let answer = request_client(context, "elicitation/create", params).await?;
    let (action, content) = (answer["action"].as_str().unwrap_or_default(), &answer["content"]);
    tool_result(text(format!("Elicitation completed: action={action}, content={content}")))
}

fn elicitation_request(message: &str, field: &str, kind: &str) -> Value {
    json!({ "method": "elicitation/create", "params": {
        "mode": "form", "message": message,
        "requestedSchema": {
            "type": "object", "properties": { field: { "type": kind } }, "required": [field],
        },
    } })
}

fn sampling_request(prompt: &str) -> Value {
    json!({ "method": "sampling/createMessage", "params": {
        "messages": [{ "role": "user", "content": { "type": "text", "text": prompt } }],
        "maxTokens": 100,
    } })
}

fn input_required(requests: Value, state: Option<&str>) -> InputRequiredResult {
    let mut result = json!({ "resultType": "input_required", "inputRequests": requests });
    if let Some(state) = state {
        result["requestState"] = format!("{STATE_PREFIX}{state}").into();
    }
    from_json(result)
}

/// Tools that return `input_required`: each question without an answer is asked again, over up to three calls.
fn answer_in_rounds(
    name: &str,
    request: &CallToolRequestParams,
    context: &Context,
) -> Result<CallToolResponse, ErrorData> {
    let given = serde_json::to_value(&request.input_responses).unwrap_or_default();
    let state = request.request_state.as_deref();
    if let Some(state) =
        state.filter(|state| !matches!(state.strip_prefix(STATE_PREFIX), Some("1" | "2")))
    {
        let message = format!("the state was not made here: {state}");
        return Err(ErrorData::invalid_params(message, None));
    }
    let roots = || json!({ "method": "roots/list", "params": {} });
    let name_question = || elicitation_request("What is your name?", "name", "string");
    let (wanted, next) = match name {
        "elicitation" => (json!({ "user_name": name_question() }), None),
        "sampling" => (
            json!({ "capital_question": sampling_request("What is the capital of France?") }),
            None,
        ),
        "list_roots" => (json!({ "client_roots": roots() }), None),
        "request_state" | "tampered_state" => (
            json!({ "confirm": elicitation_request("Please confirm", "ok", "boolean") }),
            Some("1"),
        ),
        "multiple_inputs" => (
            json!({ "user_name": name_question(), "greeting": sampling_request("Generate a greeting"), "client_roots": roots() }),
            Some("1"),
        ),
        "multi_round" if state == Some("sealed:1") => (
            json!({ "step2": elicitation_request("Step 2: What is your favorite color?", "color", "string") }),
            Some("2"),
        ),
        "multi_round" if state == Some("sealed:2") => (json!({}), None),
        "multi_round" => (
            json!({ "step1": elicitation_request("Step 1: What is your name?", "name", "string") }),
            Some("1"),
        ),
        _ => {
            let offered = context.client_capabilities().unwrap_or_default();
            let mut wanted = json!({});
            if offered.sampling.is_some() {
                wanted["question"] = sampling_request("Hello?");
            }
            if offered.elicitation.is_some() {
                wanted["form"] = name_question();
            }
            (wanted, None)
        }
    };
    let complete = name != "multi_round" || state == Some("sealed:2");
    let answered = wanted.as_object().into_iter().flatten().all(|(key, _)| is_answer(&given[key]));
    if answered && complete {
        let name = given["user_name"]["content"]["name"].as_str();
        let said =
            name.map_or_else(|| format!("state-ok {given}"), |name| format!("Hello, {name}!"));
        return tool_result(text(said));
    }
    Ok(input_required(wanted, next).into())
}

fn is_answer(value: &Value) -> bool {
    let accepted = value["action"] != "accept" || value["content"].is_object();
    value.is_object() && accepted
}

impl ServerHandler for ConformanceHandler {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(from_json(json!({
            "tools": { "listChanged": true }, "prompts": { "listChanged": true },
            "resources": { "subscribe": true, "listChanged": true }, "logging": {}, "completions": {},
        })));
        info.protocol_version = ProtocolVersion::LATEST_WITH_INITIALIZE;
        info.server_info = Implementation::new("adjutant-conformance", env!("CARGO_PKG_VERSION"));
        info
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools().into_iter().find(|tool| tool.name == name)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let argument = |name: &str| {
            let value = request.arguments.as_ref().and_then(|all| all.get(name)?.as_str());
            value.unwrap_or_default().to_owned()
        };
        if let Some(name) = request.name.strip_prefix("test_input_required_result_") {
            return answer_in_rounds(name, &request, &context);
        }
        match request.name.as_ref() {
            "test_simple_text" => tool_result(text("This is a simple text response for testing.")),
            "test_image_content" => tool_result(json!({ "content": [image()] })),
            "test_audio_content" => {
                tool_result(json!({ "content": [{ "type": "audio", "data": WAV, "mimeType": "audio/wav" }] }))
            }
            "test_embedded_resource" => tool_result(json!({ "content": [{ "type": "resource", "resource": {
                "uri": "test://embedded-resource", "mimeType": "text/plain",
                "text": "This is an embedded resource content.",
            } }] })),
            "test_multiple_content_types" => tool_result(json!({ "content": [
                { "type": "text", "text": "Multiple content types test:" }, image(),
                { "type": "resource", "resource": {
                    "uri": "test://mixed-content-resource", "mimeType": "application/json",
                    "text": "{\"test\":\"data\",\"value\":123}",
                } },
            ] })),
            "test_error_handling" => {
                let mut result = text("This tool intentionally returns an error for testing");
                result["isError"] = true.into();
                tool_result(result)
            }
            "test_tool_with_logging" => {
                for said in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
                    send_log_message(&context, said).await;
                    sleep(Duration::from_millis(50)).await;
                }
                tool_result(text("logged"))
            }
            "test_tool_with_progress" => {
                for step in [0.0, 50.0, 100.0] {
                    if let Some(token) = context.meta.get_progress_token() {
                        let progress = ProgressNotificationParam::new(token, step).with_total(100.0);
                        let _ = context.peer.notify_progress(progress).await;
                    }
                    sleep(Duration::from_millis(50)).await;
                }
                tool_result(text("progressed"))
            }
            "test_sampling" => {
                let asked = sampling_request(&argument("prompt"));
                let answer = request_client(&context, "sampling/createMessage", asked["params"].clone()).await?;
                let said = answer["content"]["text"].as_str().unwrap_or_default();
                tool_result(text(format!("LLM response: {said}")))
            }
            "test_elicitation" => {
                let string = |about: &str| json!({ "type": "string", "description": about });
                let schema = json!({ "type": "object", "required": ["username", "email"], "properties": {
                    "username": string("User's response"), "email": string("User's email address"),
                } });
                let params = json!({ "mode": "form", "message": argument("message"), "requestedSchema": schema });
                let answer = request_client(&context, "elicitation/create", params).await?;
                tool_result(text(format!("User response: {answer}")))
            }
            "test_elicitation_sep1034_defaults" => elicit(&context, json!({
                "name": { "type": "string", "default": "John Doe" },
                "age": { "type": "integer", "default": 30 },
                "score": { "type": "number", "default": 95.5 },
                "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
                "verified": { "type": "boolean", "default": true },
            })).await,
            "test_elicitation_sep1330_enums" => {
                let options = ["option1", "option2", "option3"];
                let titled = |word: &str| json!([
                    { "const": "value1", "title": format!("First {word}") },
                    { "const": "value2", "title": format!("Second {word}") },
                    { "const": "value3", "title": format!("Third {word}") },
                ]);
                elicit(&context, json!({
                    "untitledSingle": { "type": "string", "enum": options },
                    "titledSingle": { "type": "string", "oneOf": titled("Option") },
                    "legacyEnum": { "type": "string", "enum": ["opt1", "opt2", "opt3"],
                        "enumNames": ["Option One", "Option Two", "Option Three"] },
                    "untitledMulti": { "type": "array", "items": { "type": "string", "enum": options } },
                    "titledMulti": { "type": "array", "items": { "anyOf": titled("Choice") } },
                })).await
            }
            "test_missing_capability" => {
                if context.client_capabilities().is_some_and(|offered| offered.sampling.is_some()) {
                    return tool_result(text("it can"));
                }
                let needed: ClientCapabilities = from_json(json!({ "sampling": {} }));
                Err(ErrorData::missing_required_client_capability(needed))
            }
            "test_streaming_elicitation" => {
                let form = elicitation_request("Anything?", "anything", "string");
                Ok(input_required(json!({ "form": form }), None).into())
            }
            "test_trigger_tool_change" => {
                let _ = CHANGED_URIS.send("tools");
                tool_result(text("changed"))
            }
            "test_trigger_prompt_change" => {
                let _ = CHANGED_URIS.send("prompts");
                tool_result(text("changed"))
            }
            name if tools().iter().any(|tool| tool.name == name) => tool_result(text("done")),
            name => Err(ErrorData::invalid_params(format!("there is no tool `{name}`"), None)),
        }
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(complete_result(json!({ "resources": [
            { "uri": "test://static-text", "name": "text", "description": "Text", "mimeType": "text/plain" },
            { "uri": "test://static-binary", "name": "binary", "description": "Bytes", "mimeType": "image/png" },
            { "uri": "test://watched-resource", "name": "watched", "description": "Watched", "mimeType": "text/plain" },
        ] })))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(complete_result(json!({ "resourceTemplates": [{
            "uriTemplate": "test://template/{id}/data", "name": "template", "description": "Data by id",
            "mimeType": "application/json",
        }] })))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri.as_str();
        let id = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
        let mut content = match (uri, id) {
            (_, Some(id)) => json!({ "mimeType": "application/json", "text":
                json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") }).to_string() }),
            ("test://static-text", _) => {
                json!({ "mimeType": "text/plain", "text": "This is the content of the static text resource." })
            }
            ("test://static-binary", _) => json!({ "mimeType": "image/png", "blob": PNG }),
            ("test://watched-resource", _) => {
                json!({ "mimeType": "text/plain", "text": "Watched" })
            }
            _ => {
                let data = json!({ "uri": uri });
                return Err(ErrorData::resource_not_found("Resource not found", Some(data)));
            }
        };
        content["uri"] = uri.into();
        Ok(complete_result::<ReadResourceResult>(json!({ "contents": [content] })).into())
    }

    async fn subscribe(
        &self,
        _request: SubscribeRequestParams,
        _context: Context,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _request: UnsubscribeRequestParams,
        _context: Context,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn set_level(
        &self,
        _request: SetLevelRequestParams,
        _context: Context,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: Context,
    ) -> Result<CompleteResult, ErrorData> {
        Ok(complete_result(
            json!({ "completion": { "values": ["paris", "park", "party"], "total": 3, "hasMore": false } }),
        ))
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: Context,
    ) -> Result<ListPromptsResult, ErrorData> {
        let required =
            |name: &str| json!({ "name": name, "description": "An argument", "required": true });
        Ok(complete_result(json!({ "prompts": [
            { "name": "test_simple_prompt", "description": "Simple" },
            { "name": "test_prompt_with_arguments", "description": "With arguments",
                "arguments": [required("arg1"), required("arg2")] },
            { "name": "test_prompt_with_embedded_resource", "description": "With a resource",
                "arguments": [required("resourceUri")] },
            { "name": "test_prompt_with_image", "description": "With an image" },
            { "name": "test_input_required_result_prompt", "description": "With a question" },
        ] })))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _context: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        let argument = |name: &str| {
            let value = request.arguments.as_ref().and_then(|all| all.get(name)?.as_str());
            value.unwrap_or_default().to_owned()
        };
        let says = |text: String| json!({ "type": "text", "text": text });
        let contents = match request.name.as_str() {
            "test_simple_prompt" => vec![says("This is a simple prompt for testing.".into())],
            "test_prompt_with_arguments" => {
                let (one, two) = (argument("arg1"), argument("arg2"));
                vec![says(format!("Prompt with arguments: arg1='{one}', arg2='{two}'"))]
            }
            "test_prompt_with_embedded_resource" => vec![
                json!({ "type": "resource", "resource": {
                    "uri": argument("resourceUri"), "mimeType": "text/plain",
                    "text": "Embedded resource content for testing.",
                } }),
                says("Please process the embedded resource above.".into()),
            ],
            "test_prompt_with_image" => {
                vec![image(), says("Please analyze the image above.".into())]
            }
            "test_input_required_result_prompt" => {
                if request.input_responses.is_none() {
                    let form = elicitation_request(
                        "What context should the prompt use?",
                        "context",
                        "string",
                    );
                    return Ok(input_required(json!({ "user_context": form }), None).into());
                }
                vec![says("With that context.".into())]
            }
            name => {
                return Err(ErrorData::invalid_params(
                    format!("there is no prompt `{name}`"),
                    None,
                ));
            }
        };
        let messages: Vec<Value> = contents
            .into_iter()
            .map(|content| json!({ "role": "user", "content": content }))
            .collect();
        Ok(complete_result::<GetPromptResult>(json!({ "messages": messages })).into())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = CHANGED_URIS.subscribe();
        let sink = context.sink();
        loop {
            let changed = tokio::select! {
                changed = changes.recv() => changed,
                () = context.cancelled() => return Ok(()),
            };
            let _ = match changed {
                Ok("tools") => sink.notify_tool_list_changed().await,
                Ok(_) => sink.notify_prompt_list_changed().await,
                Err(_) => return Ok(()),
            };
        }
    }
}

/// Sends a log message, for revisions in which servers may send one.
async fn send_log_message(context: &Context, said: &str) {
    let params = json!({ "level": "info", "logger": "fixture", "data": said });
    let message: ServerNotification =
        from_json(json!({ "method": "notifications/message", "params": params }));
    let _ = context.peer.send_notification(message).await;
}
