//! `adjutant hook`: handles hook events of Claude Code.
//!
//! Claude Code waits for its hooks and interprets exit status 2 as "block this call". This command therefore always
//! exits with 0, gives up after 3 s, and logs its errors to `data/hook.log`.

use std::io::{self, Read};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;
use std::{env, fs, panic, thread};

use clap::Args;
use serde_json::Value;

use crate::catalog::Orchestration;
use crate::cli::args::Command;
use crate::cli::{CliCommand, CommandResult, ExitStatus};
use crate::config::Settings;
use crate::delegation::event_log;
use crate::events::{ClaudeProcess, EndDetection};
use crate::identity::{Attestation, claude_ancestor, send_attestation};
use crate::store::{append_line, create_private_dir, remove_file};
use crate::util::{now, one_line};

const HOOK_COMMAND: &str = "hook";
/// Size limit of a payload in bytes. A payload contains the whole tool input, such as a file to write.
const MAX_PAYLOAD_BYTES: u64 = 32 << 20;
/// Time limit of the hook, after which Claude Code continues.
const HOOK_TIMEOUT: Duration = Duration::from_secs(3);
/// Time limit for the lock of the event log.
const EVENT_LOCK_TIMEOUT: Duration = Duration::from_millis(500);
/// Size in bytes above which `data/hook.log` is deleted and started again.
const MAX_LOG_BYTES: u64 = 1 << 20;

/// Tell the running server who calls it, and record what happens (run by Claude Code, not by people)
///
/// Reads the payload of a hook from stdin. For PreToolUse of an MCP tool it hands «this call is made by that agent» to the
/// server that the same Claude Code started; every event goes to data/events.jsonl. `adjutant init` installs it.
/// It prints nothing. Exit code 0, always: what went wrong stands in data/hook.log. If a subagent started it, it does nothing and
/// says so on stderr.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    {\"hooks\": {\"PreToolUse\": [{\"matcher\": \"*\", \"hooks\": [{\"type\": \"command\", \"command\": \"adjutant hook\"}]}]}}")]
pub(crate) struct HookArguments {}

impl CliCommand for HookArguments {
    fn run(&self, _settings: &Settings) -> CommandResult {
        Ok(handle())
    }
}

/// Returns the command if the first argument is `hook`, before clap can reject the others.
///
/// `hook --help` is left to clap.
pub(crate) fn command_from_args() -> Option<Command> {
    let mut arguments = env::args_os().skip(1);
    if arguments.next()? != HOOK_COMMAND {
        return None;
    }
    let asks = |argument: &std::ffi::OsString| argument == "-h" || argument == "--help";
    (!arguments.any(|argument| asks(&argument))).then_some(Command::Hook(HookArguments {}))
}

/// Handles the payload on a separate thread, so that neither a hang nor a panic affects Claude Code.
pub(crate) fn handle() -> ExitStatus {
    // The panic message would appear in the terminal of Claude Code.
    panic::set_hook(Box::new(|_| {}));
    let (done, waiting) = mpsc::channel();
    let working = thread::Builder::new().spawn(move || {
        let outcome = panic::catch_unwind(handle_payload);
        let _ = done.send(outcome.unwrap_or_else(|_| vec!["it broke; this is a bug".to_owned()]));
    });
    let problems = match working {
        Ok(_) => waiting.recv_timeout(HOOK_TIMEOUT).unwrap_or_else(|_| {
            vec![format!("it was not done within {} s", HOOK_TIMEOUT.as_secs())]
        }),
        Err(error) => vec![format!("it could not be started: {error}")],
    };
    for problem in problems {
        log_problem(&problem);
    }
    ExitStatus::Success
}

/// Attests the call and records the event; returns the errors.
fn handle_payload() -> Vec<String> {
    let payload = match read_payload() {
        Ok(payload) => payload,
        Err(problem) => return vec![problem],
    };
    let mut problems = Vec::new();
    problems.extend(attest(&payload).err());
    problems.extend(record_event(payload).err());
    problems
}

fn read_payload() -> Result<Value, String> {
    let mut bytes = Vec::new();
    let read = io::stdin().lock().take(MAX_PAYLOAD_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("the payload cannot be read: {error}"))?;
    if bytes.len() as u64 > MAX_PAYLOAD_BYTES {
        return Err(format!(
            "the payload has more than {} MB; it is ignored",
            MAX_PAYLOAD_BYTES >> 20
        ));
    }
    let payload: Value = serde_json::from_slice(&bytes)
        .map_err(|error| format!("the payload is no JSON; it is ignored: {error}"))?;
    payload.is_object().then_some(payload).ok_or_else(|| "the payload is no object".to_owned())
}

/// Sends an attestation of the caller to the servers if the payload announces an MCP tool call.
fn attest(payload: &Value) -> Result<(), String> {
    let text = |name: &str| payload.get(name).and_then(Value::as_str).unwrap_or_default();
    if text("hook_event_name") != "PreToolUse" || !text("tool_name").starts_with("mcp__") {
        return Ok(());
    }
    let said = Attestation::from_payload(payload)
        .ok_or("the payload does not say which call it is about; the call is unattested")?;
    match send_attestation(&said) {
        // `Ok(0)`: no Adjutant server is running, so the tool belongs to another server.
        Ok(_) => Ok(()),
        Err(error) => Err(format!("`{}` is unattested: {error}", said.tool_use_id)),
    }
}

/// Appends the event to the event log if the project has `agents/` or `data/`.
fn record_event(payload: Value) -> Result<(), String> {
    let settings = Settings::resolve(None).map_err(|error| error.to_string())?;
    let Value::Object(payload) = payload else { return Ok(()) };
    if !settings.agents_dir().is_dir() && !settings.data_dir().is_dir() {
        return Ok(());
    }
    let data = settings.data_dir();
    let log = event_log(&settings, &Orchestration::load(&settings));
    let begins = payload.get("hook_event_name").is_some_and(|name| name == "SessionStart");
    let claude = || claude_ancestor().map(ClaudeProcess::of);
    let recorded = create_private_dir(&data).and_then(|()| {
        if begins {
            // A resumed session may have been killed before; its end is recorded first.
            log.end_killed_sessions(EndDetection::Later)?;
        }
        log.append_hook(payload, claude, EVENT_LOCK_TIMEOUT)
    });
    match recorded {
        Ok(true) => Ok(()),
        Ok(false) => Err("the payload names no event".to_owned()),
        Err(error) => Err(format!("an event could not be recorded: {error}")),
    }
}

/// Appends an error to `data/hook.log`, the only output of this command.
fn log_problem(problem: &str) {
    let Ok(settings) = Settings::resolve(None) else { return };
    let data = settings.data_dir();
    if !settings.agents_dir().is_dir() && !data.is_dir() {
        return;
    }
    let log = data.join("hook.log");
    if fs::metadata(&log).is_ok_and(|found| found.len() > MAX_LOG_BYTES) {
        let _ = remove_file(&log);
    }
    let _ = create_private_dir(&data).and_then(|()| append_problem(&log, problem));
}

fn append_problem(log: &Path, problem: &str) -> io::Result<()> {
    append_line(log, &format!("{} {}", now(), one_line(problem)))
}
