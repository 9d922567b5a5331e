//! The delegation itself, told line by line.

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio_util::sync::CancellationToken;

use super::cast::Cast;
use super::page::Page;
use super::scene::Scene;
use crate::base::{RunId, one_line, shorten};
use crate::call::{Nobody, Orchestrator, Request, StatusBoard};
use crate::claude::{Block, Frame, ToolResult, parse_line, summarize_tool};
use crate::cli::render;
use crate::cli::runtime::quiet_gateway;
use crate::config::Settings;
use crate::identity::Caller;
use crate::outcome::Outcome;
use crate::worker::{Launch, Links, Process, RunBoard, Shutdown, Urgency, start};

const PATIENCE: Duration = Duration::from_mins(3);
const LOOK: Duration = Duration::from_millis(40);

/// A real main agent, in its project, with Adjutant as its MCP server.
pub(super) async fn with_a_main_claude(
    cast: &Cast,
    scene: &Scene,
    page: &Page,
) -> io::Result<Option<String>> {
    let servers = scene.register(&cast.claude)?;
    let mut main = start(launch(cast, scene, &servers)).await.map_err(io::Error::other)?;
    if let Some(mut stdin) = main.stdin.take() {
        stdin.write_all(task(cast, page).as_bytes()).await?;
    }
    let board = tokio::spawn(watch_subagent(RunBoard::at(&scene.data_dir())));
    let told = tokio::time::timeout(PATIENCE, tell(&mut main)).await;
    board.abort();
    main.end(Urgency::Polite { grace: Duration::from_millis(500) }).await;
    match told {
        Ok(answer) => answer,
        Err(_) => Err(io::Error::other(format!("the main agent did not end within {PATIENCE:?}"))),
    }
}

/// Without a `claude`: this demo plays the main agent and calls Adjutant itself.
pub(super) async fn with_a_stand_in(
    cast: &Cast,
    scene: &Scene,
    page: &Page,
) -> io::Result<Option<String>> {
    say("main", &format!("wants Bash: curl -s {}", page.url));
    say("", "and its settings deny Bash(curl:*)");
    say("main", "→ run_subagent(web-search)");
    let settings = Settings { root: scene.root.clone(), claude: Some(cast.claude.clone()) };
    let gateway = quiet_gateway(&settings);
    let orchestrator = Orchestrator::start(settings, Shutdown::new(Duration::ZERO), gateway);
    let request = Request {
        agent_name: "web-search".to_owned(),
        prompt: subagent_script(page),
        ..Request::default()
    };
    let board = tokio::spawn(watch_subagent(RunBoard::at(&scene.data_dir())));
    let nobody = Arc::new(Nobody::because("nobody takes part in the demo"));
    let report = orchestrator
        .run(request, Caller::main(), StatusBoard::new().0, CancellationToken::new(), nobody)
        .await;
    orchestrator.end_all().await;
    board.abort();
    Ok(match report.outcome {
        Outcome::Answered(answer) => {
            say("main", &format!("has its answer: {}", one_line(&answer.text)));
            Some(answer.text)
        }
        Outcome::Failed(failure) => {
            say("main", &failure.sentence());
            None
        }
    })
}

fn launch(cast: &Cast, scene: &Scene, servers: &Path) -> Launch {
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
    Launch {
        label: "demo".to_owned(),
        run,
        program: cast.claude.clone(),
        arguments,
        environment: environment(cast, scene),
        folder,
        links: Links::Follow,
    }
}

/// The user's own environment for a real model; an empty home for a scripted one.
fn environment(cast: &Cast, scene: &Scene) -> Vec<(OsString, OsString)> {
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

/// What the main agent is asked. For the scripted model the task is the script.
fn task(cast: &Cast, page: &Page) -> String {
    if cast.is_scripted {
        let curl = curl(page);
        let delegated = json!({ "agent_name": "web-search", "prompt": subagent_script(page) });
        return format!("CALL Bash {curl}\nCALL mcp__adjutant__run_subagent {delegated}");
    }
    format!(
        "What does the page {} say? First try it yourself, once, with `curl -s` in Bash. If that is not permitted, \
         hand it to the subagent `web-search` with run_subagent. Answer with what the page says, word for word.",
        page.url
    )
}

fn subagent_script(page: &Page) -> String {
    format!("CALL Bash {}", curl(page))
}

fn curl(page: &Page) -> serde_json::Value {
    json!({ "command": format!("curl -s {}", page.url), "description": "Fetch the page" })
}

/// Tells what the main agent does, and gives its answer.
async fn tell(main: &mut Process) -> io::Result<Option<String>> {
    let Some(stdout) = main.stdout.take() else { return Ok(None) };
    let mut lines = BufReader::new(stdout).lines();
    while let Some(line) = lines.next_line().await? {
        match parse_line(line.as_bytes()) {
            Some(Frame::Assistant(message)) => message.blocks.iter().for_each(tell_block),
            Some(Frame::User(user)) => {
                user.results.iter().for_each(tell_result);
            }
            Some(Frame::Result(result)) => {
                let answer = result.result.clone().unwrap_or_default();
                say("main", &format!("has its answer: {}", one_line(&answer)));
                return Ok(Some(answer).filter(|_| result.is_success()));
            }
            _ => {}
        }
    }
    say("main", &format!("ended without an answer: {}", one_line(&main.stderr_tail())));
    Ok(None)
}

fn tell_block(block: &Block) {
    if let Block::ToolUse { name, input, .. } = block {
        match (name.as_str(), input.get("agent_name").and_then(|agent| agent.as_str())) {
            ("mcp__adjutant__run_subagent", Some(agent)) => {
                say("main", &format!("→ run_subagent({agent})"));
            }
            _ => say("main", &format!("wants {}", summarize_tool(name, input))),
        }
    }
}

fn tell_result(result: &ToolResult) {
    let answer: Option<Value> = serde_json::from_str(&result.text).ok();
    let answer = answer.as_ref().and_then(|answer| answer.get("result")).and_then(Value::as_str);
    match answer {
        Some(answer) => say("", &format!("← {}", one_line(answer))),
        None if result.is_error => say("", &format!("denied: {}", one_line(&result.text))),
        None => {}
    }
}

/// Tells what the subagent does, from the board that `adjutant runs list` reads too.
async fn watch_subagent(board: RunBoard) {
    let mut last = String::new();
    loop {
        if let Some(card) = board.list().into_iter().next() {
            let doing = card.progress.doing;
            if doing != last && !doing.is_empty() {
                say(&card.agent, &doing);
                last = doing;
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn say(who: &str, what: &str) {
    render::data(format_args!("   {who:<12} {}", shorten(what, 160)));
}
