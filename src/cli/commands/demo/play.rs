//! Runs the delegation of the demo and prints each step.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{env, io};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio_util::sync::CancellationToken;

use super::cast::DemoCast;
use super::project::{DemoPage, DemoProject};
use crate::claude::{MessageBlock, OutputFrame, ToolResult, parse_line, summarize_tool};
use crate::cli::output;
use crate::cli::runtime::lazy_gateway;
use crate::config::Settings;
use crate::delegation::{NoApprover, Orchestrator, RunRequest, StatusSender};
use crate::identity::Caller;
use crate::outcome::Outcome;
use crate::process::{
    ProcessHandle, ProcessSpec, Shutdown, StopMode, SymlinkPolicy, spawn_process,
};
use crate::runs::RunRegistry;
use crate::util::{RunId, one_line, shorten};

const DEMO_TIMEOUT: Duration = Duration::from_mins(3);
const POLL_INTERVAL: Duration = Duration::from_millis(40);

/// Runs a real `claude` as main agent in the demo project, with Adjutant as its MCP server.
pub(crate) async fn run_with_claude(
    cast: &DemoCast,
    scene: &DemoProject,
    page: &DemoPage,
) -> io::Result<Option<String>> {
    let servers = scene.register(&cast.claude)?;
    let mut main =
        spawn_process(process_spec(cast, scene, &servers)).await.map_err(io::Error::other)?;
    if let Some(mut stdin) = main.stdin.take() {
        stdin.write_all(main_prompt(cast, page).as_bytes()).await?;
    }
    let registry = tokio::spawn(watch_subagent(RunRegistry::at(&scene.data_dir())));
    let told = tokio::time::timeout(DEMO_TIMEOUT, print_main_agent(&mut main)).await;
    registry.abort();
    main.stop(StopMode::Graceful { grace: Duration::from_millis(500) }).await;
    match told {
        Ok(answer) => answer,
        Err(_) => {
            Err(io::Error::other(format!("the main agent did not end within {DEMO_TIMEOUT:?}")))
        }
    }
}

/// Runs the delegation without a `claude`: the demo itself calls Adjutant as the main agent.
pub(crate) async fn run_with_stand_in(
    cast: &DemoCast,
    scene: &DemoProject,
    page: &DemoPage,
) -> io::Result<Option<String>> {
    print_step("main", &format!("wants Bash: curl -s {}", page.url));
    print_step("", "and its settings deny Bash(curl:*)");
    print_step("main", "→ run_subagent(web-search)");
    let settings = Settings { root: scene.root.clone(), claude: Some(cast.claude.clone()) };
    let gateway = lazy_gateway(&settings);
    let orchestrator = Orchestrator::start(settings, Shutdown::new(Duration::ZERO), gateway);
    let request = RunRequest {
        agent_name: "web-search".to_owned(),
        prompt: subagent_script(page),
        ..RunRequest::default()
    };
    let registry = tokio::spawn(watch_subagent(RunRegistry::at(&scene.data_dir())));
    let nobody = Arc::new(NoApprover::new("nobody takes part in the demo"));
    let report = orchestrator
        .run(request, Caller::main(), StatusSender::new().0, CancellationToken::new(), nobody)
        .await;
    orchestrator.stop_all().await;
    registry.abort();
    Ok(match report.outcome {
        Outcome::Answered(answer) => {
            print_step("main", &format!("has its answer: {}", one_line(&answer.text)));
            Some(answer.text)
        }
        Outcome::Failed(failure) => {
            print_step("main", &failure.full_message());
            None
        }
    })
}

fn process_spec(cast: &DemoCast, scene: &DemoProject, servers: &Path) -> ProcessSpec {
    let mut mcp = OsString::from("--mcp-config=");
    mcp.push(servers);
    let mut arguments: Vec<OsString> =
        ["--print", "--output-format=stream-json", "--verbose", "--strict-mcp-config"]
            .map(Into::into)
            .into();
    arguments.push(mcp);
    arguments.push("--allowedTools=mcp__adjutant__run_subagent,Bash".into());
    let run = RunId::new();
    let folder = scene.root.clone();
    ProcessSpec {
        label: "demo".to_owned(),
        run,
        program: cast.claude.clone(),
        arguments,
        environment: environment(cast, scene),
        working_dir: folder,
        symlinks: SymlinkPolicy::Follow,
    }
}

/// Returns the user's environment without session variables; for a scripted model with an empty home.
fn environment(cast: &DemoCast, scene: &DemoProject) -> Vec<(OsString, OsString)> {
    let of_a_session = |name: &str| {
        name == "CLAUDECODE"
            || name.starts_with("CLAUDE_CODE_SESSION")
            || name == "CLAUDE_CODE_ENTRYPOINT"
    };
    let mut variables: Vec<(OsString, OsString)> =
        env::vars_os().filter(|(name, _)| !name.to_str().is_some_and(of_a_session)).collect();
    if let Some(model) = &cast.model {
        let config = scene.home.join(".claude").into_os_string();
        let ours: [(&str, OsString); 7] = [
            ("HOME", scene.home.clone().into()),
            ("CLAUDE_CONFIG_DIR", config),
            ("ANTHROPIC_BASE_URL", model.base_url().into()),
            ("ANTHROPIC_API_KEY", "scripted".into()),
            ("DISABLE_AUTOUPDATER", "1".into()),
            ("DISABLE_TELEMETRY", "1".into()),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".into()),
        ];
        let names = ours.each_ref().map(|(name, _)| *name);
        variables.retain(|(name, _)| {
            !names.iter().any(|ours| name == ours) && name != "ANTHROPIC_AUTH_TOKEN"
        });
        variables.extend(ours.map(|(name, value)| (name.into(), value)));
    }
    variables
}

/// Returns the prompt of the main agent. For a scripted model the prompt is its script.
fn main_prompt(cast: &DemoCast, page: &DemoPage) -> String {
    if cast.is_scripted {
        let curl = curl_input(page);
        let delegated = json!({ "agent_name": "web-search", "prompt": subagent_script(page) });
        return format!("CALL Bash {curl}\nCALL mcp__adjutant__run_subagent {delegated}");
    }
    format!(
        "What does the page {} say? First try it yourself, once, with `curl -s` in Bash. If that is not permitted, \
         hand it to the subagent `web-search` with run_subagent. Answer with what the page says, word for word.",
        page.url
    )
}

fn subagent_script(page: &DemoPage) -> String {
    format!("CALL Bash {}", curl_input(page))
}

fn curl_input(page: &DemoPage) -> serde_json::Value {
    json!({ "command": format!("curl -s {}", page.url), "description": "Fetch the page" })
}

/// Prints the steps of the main agent and returns its answer.
async fn print_main_agent(main: &mut ProcessHandle) -> io::Result<Option<String>> {
    let Some(stdout) = main.stdout.take() else { return Ok(None) };
    let mut lines = BufReader::new(stdout).lines();
    while let Some(line) = lines.next_line().await? {
        match parse_line(line.as_bytes()) {
            Some(OutputFrame::Assistant(message)) => message.blocks.iter().for_each(print_block),
            Some(OutputFrame::User(user)) => {
                user.results.iter().for_each(print_result);
            }
            Some(OutputFrame::Result(result)) => {
                let answer = result.result.clone().unwrap_or_default();
                print_step("main", &format!("has its answer: {}", one_line(&answer)));
                return Ok(Some(answer).filter(|_| result.is_success()));
            }
            _ => {}
        }
    }
    print_step("main", &format!("ended without an answer: {}", one_line(&main.stderr_tail())));
    Ok(None)
}

fn print_block(block: &MessageBlock) {
    if let MessageBlock::ToolUse { name, input, .. } = block {
        match (name.as_str(), input.get("agent_name").and_then(|agent| agent.as_str())) {
            ("mcp__adjutant__run_subagent", Some(agent)) => {
                print_step("main", &format!("→ run_subagent({agent})"));
            }
            _ => print_step("main", &format!("wants {}", summarize_tool(name, input))),
        }
    }
}

fn print_result(result: &ToolResult) {
    let answer: Option<Value> = serde_json::from_str(&result.text).ok();
    let answer = answer.as_ref().and_then(|answer| answer.get("result")).and_then(Value::as_str);
    match answer {
        Some(answer) => print_step("", &format!("← {}", one_line(answer))),
        None if result.is_error => print_step("", &format!("denied: {}", one_line(&result.text))),
        None => {}
    }
}

/// Prints the steps of the subagent, read from the run registry, until aborted.
async fn watch_subagent(registry: RunRegistry) {
    let mut last = String::new();
    loop {
        if let Some(card) = registry.list().unwrap_or_default().into_iter().next() {
            let doing = card.progress.doing;
            if doing != last && !doing.is_empty() {
                print_step(&card.agent, &doing);
                last = doing;
            }
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn print_step(who: &str, what: &str) {
    output::print(format_args!("   {who:<12} {}", shorten(what, 160)));
}
