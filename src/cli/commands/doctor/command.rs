//! The command: what is looked at, in which order, and the round trip to the model.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio_util::sync::CancellationToken;

use super::finding::{Finding, FindingState, bad, good, warned};
use super::servers::{Look, servers};
use crate::base::{ScratchDir, write_project_file};
use crate::call::{Nobody, Orchestrator, Programs, Request, StatusBoard, credentials};
use crate::catalog::Snapshot;
use crate::cli::exit::Exit;
use crate::cli::runtime::quiet_gateway;
use crate::cli::{render, runtime};
use crate::config::Settings;
use crate::identity::Caller;
use crate::outcome::Outcome;
use crate::worker::Shutdown;

/// Look at `claude`, the credentials, the folders, the agents and the MCP servers, and say what to do
///
/// Nothing is changed, and no value of any credential is printed. `--live` also starts every server to ask for its
/// tools, and asks the model one small question.
/// Exit code 0, also with warnings; 1 if something is missing that a delegation needs.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  adjutant doctor\n  adjutant doctor --live")]
pub(in crate::cli) struct DoctorArguments {
    /// Also start every server, and make one round trip to the model (costs a fraction of a cent)
    #[arg(long)]
    live: bool,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

pub(in crate::cli) fn run(arguments: &DoctorArguments, settings: Settings) -> Exit {
    let (live, json) = (arguments.live, arguments.json);
    runtime::block_on(async move {
        let mut findings = vec![program(&settings).await, sign_in()];
        findings.extend(project(&settings));
        findings
            .extend(servers(&settings, if live { Look::Inside } else { Look::FromOutside }).await);
        if live {
            findings.push(round_trip(&settings).await);
        }
        if json {
            render::json(&findings);
        } else {
            findings.iter().for_each(Finding::show);
        }
        match findings.iter().any(|finding| finding.state == FindingState::Bad) {
            true => Exit::Failure,
            false => Exit::Success,
        }
    })
}

async fn program(settings: &Settings) -> Finding {
    const USEFUL: [&str; 7] = [
        "--no-session-persistence",
        "--session-id",
        "--resume",
        "--json-schema",
        "--max-budget-usd",
        "--effort",
        "--system-prompt-snapshot",
    ];
    match Programs::default().find(settings).await {
        Ok(program) => {
            let absent: Vec<&str> =
                USEFUL.into_iter().filter(|flag| !program.features.has(flag)).collect();
            let version = &program.features.version;
            let without = match absent.is_empty() {
                true => String::new(),
                false => format!(", without {}", absent.join(", ")),
            };
            good("claude", format!("`{}`, version {version}{without}", program.path.display()))
        }
        Err(failure) => bad("claude", failure.message, &failure.help),
    }
}

fn sign_in() -> Finding {
    match credentials() {
        Some(place) => good("credentials", place),
        None => warned(
            "credentials",
            "none were found in the environment or in Claude Code's folder".to_owned(),
            "run `claude` once and sign in, or set ANTHROPIC_API_KEY (a keychain cannot be seen from here)",
        ),
    }
}

fn project(settings: &Settings) -> Vec<Finding> {
    let snapshot = Snapshot::load(settings);
    let sound = snapshot.entries().iter().filter(|entry| entry.agent().is_some()).count();
    let broken: Vec<&str> = snapshot
        .entries()
        .iter()
        .filter(|entry| entry.agent().is_none())
        .map(|entry| entry.name.as_str())
        .collect();
    let agents = match (sound, broken.is_empty()) {
        (0, true) => {
            warned("agents", "there are none".to_owned(), "make one with `adjutant new NAME`")
        }
        (_, true) => good("agents", format!("{sound} can be called")),
        (_, false) => bad(
            "agents",
            format!("{sound} can be called, broken: {}", broken.join(", ")),
            "run `adjutant check`",
        ),
    };
    vec![
        good("project", format!("`{}`", settings.root.display())),
        agents,
        data(&settings.data_dir()),
        registered(&settings.root),
    ]
}

fn data(folder: &Path) -> Finding {
    match fs::metadata(folder) {
        Err(_) => good("data", format!("`{}` will be made when it is needed", folder.display())),
        Ok(metadata) if metadata.permissions().readonly() => bad(
            "data",
            format!("`{}` cannot be written", folder.display()),
            "make it writable: conversations and records are kept there",
        ),
        Ok(_) => good("data", format!("`{}`", folder.display())),
    }
}

fn registered(root: &Path) -> Finding {
    let text = fs::read_to_string(root.join(".mcp.json")).unwrap_or_default();
    let entry = serde_json::from_str::<serde_json::Value>(&text)
        .is_ok_and(|value| value.pointer("/mcpServers/adjutant").is_some());
    match entry {
        true => good("registered", "`.mcp.json` names the server `adjutant`".to_owned()),
        false => warned(
            "registered",
            "Claude Code does not know this server here".to_owned(),
            "run `adjutant init`",
        ),
    }
}

/// One real delegation, in a project of its own.
async fn round_trip(settings: &Settings) -> Finding {
    const AGENT: &str = "---\nname: doctor\ndescription: Says one word\ntimeout_ms: 60000\nmax_turns: 1\n---\nAnswer with the single word: ready\n";
    let folder = match ScratchDir::new() {
        Ok(folder) => folder,
        Err(error) => {
            return bad("live", format!("no temporary folder: {error}"), "look at the free space");
        }
    };
    let root = folder.path().to_path_buf();
    if let Err(error) = write_project_file(&root.join("agents/doctor/agent.md"), AGENT.as_bytes()) {
        return bad(
            "live",
            format!("the temporary folder cannot be written: {error}"),
            "look at the free space",
        );
    }
    let settings = Settings { root, ..settings.clone() };
    let gateway = quiet_gateway(&settings);
    let orchestrator = Orchestrator::start(settings, Shutdown::new(Duration::ZERO), gateway);
    let request = Request {
        agent_name: "doctor".to_owned(),
        prompt: "SAY ready\nAre you there?".to_owned(),
        ..Request::default()
    };
    let nobody = Arc::new(Nobody::because("the doctor asks nobody"));
    let report = orchestrator
        .run(request, Caller::main(), StatusBoard::new().0, CancellationToken::new(), nobody)
        .await;
    orchestrator.end_all().await;
    match &report.outcome {
        Outcome::Answered(_) => {
            let cost = report.cost_usd.unwrap_or_default();
            good("live", format!("an answer in {} ms for ${cost:.4}", report.duration_ms))
        }
        Outcome::Failed(failure) => bad("live", failure.message.clone(), &failure.help),
    }
}
