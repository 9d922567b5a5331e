//! `adjutant hook`: what Claude Code runs at its own agents' events.
//!
//! It must never be in the way. Claude Code takes exit code 2 for «block this», and waits for as long as a hook runs: so
//! whatever goes wrong here ends with 0, within moments, and is said in `data/hook.log`.

use std::env;
use std::fs;
use std::io::{self, Read};
use std::panic;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::exit::Exit;
use crate::base::{append_line, create_private_dir, now, one_line, remove_file};
use crate::config::Settings;
use crate::identity::{Attestation, claude_above, hand_over};
use crate::record::{ClaudeStamp, EventLog, EventOptions, Noticed};
use crate::worker::agent_above;

/// The name under which it is called.
const NAME: &str = "hook";
/// More than any payload that was seen; a payload has the whole input of a tool, such as a file to be written.
const MAX_PAYLOAD: u64 = 32 << 20;
/// After this Claude Code goes on without us.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long the events' file may be busy.
const EVENT_PATIENCE: Duration = Duration::from_millis(500);
/// A log that has grown larger is begun anew.
const MAX_LOG: u64 = 1 << 20;

/// Tell the running server who calls it, and record what happens (run by Claude Code, not by people)
///
/// Reads the payload of a hook from stdin. For PreToolUse of an MCP tool it hands «this call is made by that agent» to the
/// server that the same Claude Code started; every event goes to data/events.jsonl. `adjutant init` installs it.
/// It prints nothing. Exit code 0, always: what went wrong stands in data/hook.log.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    {\"hooks\": {\"PreToolUse\": [{\"matcher\": \"*\", \"hooks\": [{\"type\": \"command\", \"command\": \"adjutant hook\"}]}]}}")]
pub(super) struct HookArguments {}

/// Runs the hook if that is what was asked for, before the grammar of the command line can refuse anything.
pub(super) fn hidden_command() -> Option<ExitCode> {
    let mut arguments = env::args_os().skip(1);
    if arguments.next()? != NAME {
        return None;
    }
    let asks = |argument: &std::ffi::OsString| argument == "-h" || argument == "--help";
    if arguments.any(|argument| asks(&argument)) {
        return None;
    }
    Some(run().into())
}

/// Does it all on a thread of its own, so that nothing there can make Claude Code wait or fail.
pub(super) fn run() -> Exit {
    // A broken hook must not print its troubles into Claude Code's terminal either.
    panic::set_hook(Box::new(|_| {}));
    let (done, waiting) = mpsc::channel();
    let working = thread::Builder::new().spawn(move || {
        let outcome = panic::catch_unwind(work);
        let _ = done.send(outcome.unwrap_or_else(|_| vec!["it broke; this is a bug".to_owned()]));
    });
    let problems = match working {
        Ok(_) => waiting
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|_| vec![format!("it was not done within {} s", PATIENCE.as_secs())]),
        Err(error) => vec![format!("it could not be started: {error}")],
    };
    for problem in problems {
        note(&problem);
    }
    Exit::Success
}

/// What a payload asks for; what went wrong with it.
fn work() -> Vec<String> {
    let payload = match read_payload() {
        Ok(payload) => payload,
        Err(problem) => return vec![problem],
    };
    if let Some(agent) = agent_above() {
        return vec![format!("ignored: it was started by the subagent `{agent}`")];
    }
    let mut problems = Vec::new();
    problems.extend(attest(&payload).err());
    problems.extend(record(payload).err());
    problems
}

fn read_payload() -> Result<Value, String> {
    let mut bytes = Vec::new();
    let read = io::stdin().lock().take(MAX_PAYLOAD + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("the payload cannot be read: {error}"))?;
    if bytes.len() as u64 > MAX_PAYLOAD {
        return Err(format!("the payload has more than {} MB; it is ignored", MAX_PAYLOAD >> 20));
    }
    let payload: Value = serde_json::from_slice(&bytes)
        .map_err(|error| format!("the payload is no JSON; it is ignored: {error}"))?;
    payload.is_object().then_some(payload).ok_or_else(|| "the payload is no object".to_owned())
}

/// Tells the server who makes the call that comes next, if it is a call of an MCP tool.
fn attest(payload: &Value) -> Result<(), String> {
    let text = |name: &str| payload.get(name).and_then(Value::as_str).unwrap_or_default();
    if text("hook_event_name") != "PreToolUse" || !text("tool_name").starts_with("mcp__") {
        return Ok(());
    }
    let said = Attestation::of_payload(payload)
        .ok_or("the payload does not say which call it is about; the call is unattested")?;
    match hand_over(&said) {
        // No server of ours waits here: the tool is somebody else's.
        Ok(_) => Ok(()),
        Err(error) => Err(format!("`{}` is unattested: {error}", said.tool_use_id)),
    }
}

/// Adds the event to the project's record, if this is a project of ours.
fn record(payload: Value) -> Result<(), String> {
    let settings = Settings::resolve(None).map_err(|error| error.to_string())?;
    let Value::Object(payload) = payload else { return Ok(()) };
    if !settings.agents_dir().is_dir() && !settings.data_dir().is_dir() {
        return Ok(());
    }
    let data = settings.data_dir();
    let log = EventLog::new(&data, EventOptions::default());
    let begins = payload.get("hook_event_name").is_some_and(|name| name == "SessionStart");
    let claude = || claude_above().map(ClaudeStamp::of);
    let recorded = create_private_dir(&data).and_then(|()| {
        if begins {
            // The session that goes on here may be one that was killed before.
            log.end_killed_sessions(Noticed::Later)?;
        }
        log.append_hook(payload, claude, EVENT_PATIENCE)
    });
    match recorded {
        Ok(true) => Ok(()),
        Ok(false) => Err("the payload names no event".to_owned()),
        Err(error) => Err(format!("an event could not be recorded: {error}")),
    }
}

/// Says a problem in our own log; there is nobody else to tell.
fn note(problem: &str) {
    let Ok(settings) = Settings::resolve(None) else { return };
    let data = settings.data_dir();
    if !settings.agents_dir().is_dir() && !data.is_dir() {
        return;
    }
    let log = data.join("hook.log");
    if fs::metadata(&log).is_ok_and(|found| found.len() > MAX_LOG) {
        let _ = remove_file(&log);
    }
    let _ = create_private_dir(&data).and_then(|()| append(&log, problem));
}

fn append(log: &Path, problem: &str) -> io::Result<()> {
    append_line(log, &format!("{} {}", now(), one_line(problem)))
}
