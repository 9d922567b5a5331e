//! Parser of `hooks` in Claude Code's format.
//!
//! `Event: [{ matcher, hooks: [{ type: command, command, timeout }] }]`

use std::time::Duration;

use super::node::{Node, suggestion};
use super::shape::{Property, Shape, names, property, required};
use crate::catalog::model::{Agent, HOOK_EVENTS, Matcher, OnFailure, UserHook};

/// Default of Claude Code.
const DEFAULT_HOOK_TIMEOUT: Duration = Duration::from_mins(1);
const MAX_HOOK_TIMEOUT_SECONDS: u64 = 3_600;

/// Hooks by event.
pub(crate) const HOOKS: Shape = Shape::Map(&Shape::List(&Shape::Object(ENTRY)));
const ENTRY: &[Property] = &[
    property(
        "matcher",
        Shape::Text,
        "Tool name, names such as `Edit|Write`, or a regular expression; without the key, all",
    ),
    required("hooks", Shape::List(&Shape::Object(HOOK)), "Commands"),
];
const HOOK: &[Property] = &[
    property("type", Shape::Words(&["command"]), "Always `command`"),
    required("command", Shape::Text, "Command line for the shell; the payload is on its stdin"),
    property("timeout", Shape::Number(1..=MAX_HOOK_TIMEOUT_SECONDS), "Timeout in seconds, 60"),
    property(
        "on_failure",
        Shape::Words(&["block", "allow"]),
        "Effect on the call when the hook fails: `block` (default) or `allow`",
    ),
];

/// Appends the hooks of a file to those of the agent.
pub(crate) fn parse_hooks(node: &Node<'_>, agent: &mut Agent) {
    let Some(events) = node.fields() else { return };
    for (event, node) in events.iter() {
        if !HOOK_EVENTS.contains(&event) {
            node.key_error("unknown-key", format!("there is no event `{event}`"))
                .help(suggestion(event, HOOK_EVENTS));
            continue;
        }
        for entry in node.items().unwrap_or_default() {
            read_entry(event, &entry, &mut agent.hooks);
        }
    }
}

fn read_entry(event: &str, entry: &Node<'_>, into: &mut Vec<UserHook>) {
    let Some(fields) = entry.fields() else { return };
    fields.reject_unknown(&names(ENTRY));
    let matcher = fields.get("matcher").map(|node| read_matcher(&node));
    let Some(commands) = fields.get("hooks") else {
        entry
            .error("missing-key", format!("`{}` has no `hooks`", entry.path))
            .help("write `hooks: [{ type: command, command: ./check.sh }]`");
        return;
    };
    for node in commands.items().unwrap_or_default() {
        // An invalid matcher is an error, and a file with errors is not used.
        into.extend(read_command(event, matcher.clone().flatten(), &node));
    }
}

fn read_matcher(node: &Node<'_>) -> Option<Matcher> {
    let serde_yaml::Value::String(text) = node.value else {
        node.text()?;
        return None;
    };
    Matcher::parse(text)
        .map_err(|reason| {
            let reason = reason.lines().last().unwrap_or_default().to_owned();
            node.error("wrong-value", format!("`{}` is no matcher: {reason}", node.path)).help(
                "write a tool's name, `Edit|Write`, or a regular expression such as `mcp__.*`",
            );
        })
        .ok()
}

fn read_command(event: &str, matcher: Option<Matcher>, node: &Node<'_>) -> Option<UserHook> {
    let fields = node.fields()?;
    fields.reject_unknown(&names(HOOK));
    if let Some(node) = fields.get("type") {
        node.one_of(&[("command", ())]);
    }
    let Some(command) = fields.get("command") else {
        node.error("missing-key", format!("`{}` has no `command`", node.path))
            .help("write `command: ./check.sh`");
        return None;
    };
    let command = command.text()?.to_owned();
    let seconds = fields.get("timeout").and_then(|node| node.integer(1..=MAX_HOOK_TIMEOUT_SECONDS));
    let words = [("block", OnFailure::Block), ("allow", OnFailure::Allow)];
    let on_failure = fields.choose("on_failure", &words);
    Some(UserHook {
        event: event.to_owned(),
        matcher,
        command,
        timeout: seconds.map_or(DEFAULT_HOOK_TIMEOUT, Duration::from_secs),
        on_failure: on_failure.unwrap_or_default(),
    })
}
