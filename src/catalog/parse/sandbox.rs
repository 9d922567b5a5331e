//! Parser of `sandbox`: a mode, or a mapping in which missing keys have the values of `workspace`.

use serde_json::{Value, json};

use super::node::Node;
use super::shape::{Property, Shape, names, property};
use crate::catalog::model::{Agent, SandboxBackend, SandboxSettings};

/// Values of `sandbox`.
pub(crate) const SANDBOX: Shape = Shape::OneOf(&[Shape::Words(MODES), Shape::Object(KEYS)]);

const MODES: &[&str] = &["off", "read-only", "workspace"];
const KEYS: &[Property] = &[
    property("backend", Shape::Words(&["auto", "bwrap"]), "Program that makes the sandbox"),
    property("filesystem", Shape::Object(FILESYSTEM), "Folders beyond the system and the project"),
    property("network", Shape::Words(&["none"]), "`none`: only the model can be reached"),
];
const FILESYSTEM: &[Property] = &[
    property("write", Shape::Texts, "Writable folders; without the key, the working directory"),
    property("read", Shape::Texts, "Readable files and folders"),
    property("hide", Shape::Texts, "Files and folders that are not there"),
];

pub(super) fn read_sandbox(node: &Node<'_>, agent: &mut Agent) {
    agent.sandbox = match node.value {
        serde_yaml::Value::Mapping(_) => read_mapping(node),
        _ => node.one_of(&[("off", 0), ("read-only", 1), ("workspace", 2)]).and_then(|mode| {
            match mode {
                0 => None,
                1 => Some(SandboxSettings::read_only()),
                _ => Some(SandboxSettings::workspace()),
            }
        }),
    };
}

fn read_mapping(node: &Node<'_>) -> Option<SandboxSettings> {
    let mut settings = SandboxSettings::workspace();
    let fields = node.fields()?;
    fields.reject_unknown(&names(KEYS));
    let backends = [("auto", SandboxBackend::Auto), ("bwrap", SandboxBackend::Bwrap)];
    settings.backend = fields.choose("backend", &backends).unwrap_or_default();
    let _ = fields.choose("network", &[("none", ())]);
    if let Some(files) = fields.read("filesystem", Node::fields) {
        files.reject_unknown(&names(FILESYSTEM));
        let lists = [
            ("write", &mut settings.write),
            ("read", &mut settings.read),
            ("hide", &mut settings.hide),
        ];
        for (key, list) in lists {
            if let Some(node) = files.get(key) {
                *list = read_paths(&node);
            }
        }
    }
    Some(settings)
}

fn read_paths(node: &Node<'_>) -> Vec<String> {
    let items = node.items_or_text().unwrap_or_default();
    items.iter().filter_map(|item| item.text().map(str::to_owned)).collect()
}

pub(super) fn show_sandbox(agent: &Agent) -> Value {
    let Some(settings) = &agent.sandbox else { return json!("off") };
    if *settings == SandboxSettings::read_only() {
        return json!("read-only");
    }
    if *settings == SandboxSettings::workspace() {
        return json!("workspace");
    }
    let SandboxSettings { backend, write, read, hide } = settings;
    let filesystem = json!({ "write": write, "read": read, "hide": hide });
    json!({ "backend": backend, "filesystem": filesystem, "network": "none" })
}
