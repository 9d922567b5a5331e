//! `adjutant doctor`: checks the requirements of a delegation: program, credentials, files, servers, one round trip.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use crate::api::{FindingObject, ReportLevel};
use crate::catalog::Snapshot;
use crate::cli::format::{format_usd, plural};
use crate::cli::runtime::lazy_gateway;
use crate::cli::table::wrap_behind_heading;
use crate::cli::{
    CliCommand, CommandAccess, CommandReport, CommandResult, ExitStatus, JsonArgument, runtime,
};
use crate::config::{Settings, find_project};
use crate::delegation::{
    NoApprover, Orchestrator, ProgramCache, RunRequest, StatusSender, find_credentials,
};
use crate::gateway::{Gateway, ServerScope, ServerSpec};
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
    #[command(flatten)]
    format: JsonArgument,
}

impl DoctorArguments {
    pub(crate) fn access(&self) -> CommandAccess {
        // `--live` starts the servers with the user's secrets, and an agent.
        if self.live { CommandAccess::ActsOrChanges } else { CommandAccess::ReadsOnly }
    }
}

impl CliCommand for DoctorArguments {
    fn run(&self, settings: &Settings) -> CommandResult {
        runtime::block_on(async {
            let mut findings = vec![check_claude(settings).await, check_credentials()];
            match find_project(&settings.root) {
                Ok(_) => {
                    findings.extend(check_project(settings));
                    findings.extend(check_servers(settings, self.live).await);
                }
                Err(error) => findings.push(bad(
                    "project",
                    error.to_string(),
                    "go to a folder of a project, or name one with `--root DIR`",
                )),
            }
            if self.live {
                findings.push(check_round_trip(settings).await);
            }
            let is_bad = |finding: &FindingObject| finding.level == ReportLevel::Error;
            CommandReport::new(&findings)
                .data(findings.iter().map(to_text).collect::<Vec<_>>().join("\n"))
                .exit(ExitStatus::success_if(!findings.iter().any(is_bad)))
                .print(self.format)
        })
    }
}

async fn check_claude(settings: &Settings) -> FindingObject {
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

fn check_credentials() -> FindingObject {
    match find_credentials() {
        Some(place) => good("credentials", place),
        None => warned(
            "credentials",
            "none were found in the environment or in Claude Code's folder".to_owned(),
            "run `claude` once and sign in, or set ANTHROPIC_API_KEY (a keychain cannot be seen from here)",
        ),
    }
}

fn check_project(settings: &Settings) -> Vec<FindingObject> {
    let snapshot = Snapshot::load(settings);
    let (sound, broken): (Vec<_>, Vec<_>) =
        snapshot.entries().iter().partition(|entry| entry.agent().is_some());
    let broken: Vec<&str> = broken.iter().map(|entry| entry.name.as_str()).collect();
    let sound = sound.len();
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

fn check_data_dir(folder: &Path) -> FindingObject {
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

fn check_registration(root: &Path) -> FindingObject {
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
async fn check_round_trip(settings: &Settings) -> FindingObject {
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
            good("live", format!("an answer in {} ms for {}", report.duration_ms, format_usd(cost)))
        }
        Outcome::Failed(failure) => bad("live", failure.message.clone(), &failure.help),
    }
}

/// Checks all servers: one finding for the usable ones, one warning for each unusable one.
///
/// Only a warning, because an unusable server does not affect anything else.
async fn check_servers(settings: &Settings, live: bool) -> Vec<FindingObject> {
    let gateway = lazy_gateway(settings);
    let unreadable = gateway.in_force().report.mcp_config.last_error.clone();
    let mut findings: Vec<FindingObject> = unreadable
        .map(|error| warned("servers", error, "run `adjutant check`"))
        .into_iter()
        .collect();
    let mut well = Vec::new();
    for (name, checked) in check_all(settings, &gateway, live).await {
        match checked {
            Ok(Some(tools)) => well.push(format!("{name} ({})", plural(tools, "tool"))),
            Ok(None) => well.push(name),
            Err(obstacle) => findings.push(warned(
                "server",
                format!("`{name}`: {obstacle}"),
                "mend its entry, or what it needs; calls to it are SERVER_UNAVAILABLE until then",
            )),
        }
    }
    gateway.shutdown().await;
    if !well.is_empty() {
        let verb = if live { "answer" } else { "can be started" };
        findings.insert(0, good("servers", format!("{verb}: {}", well.join(", "))));
    }
    findings
}

/// Checks the entries of all servers at once; with `live`, starts them and counts their tools.
///
/// The order of the result is that of the entries: `.mcp.json` and extensions, then the servers that agents declare.
async fn check_all(
    settings: &Settings,
    gateway: &Arc<Gateway>,
    live: bool,
) -> Vec<(String, Result<Option<usize>, String>)> {
    let shared = gateway.in_force().servers.entries().to_vec().into_iter();
    let shared = shared.map(|entry| (entry.name, ServerScope::Shared, entry.spec));
    let snapshot = Snapshot::load(settings);
    let agents = snapshot.entries().iter().filter_map(|entry| entry.agent());
    let private = agents.flat_map(|agent| {
        let own = agent.servers.iter().filter_map(ServerSpec::from_entry);
        own.map(|spec| {
            let name = format!("{} of {}", spec.name, agent.name);
            (name, ServerScope::Private(agent.name.to_string()), Ok(Arc::new(spec)))
        })
    });
    let checks = shared.chain(private).map(|(name, scope, spec)| async move {
        let check = async {
            let spec = spec?;
            match spec.start_obstacle(&settings.root) {
                Some(obstacle) => Err(obstacle),
                None if !live => Ok(None),
                None => {
                    let server = gateway.downstreams().get_or_create(scope, &spec);
                    let tools = server.tools().await.map_err(|error| error.to_string())?;
                    Ok(Some(tools.tools.len()))
                }
            }
        };
        (name, check.await)
    });
    join_all(checks).await
}

fn to_text(finding: &FindingObject) -> String {
    let mark = match finding.level {
        ReportLevel::Ok | ReportLevel::Note => "ok  ",
        ReportLevel::Warning => "warn",
        ReportLevel::Error => "BAD ",
    };
    let found = wrap_behind_heading(&format!("{mark}  {:<12} ", finding.code), &finding.message);
    match &finding.help {
        None => found,
        Some(help) => {
            let heading = format!("      {:<12} → ", "");
            format!("{found}\n{}", wrap_behind_heading(&heading, help))
        }
    }
}

fn good(code: &str, message: String) -> FindingObject {
    finding(ReportLevel::Ok, code, message, None)
}

fn warned(code: &str, message: String, help: &str) -> FindingObject {
    finding(ReportLevel::Warning, code, message, Some(help))
}

fn bad(code: &str, message: String, help: &str) -> FindingObject {
    finding(ReportLevel::Error, code, message, Some(help))
}

fn finding(level: ReportLevel, code: &str, message: String, help: Option<&str>) -> FindingObject {
    FindingObject {
        level,
        code: code.to_owned(),
        message,
        help: help.map(str::to_owned),
        file: None,
        line: None,
        column: None,
    }
}
