//! Checks of `adjutant doctor`, in order, and the round trip to the model.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio_util::sync::CancellationToken;

use super::finding::{DoctorFinding, FindingState, bad, good, warned};
use super::servers::{CheckDepth, check_servers};
use crate::catalog::Snapshot;
use crate::cli::command::{CliCommand, CommandAccess};
use crate::cli::exit_status::ExitStatus;
use crate::cli::runtime::lazy_gateway;
use crate::cli::{output, runtime};
use crate::config::Settings;
use crate::delegation::{
    NoApprover, Orchestrator, ProgramCache, RunRequest, StatusSender, find_credentials,
};
use crate::identity::Caller;
use crate::outcome::Outcome;
use crate::process::Shutdown;
use crate::store::{ScratchDir, write_project_file};

/// Look at `claude`, the credentials, the folders, the agents and the MCP servers, and say what to do
///
/// Nothing is changed, and no value of any credential is printed. `--live` also starts every server to ask for its
/// tools, and asks the model one small question.
/// Exit code 0, also with warnings; 1 if something is missing that a delegation needs.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  adjutant doctor\n  adjutant doctor --live")]
pub(crate) struct DoctorArguments {
    /// Also start every server, and make one round trip to the model (costs a fraction of a cent)
    #[arg(long)]
    live: bool,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

impl CliCommand for DoctorArguments {
    fn access(&self) -> CommandAccess {
        // `--live` starts the servers with the user's secrets, and an agent.
        if self.live { CommandAccess::ActsOrChanges } else { CommandAccess::ReadsOnly }
    }

    fn run(&self, settings: &Settings) -> ExitStatus {
        runtime::block_on(async {
            let mut findings = vec![check_claude(settings).await, check_credentials()];
            findings.extend(check_project(settings));
            findings.extend(
                check_servers(
                    settings,
                    if self.live { CheckDepth::Live } else { CheckDepth::EntryOnly },
                )
                .await,
            );
            if self.live {
                findings.push(check_round_trip(settings).await);
            }
            if self.json {
                output::print_json(&findings);
            } else {
                findings.iter().for_each(DoctorFinding::print);
            }
            match findings.iter().any(|finding| finding.state == FindingState::Bad) {
                true => ExitStatus::Failure,
                false => ExitStatus::Success,
            }
        })
    }
}

async fn check_claude(settings: &Settings) -> DoctorFinding {
    const USEFUL: [&str; 7] = [
        "--no-session-persistence",
        "--session-id",
        "--resume",
        "--json-schema",
        "--max-budget-usd",
        "--effort",
        "--system-prompt-snapshot",
    ];
    match ProgramCache::default().find(settings).await {
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

fn check_credentials() -> DoctorFinding {
    match find_credentials() {
        Some(place) => good("credentials", place),
        None => warned(
            "credentials",
            "none were found in the environment or in Claude Code's folder".to_owned(),
            "run `claude` once and sign in, or set ANTHROPIC_API_KEY (a keychain cannot be seen from here)",
        ),
    }
}

fn check_project(settings: &Settings) -> Vec<DoctorFinding> {
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
        check_data_dir(&settings.data_dir()),
        check_registration(&settings.root),
    ]
}

fn check_data_dir(folder: &Path) -> DoctorFinding {
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

fn check_registration(root: &Path) -> DoctorFinding {
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

/// Runs one real delegation in a temporary project.
async fn check_round_trip(settings: &Settings) -> DoctorFinding {
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
    let gateway = lazy_gateway(&settings);
    let orchestrator = Orchestrator::start(settings, Shutdown::new(Duration::ZERO), gateway);
    let request = RunRequest {
        agent_name: "doctor".to_owned(),
        prompt: "SAY ready\nAre you there?".to_owned(),
        ..RunRequest::default()
    };
    let nobody = Arc::new(NoApprover::new("the doctor asks nobody"));
    let report = orchestrator
        .run(request, Caller::main(), StatusSender::new().0, CancellationToken::new(), nobody)
        .await;
    orchestrator.stop_all().await;
    match &report.outcome {
        Outcome::Answered(_) => {
            let cost = report.cost_usd.unwrap_or_default();
            good("live", format!("an answer in {} ms for ${cost:.4}", report.duration_ms))
        }
        Outcome::Failed(failure) => bad("live", failure.message.clone(), &failure.help),
    }
}
